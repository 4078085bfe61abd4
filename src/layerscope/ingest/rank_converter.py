"""The process that makes the tables of one rank (internal): `rank_pool` starts one for each.

    _ FOLDER BYTES

Prints one line of JSON: where the tables are, or why there are none. BYTES is the memory that it
may take.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from layerscope.ingest.heap import collect_rarely
from layerscope.ingest.open import open_one
from layerscope.model.errors import LayerscopeError


def main(arguments: list[str]) -> int:
    """Open the recording of the rank, which makes its tables."""
    collect_rarely()
    folder, memory_bytes = arguments
    try:
        answer = {"tables": str(open_one(Path(folder), int(memory_bytes)).tables_path)}
    except LayerscopeError as error:
        answer = {"problem": str(error)}
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
