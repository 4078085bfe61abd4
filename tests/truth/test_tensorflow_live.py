"""A program that imports TensorFlow is told what is recorded of it. Any package of that name will
do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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
