"""Files of others that are refused by name, each with what to do instead."""

from __future__ import annotations

import gzip
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from layerscope.ingest.foreign import imported
from layerscope.model.errors import ReadError

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu"
GRAPH = {"schema": "1.0.1", "pid": 5, "nodes": [{"name": "aten::mm", "id": 2, "rf_id": 0}]}
CONTENTS = {
    "et.json": (json.dumps(GRAPH).encode(), "execution trace of PyTorch"),
    "et.json.gz": (gzip.compress(json.dumps(GRAPH).encode()), "execution trace of PyTorch"),
    "kernels.ncu-rep": (b"NVR\0\x01\x02", "ncu --import FILE --csv"),
    "run.nsys-rep": (b"\x01\x02\x03", "nsys export --type sqlite"),
    "run.csv": (
        b'==12== NVPROF is profiling process 12\n"Start","Duration"\n',
        "nvprof -o run.nvvp",
    ),
    "table.csv": (b'"Type","Time(%)","Time","Calls"\n', "nvprof -o run.nvvp"),
    "ncu.csv": (b'"ID","Process ID","Process Name","Host Name"\n', "has no times"),
    "state.pkl": (pickle.dumps({"a": [1, 2]}), "never unpickled"),
    "run.log": (b"@@ iter 0\n@@ end\n", "ONEDNN_VERBOSE=1"),
    "empty.log": (b"", "ONEDNN_VERBOSE=1"),
    "trace.json": (b"", "is empty: copy the file again"),
    "image.png": (b"\x89PNG\r\n\x1a\n\0\0", "nor a file that can be read as one"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_not_read_is_named_with_the_remedy(tmp_path: Path, name: str) -> None:
    content, words = CONTENTS[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ReadError, match=words):
        imported(path)


def test_a_report_of_nsight_compute_is_known_without_its_name(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes((GOLDEN / "two_kernels.ncu-rep").read_bytes()[:4096])
    with pytest.raises(ReadError, match="ncu --import"):
        imported(path)


def test_archives_and_saved_tensors_are_not_opened(tmp_path: Path) -> None:
    inner = tmp_path / "data.pkl"
    inner.write_bytes(pickle.dumps([1]))
    saved, packed = tmp_path / "model.pt", tmp_path / "traces.tar.gz"
    with zipfile.ZipFile(saved, "w") as archive:
        archive.write(inner, "archive/data.pkl")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(inner, "data")
    with pytest.raises(ReadError, match="never unpickled"):
        imported(saved)
    with pytest.raises(ReadError, match="unpack it"):
        imported(packed)


def test_a_pickle_runs_no_code(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "harm",)

    for name, content in (("any.pkl", Harm()), ("snapshot.pkl", {"device_traces": Harm()})):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(ReadError, match="pickle"):
            imported(path)
    assert not (tmp_path / "harm").exists()
