"""The flame graph of a report's page, and that of `layerscope flame`, as numbers by path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from layerscope import cli
from tests.browser import chromium
from tests.browser.report_page import open_report
from tests.recordings import MS, Recording

# Layer, name and file of each frame from the outside in.
FramePath = tuple[tuple[str, str, str], ...]
# Own weight, total weight, and number of samples or spans.
Numbers = tuple[int, int, int]

_SHOWN = """
    const {nodes, frames} = document.querySelector('#layerscope-flame').flame;
    const columns = [nodes.parent, nodes.frame, nodes.own, nodes.total, nodes.count];
    const withoutFile = (label, place) => place ? label.replace(/ \\([^()]*\\)$/, '') : label;
    const names = frames.map(({name, label, layer, place}) => [layer, name ?? withoutFile(label, place), place]);
    return {columns: columns.map(column => Array.from(column)), names};"""
READY = "document.querySelector('#layerscope-flame.ready, .flame-nothing')"
READY_S = 20


def open_flame(page: chromium.Page, address: str, query: str = "") -> None:
    """Open the page with the flame graph that `query` asks for, and wait until it is there."""
    open_report(page, address, f"#flame{query}")
    page.wait(READY, READY_S)


def numbers_of_page(page: chromium.Page) -> dict[FramePath, Numbers]:
    """Every frame of the page but the whole."""
    found = page.run(_SHOWN)
    names = [tuple(name) for name in found["names"]]
    rows = zip(*found["columns"], strict=True)
    next(rows)
    made = [
        (parent - 1, names[frame], (own, total, count)) for parent, frame, own, total, count in rows
    ]
    return dict(_by_path(made))


def numbers_of_command(
    capsys: pytest.CaptureFixture[str], run: str, *options: str
) -> dict[FramePath, Numbers]:
    """The same of `layerscope flame RUN --json`; empty where there is nothing to show."""
    capsys.readouterr()
    if cli.main(["flame", run, "--json", "-q", *options]):
        assert "is left to show" in capsys.readouterr().err
        return {}
    answer = json.loads(capsys.readouterr().out)
    columns = [column["name"].removesuffix("_ns") for column in answer["columns"]]
    made = []
    for values in answer["rows"]:
        row = dict(zip(columns, values, strict=True))
        parent = -1 if row["parent"] is None else row["parent"]
        name = (row["layer"], row["name"], row["file"] or "")
        made.append((parent, name, (row["own"], row["total"], row["count"])))
    return dict(_by_path(made))


def _by_path(rows: list[tuple[int, Any, Numbers]]) -> Iterator[tuple[FramePath, Numbers]]:
    paths: list[FramePath] = []
    for parent, name, numbers in rows:
        paths.append((*(paths[parent] if parent >= 0 else ()), name))
        yield paths[-1], numbers


def of_every_sort() -> Recording:
    """Samples and spans over 2 s on two threads with all that trees are made of: lines of one
    function, waits with and without work, imports, workers of OpenMP, unknown stacks, recursion,
    native code between lines, page faults, modules, steps, primitives.
    """
    recording = Recording()
    other = recording.add_thread(recording.process, 101, "worker")
    system = "python _find_and_load <frozen importlib._bootstrap>:1"
    main = ("python <module> train.py:9", "python main train.py:5")
    again = ("python <module> train.py:9", "python main train.py:7")
    net = (*main, "modules Net", "python forward net.py:3", "modules Net.conv")
    conv = (*net, "operators aten::conv2d", "primitives convolution")
    team = ("native clone3 libc.so.6", "native start_thread libc.so.6")
    stacks = [
        main,
        again,
        (*again, "python main train.py:5"),
        net,
        conv,
        (*conv, "native jit libdnnl.so", "kernel page_fault"),
        (*main, "native _PyEval libpython.so", "python inner train.py:12"),
        (*main, system, "python <module> /usr/lib/python3.11/site-packages/numpy/__init__.py:1"),
        (*main, system, "python <module> mine.py:1", "python work mine.py:2"),
        (*main, system),
        ("native start_thread libc.so.6", "native gomp_thread_start libgomp.so.1", "native gemm libmkl.so"),
        ("native start_thread libc.so.6", "native gomp_thread_start libgomp.so.1", "native gomp_barrier_wait libgomp.so.1"),
        team,
        (*main, "native [left out] ", "native read libc.so.6"),
    ]  # fmt: skip
    keys = [*(recording.add_stack(*stack) for stack in stacks), None]
    for number in range(200):
        at_ns = number * 10 * MS
        more: dict[str, Any] = {"at_ns": at_ns, "step": number // 20 if number >= 20 else None}
        more["track"] = other if number % 3 == 0 else recording.thread
        stack = keys[(number * 7) % len(keys)]
        recording.add_sample(stack, 7 * MS + number * 1001, **more)
        if number % 2:
            waits = {"kind": "offcpu", "state": ("lock", "pool", "gil")[number % 3]}
            idle = {"idle": number % 9 == 0}
            recording.add_sample(stack, 3 * MS + number, **{**more, **waits, **idle})
        if number % 5 == 0:
            fault = {"kind": "fault", "count": number % 4, "state": "user"}
            recording.add_sample(stack, 0, **{**more, **fault})
    _add_spans(recording, other)
    return recording


def _add_spans(recording: Recording, other: int) -> None:
    modules = [
        {"module": 0, "parent": None, "path": "Net", "class": "Net"},
        {"module": 1, "parent": 0, "path": "Net.conv", "class": "Conv2d"},
    ]
    recording.rows["modules"] = modules
    for step in range(1, 10):
        at_ns = step * 200 * MS
        phases = (10 * MS, 50 * MS, 80 * MS, 10 * MS, 50 * MS)
        recording.add_step(step, at_ns, phases)
        about = {"step": step, "module": 0}
        outer = recording.add_span("aten::linear", at_ns + MS, 90 * MS, **about)
        inner = recording.add_span("aten::mm", at_ns + 2 * MS, 40 * MS + step, outer, module=1)
        recording.add_primitive("matmul", at_ns + 3 * MS, 15 * MS + step, inner)
        recording.add_primitive("reorder", at_ns + 20 * MS, 5 * MS, inner)
        short = recording.add_span("aten::short", at_ns + 50 * MS, 10 * MS, outer)
        recording.add_primitive("long", at_ns + 51 * MS, 8 * MS, short)
        recording.add_primitive("long", at_ns + 59 * MS, 8 * MS, short)
        recording.add_span("aten::mm", at_ns + 5 * MS, 30 * MS, step=step, track=other)
