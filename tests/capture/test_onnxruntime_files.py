"""Files that ONNX Runtime keeps open, as what stands beside its sessions finds them."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.recorded import ROOT

FILES = ROOT / "src/layerscope/capture/frameworks/onnxruntime/inside/files.py"


def test_a_file_is_found_by_another_name_of_its_folder(tmp_path: Path) -> None:
    files = runpy.run_path(str(FILES))
    folder = tmp_path / "raw"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)

    with (folder / "onnxruntime-1-1_now.json").open("w") as file:
        for name in ("raw", "link", "raw/../link"):
            found = files["descriptor_of"](f"{tmp_path}/{name}/onnxruntime-1-1_")
            assert found is not None, name
            assert (found[0], files["is_open"](found)) == (file.fileno(), True)
        assert files["descriptor_of"](f"{tmp_path}/raw/onnxruntime-1-2_") is None
