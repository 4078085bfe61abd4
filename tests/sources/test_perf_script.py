"""The text of `perf script` in its shapes."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES
from layerscope.sources import known, perf_data, perf_script
from layerscope.sources.imported import Imported
from tests.sources.test_perf_data import GOLDEN, codes, column, stack_names
from tests.sources.test_perf_waits import waits_of

STACK = """\t    7f0000001234 inner(int, std::vector<int, std::allocator<int> > const&)+0x24 (/usr/lib/libone.so)
\t          401136 main+0x20 (/tmp/my program (deleted))

"""
NAMES = ["main", "inner"]


def read(tmp_path: Path, content: str | bytes) -> Imported:
    path = tmp_path / "stacks.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    head = path.read_bytes()
    found = [
        one.MEANING
        for one in known()
        if one.recognises(gzip.decompress(head) if head[:1] == b"\x1f" else head)
    ]
    assert found == [perf_script.MEANING]
    return perf_script.read(path)


# -- shapes ----------------------------------------------------------------------------------------

# A head, the name of its thread, the number of its process and its time in ns. Each is of thread
# 4242.
USUAL_NS = 5_076_100_000_000
HEADS = {
    "usual": ("python 4242 [003]  5076.100000:     250000 cpu-clock:ppp: ", "python", 4242, USUAL_NS),
    "no cpu": ("python  4242  5076.100000:     250000 cpu-clock: ", "python", 4242, USUAL_NS),
    "pid and tid": ("python 4200/4242 [003]  5076.1000004:     250000 cpu-clock:u: ", "python", 4200, USUAL_NS + 400),
    "nanoseconds": ("python 4242 [003]  5076.100000007:     250000 cpu-clock: ", "python", 4242, USUAL_NS + 7),
    "spaces": ("Web Content 7 x 4242 [003]  5076.100000:     250000 cpu-clock: ", "Web Content 7 x", 4242, USUAL_NS),
    "kernel": ("  kworker/u8:2-ev  4242 [003]  5076.100000:     250000 cpu-clock: ", "kworker/u8:2-ev", 4242, USUAL_NS),
    "no name": (" 4200/4242  5076.100000:     250000 cpu-clock: ", "", 4200, USUAL_NS),
    "flags": ("python 4242 [003] d..3.  5076.100000:     250000 cpu-clock: ", "python", 4242, USUAL_NS),
    "misc": ("python 4242 [003] K  5076.100000:     250000 cpu-clock: ", "python", 4242, USUAL_NS),
    "no time": ("python 4242 [003]     250000 cpu-clock: ", "python", 4242, 0),
    "name and number only": ("python  4242 ", "python", 4242, 0),
}  # fmt: skip


@pytest.mark.parametrize("shape", HEADS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_heads(tmp_path: Path, shape: str, newline: str) -> None:
    head, name, pid, at_ns = HEADS[shape]
    weight_ns = 250_000 if "cpu-clock" in head else 1
    content = read(tmp_path, ((head + "\n" + STACK) * 3).replace("\n", newline))
    assert [(track.name, track.tid) for track in content.tracks] == [(name, 4242)]
    assert [process.pid for process in content.processes] == [pid]
    assert column(content, "at_ns") == [at_ns] * 3
    assert column(content, "weight_ns") == [weight_ns] * 3
    assert stack_names(content) == [NAMES] * 3
    assert codes(content) <= {"no_times"}


def test_a_stack_of_every_kind_of_frame(tmp_path: Path) -> None:
    content = read(
        tmp_path,
        "python 42 [000] 1.000001:     100 cycles:P: "
        """
\tffffffff81000010 do_syscall_64+0x10 ([kernel.kallsyms])
\tffffffffc0000010 nf_hook+0x10 ([nf_conntrack])
\t    7ffd00000010 [unknown] ([vdso])
\t    7f0000000010 [unknown] (/usr/lib/libm.so.6)
\t    7f0000000020 [unknown] ([unknown])
\t    7f0000000030 short (inlined)
\t    7f0000000030 outer+0x1 (/usr/bin/x)
\t    7f0000000040 jit_kernel (/tmp/perf-42.map)
\t    7f0000000050 py::step:/srv/a/train.py (/tmp/perf-42.map)
\t    7f0000000060 nanosleep@GLIBC_2.2.5+0x1 (/usr/lib/libc.so.6)
\t    7f0000000070 lined (/usr/bin/x)
  x.c:17

