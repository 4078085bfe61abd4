"""What `layerscope.profiler.dumps` says of memory: live bytes of tensors, without moments that never
were.
"""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse.aggregates import aggregates
from layerscope.recording.reader import Reader
from tests.analyse.memory.made import allocate
from tests.recordings import Recording


def test_within_a_nanosecond_releases_come_first(tmp_path: Path) -> None:
    recording = Recording()
    # Each takes the place of the one before it, and the last one is live at no moment.
    for at_ns in (10, 20, 30):
        allocate(recording, at_ns, at_ns + 10, 100)
    allocate(recording, 20, 20, 999)

    with Reader(recording.write(tmp_path / "made")) as reader:
        ((*_, least, most),) = aggregates(reader, 0, 100, 100)["memory"]

    assert (least, most) == (0, 100)
