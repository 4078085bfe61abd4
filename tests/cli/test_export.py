"""`layerscope export`: files, refusals, and a real program whose trace says what its tables say."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any

import pytest

from layerscope import cli
from layerscope.model.errors import RunError
from layerscope.model.layers import CUMULATIVE
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show import exports
from layerscope.show.exports import chrome_json
from tests.recorded import ROOT, record
from tests.recordings import MS, Recording
from tests.show.exported import depths, read_fxt, read_json

FORMATS = [".csv", ".csv.gz", ".fxt", ".json", ".json.gz", ".parquet"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with one recording of 20 spans, two of which cross."""
    monkeypatch.chdir(tmp_path)
    recording = Recording()
    for number in range(18):
        recording.add_span(f"op{number % 3}", number * 1000, 10)
    recording.add_span("crosses", 5, 50)
    recording.add_span("inside", 20, 5, parent=18)
    recording.rows["clock_readings"] = [
        {"clock": "realtime", "clock_value": 10**18, "run_ns": 0, "error_ns": 1}
    ]
    recording.write(tmp_path / "train.layerscope")
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".layerscope"))


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_extension_chooses_the_format(
    folder: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", f"t{suffix}"]) == 0

    assert files(folder) == [f"t{suffix}"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"t{suffix}: 20 spans" in printed.err
    assert printed.err.splitlines()[-1].startswith("Next: ")
    data = (folder / f"t{suffix}").read_bytes()
    head = {
        ".csv": b'"span"',
        ".fxt": b"\x10\x00\x04\x46\x78\x54\x16",
        ".json": b"{",
        ".parquet": b"PAR1",
    }
    assert (gzip.decompress(data) if suffix.endswith(".gz") else data).startswith(
        head[suffix.removesuffix(".gz")]
    )


def test_every_format_is_tried_here() -> None:
    assert sorted(exports.formats()) == FORMATS


def test_a_recording_is_named_before_the_file(folder: Path) -> None:
    assert cli.main(["export", "train", "a.json", "-q"]) == 0
    assert cli.main(["export", "train.layerscope", str(folder / "b.json"), "-q"]) == 0

    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()


def test_an_unknown_extension_lists_the_formats(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("t.svg", "t", "json", ".json", "-"):
        assert cli.main(["export", name]) == 125
        assert ".csv, .csv.gz, .fxt, .json, .json.gz, .parquet" in capsys.readouterr().err
    assert files(folder) == []


def test_a_file_is_replaced_only_by_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "t.json").write_text("mine")

    assert cli.main(["export", "t.json"]) == 125
    assert (
        capsys.readouterr().err
        == "layerscope: t.json exists and was left as it is. --force replaces it\n"
    )
    assert (folder / "t.json").read_text() == "mine"
    assert cli.main(["export", "t.json", "--force", "-q"]) == 0
    assert len(read_json(folder / "t.json").spans) == 20


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "b", "c.json"], "at most a recording and one file, not 3 words: a b c.json"),
        (["missing", "t.json"], "there is no recording 'missing'"),
        (["missing/t.json"], "missing/t.json lies in a folder that does not exist"),
        (["t.json", "--steps", "5"], "--steps 5 is no range: 10:20 are the steps 10 to 19"),
        (["t.json", "--steps", "5:5"], "--steps 5:5 is no range"),
        (
            ["t.json", "--steps", "0:1"],
            "--steps 0:1 holds no step of the recording: it has no steps",
        ),
        (["t.csv", "--steps", "0:1"], "--steps 0:1 holds no span"),
    ],
)
def test_refusals(
    folder: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", *words]) == 125

    printed = capsys.readouterr()
    assert printed.err.startswith("layerscope: ")
    assert sentence in printed.err
    assert files(folder) == []


def test_a_folder_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "t.json").mkdir()

    assert cli.main(["export", "t.json", "--force"]) == 125
    assert "t.json is a folder" in capsys.readouterr().err


