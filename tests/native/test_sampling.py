"""The handler of the agent that takes samples, driven by a program that tells itself when."""

from __future__ import annotations

import os
import select
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layerscope.rawfile import layout
from tests.native.building import build_driver, build_sanitized
from tests.native.door import Door
from tests.native.sampled import (
    FRAMES_CUT,
    MAGIC,
    MORE_CODE,
    RIP,
    RSP,
    STACK_NONE,
    TIMER,
    Area,
    Sample,
    Ticker,
    areas,
    open_event,
    with_children,
)

SOURCE = Path(__file__).parent / "sampling_driver.c"
PATIENCE_S = 60
HZ = 1000
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:abort_on_error=0:exitcode=66",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


class Driven:
    """A program that waits for a line of ours now and then."""

    def __init__(self, driver: Path, folder: Path, *arguments: str) -> None:
        self.door = Door(folder / "raw", drainer="")
        self.process = subprocess.Popen(
            [str(driver), self.door.name, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **SANITIZERS},
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the program."""
        return self.process.pid

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert ready, "the program says nothing"
        return self.process.stdout.readline()

    def go_on(self) -> None:
        """It goes on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> list[str]:
        """Let it come to its end; all the lines that it printed and nobody has read."""
        stdout, stderr = self.process.communicate("\n", timeout=2 * PATIENCE_S)
        assert (self.process.returncode, stderr[:4000]) == (0, "")
        self.door.close()
        return stdout.splitlines()

    def area(self) -> Area:
        """Its one area."""
        (area,) = areas(self.door, self.pid)
        area.take()
        return area


Drive = Callable[..., Driven]


@pytest.fixture(scope="session")
def sampling_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("sampling"), driver=SOURCE)


@pytest.fixture
def drive(sampling_driver: Path, tmp_path: Path) -> Iterator[Drive]:
    started: list[Driven] = []

    def start(*arguments: str) -> Driven:
        started.append(Driven(sampling_driver, tmp_path, *arguments))
        return started[-1]

    yield start
    for driven in started:
        if driven.process.poll() is None:
            driven.process.kill()
            driven.process.communicate()


def allowed() -> None:
    """The test is skipped where nobody may open events."""
    try:
        os.close(open_event(os.getpid(), HZ))
    except OSError as error:
        pytest.skip(f"perf_event_open is refused here: {error}")


def test_an_area_says_whose_it_is(drive: Drive) -> None:
    driven = drive("blocked")
    driven.end()
    area = driven.area()
    assert (area.number("magic"), area.number("version")) == (MAGIC, layout.VERSION)
    assert (area.number("pid"), area.number("python"), area.number("python_runtime")) == (
        driven.pid,
        0,
        0,
    )
    assert area.number("process_start") == driven.door.page(driven.pid)["process_start"]
    assert [code.name for code in area.codes.values()] == [MORE_CODE]


def test_registers_and_stack_are_those_of_the_moment(drive: Drive) -> None:
    driven = drive("known")
    place, returns = (list(map(int, line.split())) for line in driven.end())
    stack_at, instruction, pattern = place
    (sample,) = driven.area().samples
    registers = sample.registers
    assert (registers[RSP], registers[RIP]) == (stack_at, instruction)
    # rbx and r12 to r15, as DWARF numbers them; rax: the result of the call
    assert [registers[i] for i in (3, 12, 13, 14, 15)] == [0x1111, 0x2222, 0x3333, 0x4444, 0x5555]
    assert registers[0] == 0
    kept = struct.pack("<8Q", *(0x5EED000000000000 + i * 0x0101010101 for i in range(8)))
    assert sample.stack[pattern - stack_at :][: len(kept)] == kept
    at = 0
    assert len(returns) >= 4
    for address in returns:  # of each caller the place where it goes on, from the inside out
        at = sample.stack.index(struct.pack("<Q", address), at) + 8
    assert (sample.event, sample.count, sample.flags, sample.frames) == (77, 0, 0, [])
    assert sample.tid == driven.pid


def test_nothing_is_allocated(drive: Drive) -> None:
    driven = drive("allocations", "300")
    assert driven.end() == ["1"]  # the program's own
    assert driven.area().number("samples") == 300


def test_the_smallest_stacks_of_threads_are_enough(drive: Drive) -> None:
    driven = drive("small", "30")
    assert driven.end() == []
    samples = driven.area().samples
    assert len(samples) == 300
    assert len({sample.tid for sample in samples}) == 30
    assert max(len(sample.stack) for sample in samples) <= 16384
    assert all(sample.stack for sample in samples)


def test_handlers_on_a_stack_of_their_own_are_seen_there(drive: Drive) -> None:
    driven = drive("altstack")
    (line,) = driven.end()
    ordinary, inside = driven.area().samples
    assert not 0 <= ordinary.registers[RSP] - int(line) < 65536
    assert 0 <= inside.registers[RSP] - int(line) < 65536
    assert inside.stack


