"""Areas of samples that hold anything: the sampler takes what is right in them, says what is wrong,
and goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.capture.sampler import BINARY
from layerscope.rawfile import layout, raw_file, sampler_file
from layerscope.sources.raw.stacks import SampledFile
from tests.hostile.settings import mounted
from tests.native_sampler.sampling import PATIENCE_S, Sampled, Sampling, check

pytestmark = pytest.mark.alone

MAGIC, VERSION = 0x5053534C, layout.VERSION
HEADER_BYTES, RING_BYTES = 32768, 64 << 10
PAD, STACK, CODE = range(3)
RESERVED_AT = 64
CONSUMED_AT = 128
ENTRY = 1 << 31


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that the areas belong to."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


class Area:
    """The memory of a process whose handler writes what the test wants."""

    def __init__(self, pid: int, **header: int) -> None:
        self.pid = pid
        self.fd = os.memfd_create("samples")
        os.ftruncate(self.fd, HEADER_BYTES + RING_BYTES)
        values = {
            "magic": MAGIC,
            "version": VERSION,
            "pid": pid,
            "capacity": RING_BYTES,
            "python": 11,
        } | header
        packed = struct.pack("<IIiIQII", *(values[k] for k in ("magic", "version", "pid", "capacity")), 1,
                             values["python"], 1)  # fmt: skip
        os.pwrite(self.fd, packed, 0)
        self.at = 0

    def write(self, kind: int, body: bytes, *, bytes_: int = -1, publishes: bool = True) -> None:
        """A record; `bytes_`: what it says that it is long."""
        size = 16 + len(body) + -len(body) % 16
        offset = HEADER_BYTES + self.at % RING_BYTES
        os.pwrite(self.fd, body, offset + 16)
        head = struct.pack(
            "<QIHH", self.at + 1 if publishes else 0, size if bytes_ < 0 else bytes_, kind, 0
        )
        os.pwrite(self.fd, head, offset)
        self.at += size
        self.reserve(self.at)

    def reserve(self, until: int) -> None:
        """Say how far records are reserved."""
        os.pwrite(self.fd, struct.pack("<Q", until), RESERVED_AT)

    def consumed(self) -> int:
        """How far the sampler is."""
        (found,) = struct.unpack("<Q", os.pread(self.fd, 8, CONSUMED_AT))
        return int(found)

    def code(self, number: int, name: bytes) -> None:
        """A code object."""
        body = struct.pack("<IiIIII", number, 7, len(name), 4, 2, 0) + name + b"f.py" + b"\0\1"
        self.write(CODE, body)

    def sample(
        self,
        cpu_ns: int,
        frames: tuple[tuple[int, int], ...] = (),
        *,
        claims: int = -1,
        at_ns: int = 0,
        **more: bool,
    ) -> None:
        """A sample of the process's one thread, of now unless `at_ns`; `claims`: frames that it
        says it has.
        """
        body = struct.pack("<QQiiIIII", at_ns or time.monotonic_ns(), cpu_ns, self.pid, -1, 1,
                           len(frames) if claims < 0 else claims, 0, 0)  # fmt: skip
        body += bytes(17 * 8) + b"".join(struct.pack("<II", *frame) for frame in frames)
        self.write(STACK, body, **more)


def hand_over(sampling: Sampling, area: Area) -> None:
    """As the session does it: the process first."""
    sampling.send(0, area.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    sampling.send(layout.SEND_SAMPLES, area.pid, 1, [area.fd])


def await_consumed(area: Area) -> None:
    """Until the sampler has taken what is there."""
    give_up = time.monotonic() + PATIENCE_S
    while area.consumed() < area.at and time.monotonic() < give_up:
        time.sleep(0.01)
    assert area.consumed() == area.at


def await_sample(sampling: Sampling) -> None:
    """Until a sample is in the file."""
    file = SampledFile(sampling.raw / raw_file.SAMPLER_FILE)
    give_up = time.monotonic() + PATIENCE_S
    while not len(file.take(sampler_file.SAMPLES)) and time.monotonic() < give_up:
        time.sleep(0.02)
        file.advance()


def names(found: Sampled) -> list[list[str]]:
    """The frames of Python of each sample that has a stack, the outermost first."""
    stacks = [
        row["stack"]
        for row in found.samples
        if row["kind"] == sampler_file.CPU and row["stack"] != sampler_file.NONE
    ]
    chains = [
        [f for f in found.chain(int(stack)) if f["kind"] == sampler_file.PYTHON] for stack in stacks
    ]
    return [[found.file.codes[frame["of"]].name for frame in reversed(chain)] for chain in chains]


def test_records_arrive_in_their_order_round_after_round(
    owner, sampling: Callable[..., Sampling]
) -> None:
    one, area = sampling(), Area(owner.pid)
    area.code(1, b"outer")
    area.code(2, b"inner")
    hand_over(one, area)
    for number in range(1, 2001):
        if RING_BYTES - area.at % RING_BYTES < 1024:
            area.write(PAD, bytes(RING_BYTES - area.at % RING_BYTES - 16))
        area.sample(number * 1000, ((2, 8), (1, 4 | ENTRY)))
        if number % 100 == 0:
            await_consumed(area)
    found = one.end()

    check(found)
    assert names(found) == [["outer", "inner"]] * 2000
    assert found.file.quality["lost"] == 0
    assert (found.frames["address"][found.frames["kind"] == sampler_file.PYTHON] == [4, 8]).all()


def test_a_record_that_is_never_published_is_passed(
    owner, sampling: Callable[..., Sampling]
) -> None:
    one, area = sampling(), Area(owner.pid)
    area.code(1, b"main")
    area.sample(1000, ((1, 4 | ENTRY),), publishes=False)
    area.sample(2000, ((1, 4 | ENTRY),))
    hand_over(one, area)
    await_consumed(area)
    found = one.end()

    check(found)
    assert names(found) == [["main"]]
    assert found.file.quality["lost"] == 1


@pytest.mark.parametrize("claims", [513, 400, 2**31, 2**32 - 1])
def test_a_sample_that_claims_more_than_it_has_is_counted(
    owner, sampling: Callable[..., Sampling], claims
) -> None:
    one, area = sampling(), Area(owner.pid)
    area.code(1, b"main")
    area.sample(1000, ((1, 4 | ENTRY),), claims=claims)
    area.sample(2000, ((1, 4 | ENTRY),))
    hand_over(one, area)
    await_consumed(area)
    found = one.end()

    check(found)
    assert names(found) == [["main"]]
    assert found.file.quality["lost"] == 1


@pytest.mark.parametrize("at_ns", [1, 2**62, 2**64 - 1])
def test_a_sample_of_another_time_is_counted(
    owner, sampling: Callable[..., Sampling], at_ns: int
) -> None:
    """Such as a process in a time namespace has, or one that writes what it likes."""
    one, area = sampling(), Area(owner.pid)
    area.code(1, b"main")
    hand_over(one, area)
    area.sample(1000, ((1, 4 | ENTRY),), at_ns=at_ns)
    area.sample(2000, ((1, 4 | ENTRY),))
    await_consumed(area)
    found = one.end()

    check(found)
    assert names(found) == [["main"]]
    assert found.file.quality["lost"] == 1


@pytest.mark.parametrize("bytes_", [0, 8, 17, RING_BYTES, 2**32 - 16])
def test_a_record_with_a_wrong_length_is_passed(
    owner, sampling: Callable[..., Sampling], bytes_: int
) -> None:
    one, area = sampling(), Area(owner.pid)
    area.code(1, b"main")
    area.sample(1000, ((1, 4 | ENTRY),), bytes_=bytes_)
    area.sample(2000, ((1, 4 | ENTRY),))
    hand_over(one, area)
    await_consumed(area)
    found = one.end()

    check(found)
    assert names(found) == [["main"]]
    assert found.file.quality["lost"] == 1


@pytest.mark.parametrize(
    "header", [{"magic": 1}, {"version": 99}, {"capacity": RING_BYTES + 16}, {"capacity": 24}]
)
def test_memory_that_is_no_area_is_left_alone(
    owner, sampling: Callable[..., Sampling], header
) -> None:
    one, area = sampling(), Area(owner.pid, **header)
    area.sample(1000)
    hand_over(one, area)
    found = one.end()

    check(found)
    # What the kernel tells of the process itself is there all the same.
    assert names(found) == []
    assert area.consumed() == 0


def test_memory_that_is_cut_short_ends_its_area_alone(
    owner, sampling: Callable[..., Sampling]
) -> None:
    one, area = sampling(), Area(owner.pid)
    area.code(1, b"main")
    area.sample(1000, ((1, 4 | ENTRY),))
    hand_over(one, area)
    await_consumed(area)
    os.ftruncate(area.fd, 0)
    file = SampledFile(one.raw / raw_file.SAMPLER_FILE)
    give_up = time.monotonic() + PATIENCE_S
    while not file.problems and time.monotonic() < give_up:
        time.sleep(0.05)
        file.advance()
    found = one.end()

    check(found)
    assert names(found) == [["main"]]
    assert found.codes() == {"area_gone"}


def test_an_area_of_a_process_with_other_numbers_is_refused(
    owner, sampling: Callable[..., Sampling]
) -> None:
    one, area = sampling(), Area(owner.pid)
    os.pwrite(area.fd, struct.pack("<i", 1), 8)
    hand_over(one, area)
    found = one.end()

    check(found)
    assert found.codes() == {"other_pid_namespace"}


def test_messages_that_are_none_are_passed(owner, sampling: Callable[..., Sampling]) -> None:
    one, area = sampling(), Area(owner.pid)
    one.control.send(b"nothing that it knows")
    one.send(layout.SEND_SAMPLES, owner.pid, 1)
    one.send(layout.SEND_SAMPLES, owner.pid, 1, [area.fd, area.fd])
    one.send(77, owner.pid, 1, [area.fd])
    one.send(layout.SEND_SAMPLES, owner.pid, 1, [area.fd], magic=5)
    area.code(1, b"main")
    area.sample(1000, ((1, 4 | ENTRY),))
    hand_over(one, area)
    await_consumed(area)
    found = one.end()

    check(found)
    assert names(found) == [["main"]]


def test_numbers_that_change_while_they_are_read(sampling: Callable[..., Sampling]) -> None:
    """What was checked is what is used: a capacity that is too large a moment later ends
    nothing.
    """
    one, over = sampling(), threading.Event()
    owners = [subprocess.Popen(["sleep", "600"]) for _ in range(40)]
    made = [Area(owner.pid) for owner in owners]

    def change() -> None:
        while not over.is_set():
            for capacity in (2**32 - 16, RING_BYTES):
                for area in made:
                    os.pwrite(area.fd, struct.pack("<I", capacity), 12)

    changing = [threading.Thread(target=change) for _ in range(2)]
    try:
        for area in made:  # there are records, far behind the end of the memory
            os.pwrite(area.fd, struct.pack("<Q", 1 << 30), CONSUMED_AT)
            area.reserve((1 << 30) + 4096)
        for thread in changing:
            thread.start()
        hand_over(one, made[0])
        for area in made[1:]:  # the sampler looks for these processes between the one and the other
            one.send(layout.SEND_SAMPLES, area.pid, 1, [area.fd])
        found = one.end()
    finally:
        over.set()
        for thread in changing:
            thread.join()
        for owner in owners:
            owner.kill()
            owner.wait()
    check(found)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    changes=st.lists(
        st.tuples(st.integers(24, HEADER_BYTES + 4096), st.binary(min_size=1, max_size=16)),
        max_size=12,
    ),
    reserved=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
)
def test_an_area_with_anything_in_it_ends_nothing(
    changes: list[tuple[int, bytes]], reserved: int | None
) -> None:
    assert BINARY.exists()
    owner = subprocess.Popen(["sleep", "600"])
    folder = Path(tempfile.mkdtemp(prefix="layerscope-test-"))
    one = Sampling(folder)
    try:
        area = Area(owner.pid)
        for number in range(8):
            area.code(number, b"name%d" % number)
            area.sample(1000 * number, ((number, 4 | ENTRY), (1, 8 | ENTRY)))
        if reserved is not None:
            area.reserve(reserved)
        for offset, data in changes:
            os.pwrite(area.fd, data, offset)
        hand_over(one, area)
        check(one.end())
    finally:
        one.kill()
        owner.kill()
        owner.wait()
        os.close(area.fd)
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_full_disk_keeps_what_is_there(owner, tmp_path: Path) -> None:
    """What is in the file names nothing that is not, and what did not fit is counted."""
    with mounted("tmpfs", "size=256k", tmp_path / "disk") as disk:
        one, area = Sampling(disk), Area(owner.pid)
        hand_over(one, area)
        area.code(1, b"main")
        for number in range(1, 20_001):
            if RING_BYTES - area.at % RING_BYTES < 1024:
                area.write(PAD, bytes(RING_BYTES - area.at % RING_BYTES - 16))
            area.sample(number * 1000, ((1, number * 2 | ENTRY),))
            if number % 200 == 0:
                await_consumed(area)
            if number == 200:
                await_sample(one)
        one.send(layout.SEND_END, 0, 0)
        one.control.close()
        out, _ = one.process.communicate(timeout=PATIENCE_S)
        one.kill()

        assert one.process.returncode == 0
        found = Sampled(
            SampledFile(one.raw / raw_file.SAMPLER_FILE), json.loads(out.splitlines()[-1])
        )
        assert not found.file.is_damaged
        assert 0 < len(found.samples) < 20_000
        assert found.told["dropped"] > 0
        assert (
            found.samples["stack"][found.samples["stack"] != sampler_file.NONE] < len(found.stacks)
        ).all()
