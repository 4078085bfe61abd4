"""The decoder: chunks of one process in, batches of columns out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from layerscope.model.layers import KINDS
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.sources.raw.decoder import Decoder
from tests.ingest.raw_file import BACKWARD, OPTIMIZER, RawFile, ticks


class Written:
    """A raw file and a decoder that has read it so far."""

    def __init__(self, folder: Path) -> None:
        self.file = RawFile(folder, 100)
        self.decoder = Decoder()
        self._reader = raw_file.SpoolReader(self.file.path)

    def read(self) -> Decoder:
        for chunk in self._reader.chunks():
            self.decoder.add(chunk)
        return self.decoder

    def batch(self, last: bool = False) -> dict[int, list[tuple[int, int]]]:
        """Per track the (start, end) of the spans of the next batches."""
        self.read()
        found = {}
        for track, rows in self.decoder.batches(last):
            found[track] = list(zip(rows["start"].tolist(), rows["end"].tolist(), strict=True))
        return found


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_a_batch_holds_what_ended_before_the_newest_reading(written: Written) -> None:
    file = written.file
    file.poll(10)
    file.records(
        0,
        [*file.thread_begin(20, 100, 1), *file.span(20, 100, 0, "a"), *file.span(110, 300, 0, "b")],
    )
    file.poll(200)
    assert written.batch() == {1: [(20, 100)]}
    assert written.decoder.waiting == 1
    file.poll(250)
    assert written.batch() == {}
    file.poll(300)
    assert written.batch() == {1: [(110, 300)]}
    assert written.decoder.waiting == 0


def test_nothing_is_final_without_a_reading(written: Written) -> None:
    written.file.records(
        0, [*written.file.thread_begin(20, 100, 1), *written.file.span(20, 100, 0, "a")]
    )

    assert written.batch() == {}
    assert written.decoder.waiting == 1


def test_extra_records_belong_to_the_span_before_them(written: Written) -> None:
    file = written.file
    file.poll(10)
    file.records(
        0,
        [
            *file.thread_begin(20, 100, 1, framework_thread=3),
            *file.span(20, 30, 0, "plain"),
            *file.span(40, 50, 0, "backward", BACKWARD, seq=9, forward_thread=7),
            *file.span(60, 70, 0, "both", OPTIMIZER, forward_thread=8, elsewhere=5),
            *file.span(80, 90, 0, "step", OPTIMIZER, optimizer=2),
        ],
    )
    file.poll(100)
    decoder = written.read()
    rows = dict(decoder.batches())

    assert rows[1]["origin"].tolist() == [0, 7, 0]
    assert rows[1]["optimizer"].tolist() == [0, 0, 2]
    assert rows[1]["seq"].tolist() == [-1, 9, -1]
    assert (rows[5]["start"].tolist(), rows[5]["origin"].tolist()) == ([60], [8])
    assert decoder.tracks[1].framework_thread == 3
    assert decoder.records == 4


def test_a_chunk_may_begin_and_end_between_any_two_threads(written: Written) -> None:
    """One ring, three threads, cut into chunks after every record."""
    file = written.file
    file.poll(10)
    everything = []
    for track in (1, 2, 3):
        everything.append(file.thread_begin(100 * track, 100 + track, track))
        everything.append(
            file.span(100 * track + 1, 100 * track + 5, 0, f"op {track}", forward_thread=track)
        )
        everything.append(file.lost(100 * track + 6, 100 * track + 7, track))
        everything.append(file.thread_end(100 * track + 9, track))
    for records in everything:
        file.records(0, records)
    file.poll(1000)
    assert written.batch() == {track: [(100 * track + 1, 100 * track + 5)] for track in (1, 2, 3)}
    decoder = written.decoder
    assert [(loss.track, loss.lost) for loss in decoder.losses] == [(1, 1), (2, 2), (3, 3)]
    assert [
        (t.tid, decoder.to_run(t.start), decoder.to_run(t.end or 0))
        for t in decoder.tracks.values()
    ] == [(100 + track, 100 * track, 100 * track + 9) for track in (1, 2, 3)]


def test_rings_do_not_mix(written: Written) -> None:
    file = written.file
    file.poll(10)
    file.records(0, file.thread_begin(20, 100, 1))
    file.records(1, file.thread_begin(20, 101, 2))
    file.records(0, file.span(30, 40, 0, "a"))
    file.records(1, file.span(35, 45, 0, "b"))
    file.poll(100)

    assert written.batch() == {1: [(30, 40)], 2: [(35, 45)]}


def test_a_name_of_a_thread_may_come_before_its_first_record(written: Written) -> None:
    written.file.threads({100: "main", 101: "worker"})
    written.file.records(0, written.file.thread_begin(20, 101, 4))
    written.file.threads({100: "renamed"})
    written.file.records(1, written.file.thread_begin(20, 100, 5))

    assert {number: track.name for number, track in written.read().tracks.items()} == {
        4: "worker",
        5: "renamed",
    }


def test_a_track_that_begins_behind_its_name_has_it(written: Written) -> None:
    """As those of threads that only the profiler of a framework knows."""
    written.file.write(raw_file.THREADS, json.dumps({"track 7": "tf_XLAEigen"}).encode())
    written.file.records(1, written.file.thread_begin(1, 171, 7))
    written.file.threads({100: "main"})
    assert written.read().tracks[7].name == "tf_XLAEigen"


def test_names_of_two_drainers_are_taken_once_and_completely(written: Written) -> None:
    entries = [
        b"\x01\0\0\0\x01\0\0\0a" + bytes(7),
        b"\x02\0\0\0\x01\0\0\0b" + bytes(7),
        b"\x03\0\0\0\x01\0\0\0c" + bytes(7),
    ]
    write = written.file.write
    write(raw_file.NAMES, entries[0], 0, 0, 0)
    write(raw_file.NAMES, entries[0] + entries[1], 0, 0, 0)
    write(raw_file.NAMES, entries[2], 0, 0, 32)
    write(raw_file.NAMES, b"\x05\0\0\0\x01\0\0\0e" + bytes(7), 1, 0, 0)

    assert written.read().names == ["(other names)", "a", "b", "c", "(name lost)", "e"]


def test_names_that_never_come_do_not_keep_spans_for_ever(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerscope.sources.raw.decoder._WAIT_FOR_NAMES_SPANS", 3)
    file = written.file
    file._names["late"] = 40
    file.poll(10)
    file.records(
        0,
        [
            *file.thread_begin(20, 100, 1),
            *file.span(20, 30, 0, "late"),
            *file.span(40, 50, 0, "late"),
        ],
    )
    file.poll(100)
    assert written.batch() == {}
    file.records(0, file.span(120, 130, 0, "late"))
    file.poll(200)

    assert written.batch() == {1: [(20, 30), (40, 50), (120, 130)]}


def test_the_clock_becomes_the_tsc_when_the_agent_speaks_up(tmp_path: Path) -> None:
    """The drainer knows the program before its agent: the first readings count too."""
    file = RawFile(tmp_path, 100, tsc=False)
    file.poll(100)
    file.poll(200)
    file.tsc = True
    file.write(raw_file.PROCESS, b'{"clock": "tsc", "argv": [""], "library": "lib"}')
    file.records(0, [*file.thread_begin(150, 100, 1), *file.span(150, 180, 0, "a")])
    file.poll(300)
    decoder = Decoder()
    for chunk in raw_file.SpoolReader(file.path).chunks():
        decoder.add(chunk)

    ((_, rows),) = decoder.batches()
    assert (rows["start"].tolist(), rows["end"].tolist()) == ([150], [180])
    assert decoder.about["argv"] == ["python", "t.py"]
    assert decoder.clock.last == ticks(300)


def test_an_open_span_is_as_long_as_the_recording(written: Written) -> None:
    """A program that goes on while the recording ends may finish spans after the last look at the
    clock.
    """
    file = written.file
    file.poll(10)
    file.records(0, [*file.thread_begin(20, 100, 1), *file.span(100, 900, 1, "inner")])
    file.poll(800)
    file.open_spans(0, 1, 100, [(50, "outer", 0, False)])
    assert written.batch(last=True) == {1: [(100, 900), (50, 900)]}


def test_a_cut_file_without_the_last_word_still_has_its_open_spans(written: Written) -> None:
    file = written.file
    file.poll(10)
    file.poll(20)
    file.open_spans(0, 1, 55, [(50, "outer", 0, False)])
    file.open_spans(1, 2, 56, [(60, "closed", 0, True)])
    assert written.batch(last=True) == {1: [(50, 50)]}
    assert [track.tid for track in written.decoder.tracks.values()] == [55]


def test_chunks_of_a_later_version_are_passed_over(written: Written) -> None:
    written.file.write(77, b"who knows")
    assert written.read().records == 0


def test_records_are_taken_as_the_agent_wrote_them(written: Written) -> None:
    """The widest values of every field."""
    widest = np.zeros(1, dtypes.RECORD)
    widest["start"], widest["end"], widest["seq"] = ticks(100), ticks(200), 2**31 - 1
    widest["depth"], widest["kind"] = 511, 4
    file = written.file
    file.poll(10)
    file.records(0, [*file.thread_begin(20, 2**22, 2**31 - 1), tuple(widest[0].tolist())])
    file.poll(300)
    decoder = written.read()
    ((track, rows),) = decoder.batches()

    assert track == 2**31 - 1
    assert (int(rows["seq"][0]), int(rows["depth"][0]), int(rows["kind"][0])) == (2**31 - 1, 511, 4)
    assert decoder.tracks[track].tid == 2**22


def test_kinds_are_read_by_the_names_that_the_raw_file_declares(tmp_path: Path) -> None:
    declared = [("module", "modules"), ("function", "operators"), ("stripe", "colours"), ("", "")]
    file = RawFile(tmp_path, 100, kinds=declared)
    file.records(0, [*file.thread_begin(0, 100, 1), *file.span(0, 10, 0, "net\nNet\n", 0)])
    file.records(0, [*file.span(10, 20, 0, "aten::mm", 1), *file.span(20, 30, 0, "gemm", 2)])
    file.poll(100)
    decoder = Decoder()
    for chunk in raw_file.SpoolReader(file.path).chunks():
        decoder.add(chunk)
    ((_, rows),) = decoder.batches()
    assert [KINDS[kind] for kind in rows["kind"]] == ["module", "function", "range"]
    assert decoder.unknown_kinds == ["stripe"]


def test_kinds_of_today_are_taken_as_they_are(written: Written) -> None:
    written.file.write(raw_file.PROCESS, json.dumps({"kinds": layout.SPAN_KINDS}).encode())
    assert written.read().unknown_kinds == []
    assert written.decoder._kind_of is None
