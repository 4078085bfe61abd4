"""Files that ONNX Runtime keeps open, as what stands beside its sessions finds them."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.handed_faults import HANDED
from tests.recorded import ROOT

FILES = ROOT / "src/layerscope/capture/frameworks/onnxruntime/inside/files.py"


def test_an_open_file_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    files = runpy.run_path(str(FILES), {"faults": HANDED})
    folder = tmp_path.resolve()

    with (folder / "onnxruntime-1-1_now.json").open("w") as file:
        found = files["descriptor_of"](f"{folder}/onnxruntime-1-1_")
        assert (found[0], files["is_open"](found)) == (file.fileno(), True)
        assert files["descriptor_of"](f"{folder}/onnxruntime-1-2_") is None
    assert not files["is_open"](found)
