"""Threads of XLA's profiler are those of the system: by what it numbers them."""

from __future__ import annotations

import os
import runpy
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handed_faults import HANDED
from tests.recorded import ROOT
from tests.sources.test_xplane import Plane, message

FILE = ROOT / "src/layerscope/capture/frameworks/jax/inside/pool_threads.py"
OURS = runpy.run_path(str(FILE), {"faults": HANDED})
MASK = (1 << 64) - 1


def hashed(address: int) -> int:
    """`std::hash` of a pointer, as libstdc++ has it: MurmurHash64A with the seed 0xc70f6907."""
    multiplier = 0xC6A4A7935BD1E995
    key = address * multiplier & MASK
    key = (key ^ key >> 47) * multiplier & MASK
    mixed = (0xC70F6907 ^ 8 * multiplier & MASK) ^ key
    mixed = mixed * multiplier & MASK
    mixed = (mixed ^ mixed >> 47) * multiplier & MASK
    return mixed ^ mixed >> 47


@given(st.integers(0, MASK))
def test_the_hash_is_undone(address: int) -> None:
    assert OURS["address_of"](hashed(address)) == address


def test_the_hash_is_that_of_the_library() -> None:
    # What JAX 0.10.2 numbered a thread whose pthread_t was this.
    assert hashed(0x7F4985C5EB80) == 0x3375095F617171C9


def segment(name: str) -> bytes:
    """One about this thread, one that has ended, and one that never was."""
    ended = threading.Thread(target=lambda: None)
    ended.start()
    address = ended.ident or 0
    ended.join()
    while Path(f"/proc/self/task/{ended.native_id}").exists():
        time.sleep(0.001)
    plane = Plane("/host:CPU")
    plane.line(hashed(threading.get_ident()), name, 1, plane.event("dot", 1, 2))
    plane.line(hashed(address), "gone/-7", 1, plane.event("dot", 1, 2))
    plane.line(hashed(64), name, 1)
    return message((1, plane.content()))


def test_a_thread_that_lives_is_found_by_its_number_and_its_name() -> None:
    mine = str(hashed(threading.get_ident()))
    name = Path("/proc/self/comm").read_text().strip()
    found = OURS["numbers_of_threads"]
    assert found(segment(name)) == {mine: threading.get_native_id()}
    assert found(segment(f"{name}/-12")) == {mine: threading.get_native_id()}


def test_what_a_handler_of_the_program_raises_meanwhile_is_not_taken_for_an_ended_thread() -> None:
    class OfProgramError(OSError):
        """What its handler raises."""

    def read(*_: object) -> bytes:
        raise OfProgramError

    def is_of_handler(error: BaseException) -> bool:
        return isinstance(error, OfProgramError)

    handed = {"faults": (HANDED[0], is_of_handler)}
    ours = runpy.run_path(str(FILE), handed)
    found = ours["numbers_of_threads"]
    found.__globals__["offset_of_number"] = lambda memory: 16
    found.__globals__["os"] = SimpleNamespace(**{**vars(os), "pread": read})
    with pytest.raises(OfProgramError):
        found(segment("python"))


def test_a_segment_that_is_none_raises_only_what_is_expected() -> None:
    whole = segment("python")
    for size in range(0, len(whole), 3):
        with suppress(LookupError, ValueError):
            assert len(OURS["numbers_of_threads"](whole[:size])) <= 1


@pytest.mark.parametrize("content", [b"", b"\x0a\x02\x1a\x00"])
def test_without_lines_there_is_no_thread(content: bytes) -> None:
    assert OURS["numbers_of_threads"](content) == {}
