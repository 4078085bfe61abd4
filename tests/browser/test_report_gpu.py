"""The report of a foreign trace of GPUs: tracks of streams with their kernels, what launched them,
and the flame graph of what GPUs executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from layerscope.recording.run import Run
from layerscope.show.report import live_timeline
from tests.analyse.gpu.made import US, GpuRecording
from tests.browser import chromium
from tests.browser.report_flame import (
    READY,
    READY_S,
    numbers_of_command,
    numbers_of_page,
    open_flame,
)
from tests.browser.report_page import click, text, write_report
from tests.browser.timeline_page import labels, open_timeline, place, row_of, settle
from tests.show.report_page import serving

pytestmark = pytest.mark.slow


def gpu_training() -> GpuRecording:
    """Four steps; in each an operator launches a kernel, which ends in the next one, and a call
    outside of operators launches a copy on another stream.
    """
    gpu = GpuRecording()
    recording = gpu.recording
    for step in range(4):
        at_us = 1000 * step
        recording.add_step(step, at_us * US, (0, 1000 * US, 0, 0, 0))
        about = {"step": step}
        around = recording.add_span(
            f"ProfilerStep#{step}", at_us * US, 990 * US, kind="range", **about
        )
        linear = recording.add_span("aten::linear", at_us * US, 300 * US, around, **about)
        mm = recording.add_span("aten::mm", (at_us + 50) * US, 200 * US, linear, **about)
        launch = gpu.call("cudaLaunchKernel", at_us + 60, 20)
        copying = gpu.call("cudaMemcpyAsync", at_us + 400, 20)
        kernel = gpu.work(at_us + 700, 500 + step, "gemm", launched_by=launch, operator=mm)
        copy = gpu.work(at_us + 500, 100, "Memcpy HtoD", "memcpy", 9, launched_by=copying)
        for span in (launch, copying, kernel, copy):
            recording.rows["spans"][span]["step"] = step
    return gpu


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    return write_report(gpu_training().recording, folder), folder


@pytest.fixture
def address(page: chromium.Page, report: tuple[str, Path]) -> Iterator[str]:
    yield report[0]
    assert page.complaints() == []


def test_a_kernel_on_its_stream_leads_to_what_launched_it(
    page: chromium.Page, address: str
) -> None:
    open_timeline(page, address)
    assert [label for label in labels(page) if "stream" in label] == ["stream 7", "stream 9"]
    x, y = place(page, "gemm", 1)
    assert y == row_of(page, "stream 7")

    page.mouse(x, y, click=True)
    settle(page)

    assert "501 µs" in text(page, ".tl-span")
    linked = text(page, ".tl-links")
    assert "the call that launched it: cudaLaunchKernel" in linked
    assert "the operator that asked for it: aten::mm" in linked
    click(page, ".tl-links button", "cudaLaunchKernel")
    settle(page)
    assert "what it launched on a GPU: gemm" in text(page, ".tl-links")


def test_the_first_flame_graph_is_that_of_the_gpus(
    page: chromium.Page,
    address: str,
    report: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(report[1])
    open_flame(page, address)
    found = numbers_of_page(page)

    assert found == numbers_of_command(capsys, "train", "--kind", "gpu", "--by", "none")
    names = {tuple(name for _, name, _ in path): numbers for path, numbers in found.items()}
    assert names["aten::linear", "aten::mm", "gemm"][0] == 2006 * US
    assert names["cudaMemcpyAsync", "Memcpy HtoD"][0] == 400 * US


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("step=1:3", ("--step", "1:3", "--by", "none")),
        ("by=step", ("--by", "step")),
        ("t=0.0015-0.0035s&inverted=yes", ("--time", "0.0015:0.0035", "--by", "none", "--invert")),
    ],
)
def test_a_part_of_it_is_that_of_the_command(
    page: chromium.Page,
    address: str,
    report: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    query: str,
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(report[1])
    open_flame(page, address, f"?kind=gpu&{query}")
    wanted = numbers_of_command(capsys, "train", "--kind", "gpu", *options)

    assert wanted
    assert numbers_of_page(page) == wanted


def test_a_page_that_asks_its_server_has_the_whole_graph_alone(
    page: chromium.Page,
    report: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(live_timeline, "MOST_IN_PAGE", 0)
    with serving(Run.open(report[1] / "train.layerscope")) as server:
        open_flame(page, server.address)
        whole = numbers_of_page(page)
        assert any(path[-1][1] == "gemm" for path in whole)

        open_flame(page, server.address, "?kind=gpu&step=1")
        page.wait(READY, READY_S)
        assert "the work of GPUs of the whole recording" in text(page, ".flame-nothing")
