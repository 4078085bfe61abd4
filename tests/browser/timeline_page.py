"""The timeline of a report: a recording with a known answer, and where its spans are drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser import chromium
from tests.browser.report_page import open_report
from tests.recordings import MS, Recording

STEPS, STEP_NS, FIRST_NS = 10, 100 * MS, 100 * MS
# Where a page has its spans: in itself, or at a server that it asks.
FILE, SERVER = "file", "server"
BOTH = pytest.mark.parametrize("address", [FILE, SERVER], indirect=True)
READY = "document.querySelector('.timeline')?.dataset.ready !== undefined"
# The box of a span on the screen, by its name and which of that name it is.
_BOX = """
    const [name, which] = args, picture = window.layerscopeTimeline;
    const {about} = picture.spans;
    let found;
    for (let at = 0, seen = 0; at < picture.spans.count; at++) {
        const span = await picture.spans.span(at);
        if (about.names[about.classes[span.cls][0]] === name && seen++ === which) { found = span; break; }
    }
    const canvas = document.querySelector('.tl-over').getBoundingClientRect(), box = picture.boxOf(found);
    return box && [canvas.x + box.x, canvas.y + box.y, box.width, box.height];"""
_CANVAS = """
    const box = document.querySelector('.tl-over').getBoundingClientRect();
    return [box.x, box.y, box.width, box.height];"""
_VIEW = "return [...window.layerscopeTimeline.view.now].map(Math.round)"
# Labels of the rows that can be seen, from the top down.
_LABELS = """
    return [...document.querySelectorAll('.tl-label')].map(label => [label.getBoundingClientRect().top,
        (label.querySelector('.tl-head-button') ?? label).textContent.replace(/^[\\u25be\\u25b8]/, '')])
        .filter(([, text]) => text).sort((a, b) => a[0] - b[0]).map(([, text]) => text);"""
# The colour of a point on the canvas, as the screen shows it.
_COLOUR = """
    const canvas = document.querySelector('.tl-canvases canvas'), box = canvas.getBoundingClientRect();
    const scale = canvas.width / box.width;
    const [x, y] = [(args[0] - box.x) * scale, (args[1] - box.y) * scale];
    return [...canvas.getContext('2d').getImageData(Math.round(x), Math.round(y), 1, 1).data].slice(0, 3);"""


def training() -> Recording:
    """Ten steps of 100 ms in rank 0, with modules, operators, primitives, waits, counters, marks;
    and a second rank with one span.
    """
    recording = Recording()
    recording.rows["processes"][0]["rank"] = 0
    autograd = recording.add_thread(recording.process, 101, "autograd")
    recording.rows["modules"] = [
        {"module": 0, "parent": None, "path": "Net", "class": "Net"},
        {"module": 1, "parent": 0, "path": "Net.conv1", "class": "Conv2d"},
        {"module": 2, "parent": None, "path": "Network", "class": "Other"},
    ]
    recording.rows["args"] = [{"args": 0, "json": '{"shape": "64x1x28x28", "call": "jit:avx2"}'}]
    recording.rows["links"] = []
    stack = recording.add_stack("python train train.py:12", "native wait_for libgomp.so")
    cpu_stack = recording.add_stack("python train train.py:14", "native gemm lib/libmkl.so")
    for step in range(STEPS):
        _add_step(recording, step, autograd, stack, cpu_stack)
    start_ns, end_ns = FIRST_NS, FIRST_NS + STEPS * STEP_NS
    readings = range(start_ns, end_ns, 50 * MS)
    recording.add_counter(0, "rss_bytes", [(at, at // 10) for at in readings], "bytes")
    recording.add_counter(0, "cpu_ns", [(at, (at - start_ns) // 2) for at in readings], "ns")
    mark = {"track": 0, "at_ns": start_ns + 350 * MS, "kind": "marker", "name": "epoch 1"}
    recording.rows["marks"] = [mark]
    other = recording.add_process(200, rank=1)
    thread = recording.add_thread(other, 200, "python")
    recording.add_span("aten::other", start_ns + 5 * MS, 500 * MS, track=thread)
    return recording


def _add_step(recording: Recording, step: int, autograd: int, stack: int, cpu_stack: int) -> None:
    start_ns = FIRST_NS + step * STEP_NS
    phases = (10 * MS, 40 * MS, 30 * MS, 15 * MS, 5 * MS)
    recording.add_step(step, start_ns, phases, warmup=step == 0)
    about = {"step": step, "module": 0, "phase": "forward"}
    module = {"layer": "modules", "kind": "module"}
    net = recording.add_span("Net", start_ns + 10 * MS, 40 * MS, **about, **module)
    about["module"] = 1
    conv = recording.add_span("aten::conv2d", start_ns + 12 * MS, 20 * MS, net, **about)
    # Operators are another layer than modules.
    recording.rows["spans"][net]["self_ns"] += 20 * MS
    told = {"args": 0, "module": 1, "phase": "forward"}
    ran = recording.add_primitive("convolution", start_ns + 14 * MS, 10 * MS, conv, None, **told)
    relu_ns = (5 + step) * MS
    recording.add_span("aten::relu", start_ns + 34 * MS, relu_ns, net, step=step, module=2)
    recording.rows["spans"][net]["self_ns"] += relu_ns
    back = recording.add_span(
        "ConvBackward0",
        start_ns + 55 * MS,
        25 * MS,
        track=autograd,
        kind="backward",
        step=step,
        phase="backward",
        module=1,
    )
    optimizer = {"kind": "optimizer", "step": step, "phase": "optimizer", "line": "train.py:30"}
    recording.add_span("Optimizer.step", start_ns + 82 * MS, 14 * MS, **optimizer)
    links = ((conv, back, "forward_backward"), (conv, ran, "operator_primitive"))
    recording.rows["links"] += [
        {"from_span": one, "to_span": other, "kind": kind} for one, other, kind in links
    ]
    recording.add_sample(cpu_stack, 9 * MS, start_ns + 15 * MS, track=0)
    recording.add_sample(cpu_stack, 2 * MS, start_ns + 31 * MS, track=0)
    wait = {"kind": "offcpu", "at_ns": start_ns + 60 * MS, "track": 0}
    recording.add_sample(stack, (15 + step) * MS, state="lock", waker=autograd, **wait)
    wait |= {"at_ns": start_ns + 5 * MS, "track": autograd}
    recording.add_sample(None, 20 * MS, state="preempted", **wait)


def open_timeline(page: chromium.Page, address: str, state: str = "#timeline") -> None:
    """Open the timeline and wait until all of it was read and drawn."""
    page.prefer_less_motion()
    open_report(page, address, state)
    page.wait(READY)
    settle(page)


def settle(page: chromium.Page) -> None:
    """Wait until the picture was drawn, and the address has what it shows."""
    page.run("await new Promise(done => setTimeout(() => requestAnimationFrame(done), 250));")


def view(page: chromium.Page) -> tuple[int, int]:
    """The stretch of time that is shown, in ns."""
    found: list[int] = page.run(_VIEW)
    return found[0], found[1]


def canvas(page: chromium.Page) -> tuple[float, float, float, float]:
    """Where the picture is: x, y, width, height."""
    x, y, width, height = page.run(_CANVAS)
    return x, y, width, height


def place(page: chromium.Page, name: str, which: int = 0) -> tuple[float, float]:
    """The middle of a span in the window."""
    box = page.run(_BOX, name, which)
    assert box, f"{name} is in no row that is shown"
    return box[0] + box[2] / 2, box[1] + box[3] / 2


def choose(page: chromium.Page, name: str, which: int = 0) -> None:
    """Click on a span."""
    page.mouse(*place(page, name, which), click=True)
    settle(page)


def double_click(page: chromium.Page, name: str, which: int = 0) -> None:
    """Click twice on a span, as fast as one thing."""
    x, y = place(page, name, which)
    twice = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")] * 2
    move = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
    mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
    page._act({**mouse, "actions": [move, *twice]})
    settle(page)


def labels(page: chromium.Page) -> list[str]:
    """The labels beside the picture, from the top."""
    found: list[str] = page.run(_LABELS)
    return found


def label_place(page: chromium.Page, text: str) -> tuple[float, float]:
    """The middle of a row's label."""
    found = page.run(
        f"""
        const label = [...document.querySelectorAll('.tl-label')].find(
            one => one.textContent.includes({json.dumps(text)}));
        const box = label.getBoundingClientRect();
        return [box.x + 60, box.y + box.height / 2];"""
    )
    return found[0], found[1]


def row_of(page: chromium.Page, text: str) -> float:
    """The height in the window of the middle of the row with this label."""
    return label_place(page, text)[1]


def x_of(page: chromium.Page, at_ns: float) -> float:
    """Where a moment is in the window."""
    left, _, width, _ = canvas(page)
    start_ns, end_ns = view(page)
    return left + (at_ns - start_ns) / (end_ns - start_ns) * width


def colour_at(page: chromium.Page, at: tuple[float, float]) -> list[int]:
    """Red, green and blue of a point of the picture."""
    found: list[int] = page.run(_COLOUR, *at)
    return found


def tip(page: chromium.Page) -> list[str]:
    """What the tooltip says, by line."""
    found: list[str] = page.run(
        "return [...document.querySelectorAll('.tl-tip div')].map(line => line.textContent)"
    )
    return found


def facts(page: chromium.Page) -> dict[str, Any]:
    """What is said of the chosen span, by its labels."""
    found: dict[str, Any] = page.run(
        """
        return Object.fromEntries([...document.querySelectorAll('.tl-span .facts div')].map(
            fact => [...fact.children].map(part => part.textContent.trim())));"""
    )
    return found