def test_json_says_what_was_written(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert cli.main(["export", "t.fxt", "--json"]) == 0

    printed = capfdbinary.readouterr()
    told = json.loads(printed.out)
    assert printed.err == b""
    assert (told["command"], told["run"], told["problems"]) == (
        "export",
        str(folder / "train.layerscope"),
        [],
    )
    names = [column["name"] for column in told["columns"]]
    row = {"file": "t.fxt", "spans": 20, "crossing": 1, "bytes": (folder / "t.fxt").stat().st_size}
    assert [dict(zip(names, values, strict=True)) for values in told["rows"]] == [row]


def test_losses_and_problems_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording()
    recording.add_gap("ring_full", 1204, track=0)
    recording.write(folder / "lossy.layerscope")

    cli.main(["export", "lossy", "t.json"])

    assert "1,204 records" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_full_disk_leaves_what_was_there(folder: Path, suffix: str) -> None:
    """A limit on the size of files stands for the disk."""
    recording = Recording()
    for number in range(30_000):
        recording.add_span(f"op {number * 7919 % 30_011}", number * 1000, number % 999)
    recording.write(folder / "long.layerscope")
    (folder / f"t{suffix}").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "layerscope", "export", "long", f"t{suffix}", "--force"], cwd=folder, check=False,
        capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )  # fmt: skip

    assert done.returncode == 125, done.stderr
    assert done.stderr == (
        f"layerscope: t{suffix} was not written: {os.strerror(errno.EFBIG)}. Nothing else was changed; free some "
        "space, or name a file in another folder\n"
    )
    assert files(folder) == [f"t{suffix}"]
    assert (folder / f"t{suffix}").read_text() == "mine"


def test_whatever_fails_leaves_no_half_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(reader: Reader, stream: IO[bytes], steps: Any) -> None:
        stream.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(chrome_json, "write", fail)

    assert cli.main(["export", "t.json"]) == 130
    assert files(folder) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with Reader(Run.open(folder / "train.layerscope")) as reader:
        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(RunError, match="Permission denied"):
            exports.export(reader, folder / "t.json")


PROGRAM = """
import threading, time, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def loop():
    with torch.profiler.record_function("ein \\u00c4 \\"range\\""):
        for _ in range(100):
            torch.ones(4).add(1)
other = threading.Thread(target=loop, name="other")
other.start()
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
first, second = torch.profiler.record_function("first"), torch.profiler.record_function("second")
first.__enter__()
print(time.time_ns())
second.__enter__(), first.__exit__(None, None, None)
torch.ones(2)
second.__exit__(None, None, None)
print(time.time_ns())
other.join()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("native_agent")
def test_a_real_program(program_python: str, folder: Path) -> None:
    done = record(program_python, PROGRAM, folder)
    spans = done.rows(
        "SELECT s.name, layer || ',' || s.kind AS category, s.start_ns, dur_ns, s.depth, tid, step, sequence "
        "FROM spans s JOIN tracks USING (track)"
    )
    (second,) = [span for span in spans if span["name"] == "second"]
    names = ("name", "category", "start_ns", "dur_ns", "step", "sequence")
    assert len(spans) > 300
    assert done.value("SELECT count(*) FROM links") > 0
    for suffix, read in ((".json", read_json), (".fxt", read_fxt)):
        assert cli.main(["export", "recording", f"t{suffix}", "-q"]) == 0
        trace = read(folder / f"t{suffix}")
        own = [(span, depth) for span, depth in depths(trace) if span.category != "steps"]
        shift = min(span["start_ns"] for span in spans) - min(span.start_ns for span, _ in own)
        found = [
            (
                s.name,
                s.category,
                s.start_ns + shift,
                s.dur_ns,
                s.args.get("step"),
                s.args.get("sequence"),
            )
            for s, _ in own
        ]
        assert Counter(found) == Counter(tuple(span[name] for name in names) for span in spans)
        assert len(trace.spans) - len(own) == done.value("SELECT count(*) FROM steps") == 5
        assert len(trace.flows) == done.value("SELECT count(*) FROM links")
        # Counters that only grow are there as rates.
        levels = f"SELECT count(*) FROM counters WHERE name NOT IN {CUMULATIVE}"
        is_rate = [name.endswith(("_percent", "_per_s")) for _, name, *_ in trace.counters]
        assert is_rate.count(False) == done.value(levels)
        assert is_rate.count(True) > 0
        (crossing,) = [key for key, name in trace.threads.items() if name.endswith("(crossing)")]
        assert [span.name for span, _ in own if (span.pid, span.tid) == crossing] == ["second"]
        # The wall clock of the program, asked just before and after that range.
        before_ns, after_ns = map(int, done.stdout.split())
        start_ns = next(span.start_ns for span, _ in own if span.name == "second") + (
            trace.zero_ns or 0
        )
        assert before_ns - MS < start_ns < after_ns + MS
        # What began before the range that moved away lies as deep as the recorder said; so does the
        # other thread.
        seen = [
            (s.tid, s.name, s.start_ns + shift, depth)
            for s, depth in own
            if (s.pid, s.tid) != crossing
        ]
        said = [
            (s["tid"], s["name"], s["start_ns"], s["depth"]) for s in spans if s["name"] != "second"
        ]
        early = [
            [row for row in rows if row[0] != second["tid"] or row[2] < second["start_ns"]]
            for rows in (seen, said)
        ]
        assert Counter(early[0]) == Counter(early[1])
        assert len(early[0]) > 300