def test_a_signal_that_is_blocked_comes_later(drive: Drive) -> None:
    driven = drive("blocked")
    assert driven.end() == []
    assert len(driven.area().samples) == 1


def test_signals_of_the_program_are_its_own(drive: Drive) -> None:
    driven = drive("handlers")
    assert driven.end() == ["3 1 1", "1", "4", "2"]
    area = driven.area()
    assert (area.number("samples"), area.number("foreign")) == (2, 4)


def test_a_handler_that_was_set_for_one_signal_gets_one(drive: Drive) -> None:
    assert drive("once").end() == ["1"]


def test_what_does_not_fit_is_counted_and_the_rest_is_whole(drive: Drive) -> None:
    driven = drive("full", "5000")
    before = 0
    area: Area | None = None
    for _ in range(3):
        assert driven.line() == "\n"
        area = area or areas(driven.door, driven.pid)[0]
        area.take()
        taken, lost = area.number("samples"), area.number("lost_full")
        assert len(area.samples) == taken > before
        assert area.number("consumed") == area.number("reserved")
        before = taken
        driven.go_on()
    assert lost > 0
    assert taken + lost == 15000
    assert driven.end() == []
    assert area is not None
    assert area.number("reserved") > area.number("capacity")  # it went round


def test_a_process_that_may_not_read_itself_says_so(drive: Drive) -> None:
    driven = drive("refused")
    driven.end()
    (sample,) = driven.area().samples
    assert (sample.flags, sample.stack) == (STACK_NONE, b"")
    assert sample.registers[RIP]
    (handed,) = driven.door.handed.values()
    assert any(b"stacks_unreadable\n" in bytes(names) for names in handed.names)


def test_each_forked_child_has_an_area_of_its_own(drive: Drive) -> None:
    driven = drive("children", "10")
    ended, borrower = driven.end()
    children = [int(word) for word in ended.split()]
    assert len(children) == 10
    for child in children:
        (area,) = areas(driven.door, child)
        assert {sample.tid for sample in area.take()} == {child}
        assert len(area.samples) == 5
        assert [code.name for code in area.codes.values()] == [MORE_CODE]
    parent = driven.area()
    assert len({sample.tid for sample in parent.samples}) == 2
    assert not areas(driven.door, int(borrower))
    assert int(borrower) not in {sample.tid for sample in parent.samples}


def check_threads(samples: list[Sample], wanted: int) -> None:
    """Several threads were seen, by increasing clocks, and inside of their work."""
    by_thread: dict[int, list[Sample]] = {}
    for sample in samples:
        by_thread.setdefault(sample.tid, []).append(sample)
    assert len(by_thread) >= wanted
    for own in by_thread.values():
        own.sort(key=lambda sample: sample.at_ns)
        assert [sample.cpu_ns for sample in own] == sorted(sample.cpu_ns for sample in own)
        assert all(sample.stack and not sample.flags & FRAMES_CUT for sample in own)


def test_events_from_outside_reach_every_thread(drive: Drive) -> None:
    allowed()
    driven = drive("staying")
    ticker = Ticker(driven.door, with_children(driven.pid), HZ)
    gives_up = time.monotonic() + PATIENCE_S
    while (
        len({sample.tid for sample in ticker.samples(driven.pid)}) < 4
        and time.monotonic() < gives_up
    ):
        time.sleep(0.05)
    driven.go_on()
    driven.end()
    ticker.close()
    samples = ticker.samples(driven.pid)
    check_threads(samples, 4)
    assert all(sample.event >= 0 and sample.count == 0 for sample in samples)


def test_timers_take_the_place_of_events(drive: Drive) -> None:
    driven = drive("timers", "1")
    driven.end()
    area = driven.area()
    assert area.number("uses_timers") == 1
    # The threads do not record, so only the first one has a timer; it waits for the others.
    assert all(
        sample.event == -1 and sample.count >= 1 and sample.flags & TIMER for sample in area.samples
    )
    assert {sample.tid for sample in area.samples} <= {driven.pid}


@pytest.mark.slow
def test_thousands_of_threads_that_end_soon(drive: Drive) -> None:
    driven = drive("small", "3000")
    ticker = Ticker(driven.door, lambda: [driven.pid], HZ)
    assert driven.end() == []
    ticker.close()
    (area,) = ticker.found[driven.pid]
    told = [sample for sample in area.samples if sample.event == 77]
    assert len(told) + area.number("lost_full") + area.number("lost_busy") >= 30000
    assert len({sample.tid for sample in told}) > 1000


@pytest.fixture(scope="module")
def sanitized_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sanitized(tmp_path_factory.mktemp("sanitized"), "address,undefined", driver=SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("known",), ("small", "50"), ("altstack",), ("children", "20"), ("threads", "3")]
)
def test_the_handler_under_sanitizers(
    sanitized_driver: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    driven = Driven(sanitized_driver, tmp_path, *arguments)
    ticker = Ticker(driven.door, with_children(driven.pid), HZ)
    driven.end()
    ticker.close()
    assert ticker.samples(driven.pid)
