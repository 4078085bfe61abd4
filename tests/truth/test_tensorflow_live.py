"""A program that imports TensorFlow is told what is recorded of it. Any package of that name will
do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.building import NATIVE, ROOT, build
from tests.recorded import record

PROGRAM = """
import tensorflow
print(tensorflow.number)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("native_agent")
def test_one_sentence_says_what_is_recorded_of_tensorflow(
    program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("number = 7\n")

    recorded = record(program_python, PROGRAM, tmp_path)

    assert (recorded.status, recorded.stdout) == (0, "7\n")
    said = " ".join(recorded.stderr.split())
    assert "Not recorded: its operators, steps and modules" in said
    assert "primitives of oneDNN (TF_ENABLE_ONEDNN_OPTS=1)" in said
    assert "PyTorch" not in said


def test_primitives_that_its_library_tells_are_recorded(
    program_python: str, tmp_path: Path
) -> None:
    """A package of that name whose library tells of oneDNN as TensorFlow's does, by ITT. The real
    one (2.21, TF_ENABLE_ONEDNN_OPTS=1, 20 runs) had its 40 convolutions and 20 inner products.
    """
    package = tmp_path / "tensorflow"
    package.mkdir()
    client = tmp_path / "client.c"
    client.write_text(
        f'#define main use_itt\n#include "{ROOT / "tests" / "native" / "itt_client.c"}"\n'
    )
    flags = ("-std=gnu11", "-shared", "-fPIC", "-I", str(NATIVE))
    library = build(package / "library.so", [client], *flags)
    (package / "__init__.py").write_text(
        "import ctypes\n"
        "def run():\n"
        f"    library = ctypes.CDLL({str(library)!r})\n"
        "    words = (ctypes.c_char_p * 3)(b'client', b'tasks', None)\n"
        "    return library.use_itt(2, words)\n"
    )
    program = "import tensorflow\ntensorflow.run()\n"

    recorded = record(program_python, program, tmp_path)

    assert recorded.status == 0, recorded.stderr
    found = recorded.rows(
        "SELECT kind, name, count(*) AS n FROM spans WHERE layer = 'primitives' GROUP BY ALL"
    )
    by_kind = {(row["kind"], row["name"]): row["n"] for row in found}
    assert by_kind == {("create", "convolution"): 1, ("execute", "convolution"): 3}
