"""When a profiler that records in segments recorded nothing."""

from __future__ import annotations

import json
from pathlib import Path

from layerscope.sources.raw.decoder import Decoder
from layerscope.sources.raw.unrecorded import unrecorded

BEGAN_NS = 1_757_516_928_000_000_000


def segment(raw: Path, number: int, begun_ns: int, is_there: bool = True, **about: int) -> None:
    """Which begins so long behind the first reading of the clocks."""
    stem = f"xplane_recorded-8-{number}"
    told = {key: BEGAN_NS + at_ns if at_ns > 1 else True for key, at_ns in about.items()}
    (raw / f"{stem}.profile").write_text(
        json.dumps({"is_whole": True, "begun_realtime_ns": BEGAN_NS + begun_ns, **told})
    )
    if is_there:
        (raw / f"{stem}_segment.pb").write_bytes(b"")


def process(ended_ns: int) -> Decoder:
    """One whose clock is the run's, which begins at 1,000 ns."""
    found = Decoder()
    found.about["pid"] = 8
    found.readings += [(0, 1_000, BEGAN_NS, 0), (0, 1_000 + ended_ns, BEGAN_NS + ended_ns, 0)]
    return found


def stretches(raw: Path, ended_ns: int = 1_000_000) -> list[tuple[int, int]]:
    losses, _ = unrecorded(raw, process(ended_ns))
    assert {(loss.lost, loss.reason) for loss in losses} <= {(None, "no_segment")}
    return [(loss.start - 1_000, loss.end - 1_000) for loss in losses]


def test_between_two_segments_and_in_one_that_was_lost_nothing_is_recorded(tmp_path: Path) -> None:
    segment(tmp_path, 1, 10, ended_realtime_ns=500_000)
    segment(tmp_path, 2, 502_000, ended_realtime_ns=700_000)
    segment(tmp_path, 3, 703_000, is_there=False)
    assert stretches(tmp_path) == [(500_000, 502_000), (700_000, 703_000), (703_000, 1_000_000)]


def test_behind_an_end_or_a_pause_that_was_asked_for_nothing_is_missing(tmp_path: Path) -> None:
    segment(tmp_path, 1, 10, ended_realtime_ns=500_000, is_asked=True)
    segment(tmp_path, 2, 800_000, ended_realtime_ns=999_000, is_asked=True)
    assert stretches(tmp_path) == []


def test_it_is_said_where_more_than_a_hundredth_is_missing(tmp_path: Path) -> None:
    segment(tmp_path, 1, 0, ended_realtime_ns=400_000)
    segment(tmp_path, 2, 405_000, ended_realtime_ns=999_000, is_asked=True)
    assert unrecorded(tmp_path, process(1_000_000))[1] == []
    segment(tmp_path, 2, 450_000, ended_realtime_ns=999_000, is_asked=True)
    (said,) = unrecorded(tmp_path, process(1_000_000))[1]
    assert (said.code, "for 50.0 µs in 1 stretch" in said.what) == ("segments_apart", True)
    segment(tmp_path, 3, 999_100, is_there=False)
    segment(tmp_path, 2, 401_000, ended_realtime_ns=500_000)
    (said,) = unrecorded(tmp_path, process(2_000_000))[1]
    assert "for 500 µs in 2 stretches" in said.what  # not what the last one had


def test_a_process_without_segments_misses_none(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime-8-1.profile").write_text('{"begun_realtime_ns": "x"}')
    session = {"begun_realtime_ns": BEGAN_NS, "closed": [1, 2]}
    (tmp_path / "onnxruntime-8-2.profile").write_text(json.dumps(session))
    assert unrecorded(tmp_path, process(1_000)) == ([], [])
    segment(tmp_path, 1, 10)
    other = process(1_000)
    other.about["pid"] = 9
    assert unrecorded(tmp_path, other) == ([], [])


def test_what_the_program_profiled_itself_is_said_with_its_moments(tmp_path: Path) -> None:
    segment(tmp_path, 1, 10, ended_realtime_ns=200_000_100)
    segment(tmp_path, 2, 291_000_000, ended_realtime_ns=900_000_000, is_asked=True)
    moments = [(0, 5), (200_000_000, 290_000_000), (990_000_000, None)]
    away = [[BEGAN_NS + begun, until and BEGAN_NS + until] for begun, until in moments]
    told = json.dumps({"tasks": [], "away": away})
    (tmp_path / "xplane_recorded-8-0.profile").write_text(told)
    whole_ns = 1_000_000_000
    assert stretches(tmp_path, whole_ns) == [
        (0, 5),
        (200_000_100, 291_000_000),
        (990_000_000, whole_ns),
    ]
    (said,) = unrecorded(tmp_path, process(whole_ns))[1]
    assert said.code == "segments_over"
    assert "(0.00 to 0.00 s, 0.20 to 0.29 s, from 0.99 s on, counted" in said.what