""",
    )
    assert content.stacks is not None
    frames = content.stacks.frames
    rows = zip(*(frames[name] for name in ("layer", "name", "object", "file", "line")), strict=True)
    assert list(rows) == [
        ("kernel", "do_syscall_64", "[kernel.kallsyms]", None, None),
        ("kernel", "nf_hook", "[nf_conntrack]", None, None),
        ("native", "[vdso]", "[vdso]", None, None),
        ("native", "[libm.so.6]", "/usr/lib/libm.so.6", None, None),
        ("native", "[unknown]", "[unknown]", None, None),
        ("native", "short", None, None, None),
        ("native", "outer", "/usr/bin/x", None, None),
        ("native", "jit_kernel", "[jit]", None, None),
        ("python", "step", None, "/srv/a/train.py", None),
        ("native", "nanosleep", "/usr/lib/libc.so.6", None, None),
        ("native", "lined", "/usr/bin/x", "x.c", 17),
    ]
    assert [SAMPLE_STATES[state] for state in column(content, "state")] == ["kernel"]


def test_one_line_for_each_sample(tmp_path: Path) -> None:
    lines = """# ========
# cmdline : /usr/bin/perf record -F 50 sleep
            perf 24925 [000]  2440.000000:     1 cycles:P:  ffffffff813aa9c4 wake+0x3a4 ([kernel.kallsyms])
     migration/0    18 [000]  2440.020000:     1 cycles:P:      7f0000000010 [unknown] (/usr/lib/libm.so.6)
