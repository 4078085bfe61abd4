"""Files that are known and not opened: the sentence says what each is and what to do."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu"
EXECUTION = json.dumps({"schema": "1.0.1", "pid": 7, "start_ts": 1, "nodes": [{"name": "root"}]})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (EXECUTION.encode(), r"an execution trace.*open the Kineto trace of the same run"),
        (gzip.compress(EXECUTION.encode()), r"an execution trace"),
        ((GOLDEN / "two_kernels.ncu-rep").read_bytes()[:4096], r"Nsight Compute: ncu --import"),
        (b"SQLite format 3\0" + bytes(100), r"an SQLite database"),
        (b'{"rocprofiler-sdk-tool":[{"metadata":{}}]}', r"rocprofv3"),
        (b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}', r"speedscope"),
        (pickle.dumps([1, 2]), r"a pickle.*never loaded"),
        (b"nothing that anybody knows\n", r"is no recording, nor a file that can be read as one"),
    ],
)
def test_a_file_that_is_not_opened_is_called_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=words):
        open_run(path)
