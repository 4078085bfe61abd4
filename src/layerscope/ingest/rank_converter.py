"""The process that makes the tables of one rank, or of a few small traces (internal): started by
`rank_pool`.

    _ BYTES PATH...

A path is the recording of a rank or a file of another program. Prints a line of JSON for each:
where the tables are, or why there are none. BYTES is the memory that it may take.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from layerscope.ingest.heap import collect_rarely
from layerscope.ingest.open import open_one, open_run
from layerscope.model.errors import LayerscopeError
from layerscope.recording.run import Run


def main(arguments: list[str]) -> int:
    """Open the recordings, which makes their tables."""
    collect_rarely()
    memory_bytes = int(arguments[0])
    for path in arguments[1:]:
        try:
            answer = {"tables": str(_opened(Path(path), memory_bytes).tables_path)}
        except LayerscopeError as error:
            answer = {"problem": str(error)}
        print(json.dumps(answer), flush=True)
    return 0


def _opened(path: Path, memory_bytes: int) -> Run:
    return open_run(path) if path.is_file() else open_one(path, memory_bytes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