"""
    content = read(tmp_path, lines)
    assert stack_names(content) == [["wake"], ["[libm.so.6]"]]
    assert column(content, "weight_ns") == [20_000_000] * 2


def test_stacks_without_heads(tmp_path: Path) -> None:
    content = read(tmp_path, "\n" + STACK + STACK)
    assert stack_names(content) == [NAMES] * 2
    assert codes(content) == {"no_times"}


def test_events(tmp_path: Path) -> None:
    """Cycles are the CPU time, at the rate of the samples of a thread; faults are faults; the rest
    is not shown.
    """
    head = "w 42 [000] {at:.6f}:   {count} {event}: \n" + STACK
    events = [(1.0, 10, "cache-misses"), (1.0, 3000, "cycles:u"), (1.010, 3000, "cycles:u"), (1.020, 3000, "cycles:u"),
              (1.030, 5, "page-faults")]  # fmt: skip
    content = read(
        tmp_path,
        "".join(head.format(at=at, count=count, event=event) for at, count, event in events),
    )
    kinds = [SAMPLE_KINDS[kind] for kind in column(content, "kind")]
    assert kinds == ["cpu", "cpu", "cpu", "fault"]
    assert column(content, "weight_ns") == [10_000_000] * 3 + [0]
    assert column(content, "count") == [1, 1, 1, 5]
    assert "cache-misses (1)" in content.problems[0].what


# As the kernel prints a switch and a wake, and as the plugins of libtraceevent do.
LONG = (
    "prev_comm={0} prev_pid={1} prev_prio=120 prev_state={2} ==> next_comm={3} next_pid={4} next_prio=120",
    "comm={0} pid={1} prio=120 target_cpu=000",
)
SHORT = "{0}:{1} [120] {2} ==> {3}:{4} [120]", "{0}:{1} [120] success=1 CPU:000"


def switches(switch: str, wake: str) -> str:
    """Thread 10 sleeps from 1 to 2 s, 11 wakes it at 1.5 s; 11 loses its CPU to it and gets it back
    at 5 s.
    """
    switch, wake = f"sched:sched_switch: {switch}\n{STACK}", f"sched:sched_wakeup: {wake}\n{STACK}"
    lines = [
        "a 10 [000] 1.000000: " + switch.format("a", 10, "S", "b b", 11),
        "b b 11 [000] 1.500000: " + wake.format("a", 10),
        "b b 11 [000] 2.000000: " + switch.format("b b", 11, "R+", "a", 10),
        "swapper 0 [001] 5.000000: " + switch.format("swapper/1", 0, "R", "b b", 11),
    ]
    return "".join(lines)


@pytest.mark.parametrize("form", [LONG, SHORT])
def test_switches_are_waits(tmp_path: Path, form: tuple[str, str]) -> None:
    content = read(tmp_path, switches(*form))
    assert codes(content) == set()
    second = 1_000_000_000
    assert waits_of(content) == [
        (10, second, second, 0, 1, 11),
        (11, 2 * second, 3 * second, 1, 1, 0),
    ]
    assert stack_names(content) == [NAMES] * 2


def test_switches_that_do_not_say_whose_they_are(tmp_path: Path) -> None:
    """They are no waits; and they do not make that the others are all there are."""
    told = switches(*LONG).split("\n\n")[:3]
    content = read(tmp_path, "\n\n".join([*told, switches("who", "else")]))
    assert [wait[:2] for wait in waits_of(content)] == [(10, 1_000_000_000), (11, 2_000_000_000)]
    assert [wait[4] for wait in waits_of(content)] == [1, 0]
    assert codes(content) == {"perf_switches"}
    assert content.problems[0].what.startswith("of 4 switches and wakes")


def test_off_cpu_samples_are_as_long_as_they_say(tmp_path: Path) -> None:
    """Their time is the end of the wait; the sums of short ones have none, and are where the last
    sample is.
    """
    cpu = [f"a 10 23761.{at}00000:    1000000 cpu-clock:u: \n" + STACK for at in range(3)]
    long = "a 10 23761.050000:    5000000 offcpu-time: \n" + STACK
    content = read(tmp_path, "".join([*cpu, long]))
    assert waits_of(content) == [(10, 23_761_045_000_000, 5_000_000, 0, 1, 0)]
    assert codes(content) == set()
    sums = [f"a 10 18446744069.41458{at}:    {at}000000 offcpu-time: \n" + STACK for at in (4, 5)]
    content = read(tmp_path, "".join([*cpu, *sums]))
    assert waits_of(content) == [
        (10, 23_761_195_000_000, 5_000_000, 0, 1, 0),
        (10, 23_761_196_000_000, 4_000_000, 0, 1, 0),
    ]
    assert [problem.code for problem in content.problems] == ["perf_no_own_time"]
    assert column(content, "at_ns") == sorted(column(content, "at_ns"))
    assert stack_names(content) == [NAMES] * 5


def test_what_is_no_sample_is_counted(tmp_path: Path) -> None:
    record = "w 42 0.000000: PERF_RECORD_COMM exec: w:42/42\n"
    content = read(
        tmp_path, record + "w 42 1.000000:  9 cpu-clock: \n" + STACK + "Segmentation fault\n"
    )
    assert stack_names(content) == [NAMES]
    assert codes(content) == {"lines_rejected"}
    assert "Segmentation fault" in content.problems[0].what


# -- whole files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["file", "pipe"])
def test_text_and_data_tell_the_same(tmp_path: Path, name: str) -> None:
    """The same recording by two ways: times, threads and depths (names are known to perf alone)."""
    text, data = perf_script.read(GOLDEN / f"{name}.txt"), perf_data.read(GOLDEN / f"{name}.data")
    for content in (text, data):
        assert content.stacks is not None

    def told(content: Imported) -> Counter[tuple[int | None, int, int, int]]:
        tracks, stacks = content.tracks, stack_names(content)
        rows = zip(
            *(column(content, one) for one in ("track", "at_ns", "weight_ns", "kind")),
            stacks,
            strict=True,
        )
        return Counter(
            (tracks[track].tid, at, weight, len(stack))
            for track, at, weight, kind, stack in rows
            if kind == 0
        )

    assert told(text) == told(data)
    assert sum(told(text).values()) > 20


@pytest.mark.parametrize("chunk_bytes", [16, 100, 1000, 1 << 20])
def test_a_file_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    whole = perf_script.read(GOLDEN / "file.txt")
    monkeypatch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
    packed = tmp_path / "file.txt.gz"
    packed.write_bytes(gzip.compress((GOLDEN / "file.txt").read_bytes()))
    for path in (GOLDEN / "file.txt", packed):
        parts = perf_script.read(path)
        assert stack_names(parts) == stack_names(whole)
        assert column(parts, "at_ns") == column(whole, "at_ns")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.integers(0), st.binary(max_size=30))
def test_every_cut_and_damage_opens(tmp_path: Path, place: int, junk: bytes) -> None:
    whole = (GOLDEN / "file.txt").read_bytes()
    place %= len(whole)
    path = tmp_path / "cut.txt"
    path.write_bytes(whole[:place])
    times = column(perf_script.read(path), "at_ns")
    assert times == column(perf_script.read(GOLDEN / "file.txt"), "at_ns")[: len(times)]
    path.write_bytes(whole[:place] + junk + whole[place + len(junk) :])
    content = perf_script.read(path)
    assert len(stack_names(content)) == len(column(content, "at_ns"))


@pytest.mark.parametrize(
    "other",
    [
        "",
        "hello world\n",
        "Nov 22 08:15:01 host kernel: [   12.345678] usb 1-1: new device\n",
        "a;b 1\nc;d 2\n",
    ],
)
def test_other_texts_are_not_taken(other: str) -> None:
    assert not perf_script.recognises(other.encode())


def test_a_text_of_others() -> None:
    path = Path(os.environ.get("LAYERSCOPE_CORPUS", "")) / "perf_script" / "flamescope.perf.test01"
    if "LAYERSCOPE_CORPUS" not in os.environ or not path.exists():
        pytest.skip("LAYERSCOPE_CORPUS names no folder with this text of perf script")
    content = perf_script.read(path)
    assert len(stack_names(content)) == 9
    assert Counter(track.name for track in content.tracks) == {"java": 2, "swapper": 1}
    assert column(content, "weight_ns") == [round(1e9 / 49)] * 9


@pytest.mark.parametrize("number", [10**9, 2**31, 2**63, 10**30])
def test_a_thread_of_a_number_that_no_table_holds_is_a_line_that_is_not_understood(
    tmp_path: Path, number: int
) -> None:
    head, *_ = HEADS["usual"]
    heads = (head, head.replace("4242", str(number)), head.replace("4242", f"{number}/4242"))
    content = read(tmp_path, "".join(one + "\n" + STACK for one in heads))
    assert [track.tid for track in content.tracks] == [4242]
    assert "lines_rejected" in codes(content)
