"""What the program ran on: the machine, its limits, versions and variables."""

from __future__ import annotations

from typing import Any

from layerscope.recording.reader import Reader

TITLE = "Machine"
ORDER = 60


def data(reader: Reader) -> dict[str, Any]:
    """What `run.json` says of the machine and of the program's surroundings."""
    info = reader.run.info
    return {
        "host": info.host,
        "versions": info.versions,
        "environment": info.environment,
        "command": info.command,
        "cwd": info.cwd,
        "started_utc": info.started_utc,
        "finished_utc": info.finished_utc,
        "layers": [
            {"name": layer.name, "state": layer.state, "problem": layer.problem}
            for layer in info.layers
        ],
        "window": info.window,
        "imported_from": info.imported_from,
        "layerscope": info.layerscope,
    }
