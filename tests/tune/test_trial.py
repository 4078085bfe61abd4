"""Real programs, run once under a setting: what they take, how they fail, and that nothing of them
is left.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.model.errors import RunError, UsageError
from layerscope.tune import guard, supervised, tree, trial
from layerscope.tune.measurement import FAILED, HUNG, MEMORY, OTHER_OUTPUT
from layerscope.tune.setting import DEFAULT, Setting
from layerscope.tune.trial import TrialOptions, Trials
from tests.quick_torch import WITHOUT_COMPILER

pytestmark = pytest.mark.slow
MODE = "TRIAL_MODE"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "LIMIT_MORE_S", 1.0)


def python(text: str, *arguments: str, budget_s: float = 120.0, **more: object) -> Trials:
    """Trials of a program of ours, which must not be Python with torch to be run."""
    path = Path("a program.py")
    path.write_text("import os, sys, time\nmode = os.environ.get('TRIAL_MODE', '')\n" + text)
    return Trials(TrialOptions((sys.executable, str(path), *arguments), budget_s, **more))  # type: ignore[arg-type]


def setting(mode: str) -> Setting:
    return Setting(mode, {MODE: mode})


def left_behind(trials: Trials) -> list[int]:
    """Processes of these trials that are still there."""
    return tree.marked(supervised.MARK, trials._token)


def test_the_whole_tree_is_measured() -> None:
    trials = python(
        """
import subprocess
burn = "import time; end = time.process_time() + 0.4; block = bytearray(120 << 20)\\nwhile time.process_time() < end: 0"
children = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2)]
if mode != "leaves them":
    for child in children:
        child.wait()
    time.sleep(0.1)
else:
    time.sleep(1.5)  # they end before it does, and nobody waits for them
"""
    )
    usual = trials.usual()
    found = trials(setting("leaves them"), 1)

    for one in (*usual.measurements, found):
        assert not one.fault, one.why
        assert one.cpu_s >= 0.8
        assert one.rss_bytes >= 2 * (120 << 20)
        assert one.wall_s >= 0.4
    assert not usual.has_steps
    assert usual.unseen
    assert any(path.endswith(".so") or ".so." in path for path in usual.libraries)


def test_a_program_that_takes_50_ms() -> None:
    trials = python("print('hello')")
    trials.usual()
    found = trials(DEFAULT, 1)
    assert (found.fault, found.status) == ("", 0)
    assert found.cpu_s > 0  # its memory may be looked at once only, before it has begun


def test_a_program_that_fails_is_not_tuned() -> None:
    with pytest.raises(
        RunError, match=r"fails without any setting: it ended with status 3: oh dear"
    ):
        python("sys.exit(print('oh dear', file=sys.stderr) or 3)").usual()


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(RunError, match=r"cannot run \./nothing here"):
        Trials(TrialOptions(("./nothing here",), 60.0)).usual()


@pytest.mark.parametrize(
    ("mode", "fault", "why"),
    [
        ("fails", FAILED, r"it ended with status 7: no such thing"),
        ("crashes", FAILED, r"it was ended by SIGSEGV"),
        (
            "says nan",
            OTHER_OUTPUT,
            r"line 2 of what it printed is 'loss nan', by default it is like 'loss 0.25'",
        ),
        ("says less", OTHER_OUTPUT, r"it printed 1 line, by default 2 lines"),
        ("another number", OTHER_OUTPUT, r"line 2"),
        ("another rounding", "", ""),
        ("", "", ""),
    ],
)
def test_what_a_setting_breaks_is_disqualified(mode: str, fault: str, why: str) -> None:
    trials = python(
        """
if mode == "fails":
    sys.exit(print("no such thing", file=sys.stderr) or 7)
if mode == "crashes":
    os.kill(os.getpid(), 11)
print("took", time.time(), "s")
told = {"says nan": "loss nan", "says less": "", "another number": "loss 0.75", "another rounding": "loss 0.2501"}
if mode != "says less":
    print(told.get(mode, "loss 0.25"))
"""
    )
    usual = trials.usual()
    found = trials(setting(mode) if mode else DEFAULT, 1)

    assert usual.expected.is_compared
    assert found.fault == fault, found
    assert re.search(why, found.why)


def test_a_program_that_prints_differently_each_time_is_said() -> None:
    trials = python("print('.', file=open('runs', 'a'))\nprint(open('runs').read())")
    usual = trials.usual()
    assert not usual.expected.is_compared
    assert usual.notes == (
        "The program prints differently each time, so what it printed under other settings was not compared.",
    )
    assert not trials(setting("more"), 1).fault


@pytest.mark.parametrize("stubborn", [False, True], ids=["ends when told", "ignores SIGTERM"])
def test_a_run_that_hangs_is_ended(stubborn: bool) -> None:
    trials = python(
        f"""
import signal, subprocess
if {stubborn}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "hangs":
    subprocess.Popen(["sleep", "300"])
    time.sleep(300)
"""
    )
    trials.usual()
    found = trials(setting("hangs"), 1)
    assert found.fault == HUNG
    assert re.fullmatch(r"it did not end within \d+ s", found.why)
    assert left_behind(trials) == []


def test_a_program_that_hangs_by_default_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = python("time.sleep(300)", budget_s=2.0)
    with pytest.raises(
        RunError, match=r"did not end within 1 s, a quarter of the budget: give it more \(--budget"
    ):
        trials.usual()
    assert left_behind(trials) == []


def test_a_daemon_ends_with_the_run_and_its_cpu_time_counts() -> None:
    trials = python(
        """
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(3):
        os.close(number)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    time.sleep(300)
os.wait()
time.sleep(1.5)
"""
    )
    usual = trials.usual()
    assert usual.measurements[0].cpu_s >= 0.3
    assert left_behind(trials) == []


def test_a_setting_that_eats_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = python(
        """
kept = []
for _ in range(200 if mode == "eats" else 1):
    kept.append(bytearray(b"x") * (16 << 20))
    time.sleep(0.01)
time.sleep(20 if mode == "eats" else 0)
"""
    )
    usual = trials.usual()
    monkeypatch.setattr(trial, "LIMIT_MORE_S", 120.0)
    monkeypatch.setattr(
        guard, "made", lambda usual_bytes: guard.Guard(usual_bytes + (400 << 20), 0, 1 << 60)
    )
    found = trials(setting("eats"), 1)
    assert found.fault == MEMORY
    assert found.rss_bytes > usual.rss_bytes + (400 << 20)
    assert re.fullmatch(r"it was ended when it held \d\.\d\d GB: memory ran short", found.why)


def test_twice_the_usual_memory_is_too_much_where_memory_is_short() -> None:
    one = guard.Guard(most_bytes=10_000, usual_bytes=1_000, short_bytes=500)
    assert not one.objects_to(2_001, lambda: (600, 10_000))
    assert one.objects_to(2_001, lambda: (400, 10_000))
    assert not one.objects_to(1_999, lambda: (400, 10_000))
    assert not one.objects_to(2_001, lambda: None)
    # Its processes may share what they hold.
    assert not one.objects_to(10_001, lambda: (600, 10_000))
    first = guard.Guard(most_bytes=10_000, short_bytes=500)
    assert first.objects_to(10_001, lambda: (400, 10_000))
    assert not first.objects_to(9_999, lambda: (400, 10_000))
    assert not guard.Guard().objects_to(1 << 60, lambda: (0, 1))


def test_a_program_that_reads_gets_nothing_to_read() -> None:
    trials = python("print(repr(sys.stdin.read()))")
    usual = trials.usual()
    assert usual.expected.difference("''\n") == ""


def test_what_a_metric_finds_counts() -> None:
    metric = re.compile(r"speed ([\d.]+)")
    trials = python(
        "print('' if mode == 'silent' else f'speed {12.5 if mode else 10}')", metric=metric
    )
    usual = trials.usual()
    assert usual.measurements[0].metric == 10.0
    found = trials(setting("faster"), 1)
    assert (found.metric, found.fault) == (12.5, "")
    silent = trials(setting("silent"), 2)
    assert (silent.metric, silent.fault) == (None, FAILED)

    with pytest.raises(
        UsageError, match=r"--metric 'nothing' finds no number in what the program prints"
    ):
        python("print(1)", metric=re.compile("nothing")).usual()


def test_steps_that_are_not_there_cannot_be_waited_for() -> None:
    with pytest.raises(UsageError, match="--steps 10: no steps of the program are known"):
        python("time.sleep(0.1)", stop_after=10).usual()


def test_bytes_that_are_no_text_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "tr_TR.ISO8859-9")
    trials = python(
        r"sys.stdout.buffer.write(b'gr\xfc\xdfe ' + (b'1,5' if mode else b'\xff') + b'\n')"
    )
    trials.usual()
    assert not trials(DEFAULT, 1).fault
    assert trials(setting("other"), 2).fault == OTHER_OUTPUT


def test_when_the_supervisor_is_killed_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = python(
        """
if mode == "kills it":
    import signal
    if not os.fork():
        time.sleep(300)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(300)
"""
    )
    trials.usual()
    with pytest.raises(RunError, match="what watches over the program ended early"):
        trials(setting("kills it"), 1)
    end = time.monotonic() + 10
    while left_behind(trials) and time.monotonic() < end:
        time.sleep(0.05)
    assert left_behind(trials) == []


def test_only_what_we_started_is_ever_ended() -> None:
    ours = os.getpid()
    trials = python("print(os.environ['LAYERSCOPE_TRIAL'])")
    trials.usual()
    assert ours not in tree.below([ours])[1:]
    assert left_behind(trials) == []


@pytest.mark.parametrize(
    "before", ["", "libdl.so.2"], ids=["nothing preloaded", "something preloaded"]
)
def test_the_line_starts_the_program_as_the_trial_did(
    before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", before) if before else monkeypatch.delenv(
        "LD_PRELOAD", raising=False
    )
    cpu = min(os.sched_getaffinity(0))
    trials = python(
        """
import json
names = ("OMP_NUM_THREADS", "GLIBC_TUNABLES", "LD_PRELOAD")
told = {name: os.environ.get(name) for name in names}
with open("told", "a") as file:
    print(json.dumps([told, sys.argv, sorted(os.sched_getaffinity(0))]), file=file)
""",
        "--size", "1", "it's",
    )  # fmt: skip
    trials.usual()
    one = Setting(
        "all of it", {"OMP_NUM_THREADS": "3", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, ("libm.so.6",),
        ("taskset", "-c", str(cpu)), {"--size": "2"},
    )  # fmt: skip
    assert not trials(one, 1).fault
    subprocess.run(["/bin/sh", "-c", one.line(trials.asked.program)], check=True, timeout=60)
    *_, default, measured, pasted = Path("told").read_text().splitlines()
    assert measured == pasted != default
    told, argv, cpus = json.loads(measured)
    assert told["LD_PRELOAD"] == ":".join(filter(None, ["libm.so.6", before]))
    assert (argv[1:], cpus) == (["--size", "2", "it's"], [cpu])


# -- steps -----------------------------------------------------------------------------------------

TRAINING = (
    WITHOUT_COMPILER
    + """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).sum()
    loss.backward()
    time.sleep(0.02)
    optimizer.step()
print("loss", round(loss.item(), 3))
"""
)
SERVING = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.02)
        return model(x)
slow = Slow()
with torch.inference_mode():
    for request in range(40):
        slow(torch.ones(4, 8))
        time.sleep(0.01)  # the next request has not come yet
"""
LOADING = """
import torch
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, place):
        return torch.full((2,), float(place))
for epoch in range(2):
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=1):
        time.sleep(0.01)
    time.sleep(0.5)  # belongs to no step
"""


def with_torch(program_python: str, text: str, *arguments: str, **more: object) -> Trials:
    path = Path("train it.py")
    path.write_text("import sys, time\n" + text)
    return Trials(TrialOptions((program_python, str(path), *arguments), 240.0, **more))  # type: ignore[arg-type]


def test_steps_of_a_training_are_timed(program_python: str, native_agent: Path) -> None:
    trials = with_torch(program_python, TRAINING, "30")
    usual = trials.usual()
    found = trials(Setting("threads=1", {"OMP_NUM_THREADS": "1"}), 1)

    assert (usual.has_steps, usual.rule, usual.unseen) == (True, "optimizer", "")
    # Step 0 has no begin, and at least one of the others is warm-up.
    assert 20 <= found.steps <= 28
    for value in (found.step_mean_ns, found.step_p50_ns, found.step_p99_ns):
        assert value >= 20e6
    assert found.step_cpu_ns > 0
    assert found.step_p50_ns <= found.step_p99_ns
    assert any("libtorch_cpu" in path for path in usual.libraries)


def test_a_request_ends_where_its_call_returns(program_python: str, native_agent: Path) -> None:
    found = with_torch(program_python, SERVING).usual().measurements[-1]
    assert found.steps >= 30
    # Sleeps are only ever longer. With the pause between requests it would be 30 ms and more.
    assert 20e6 <= found.step_p50_ns < 30e6


def test_what_lies_between_two_epochs_is_in_no_step_of_a_loader(
    program_python: str, native_agent: Path
) -> None:
    usual = with_torch(program_python, LOADING).usual()
    assert usual.rule == "loader"
    found = usual.measurements[-1]
    assert 30 <= found.steps <= 39
    assert found.step_p50_ns >= 10e6
    assert found.step_p99_ns < 400e6


def test_a_long_training_is_ended_after_some_steps(program_python: str, native_agent: Path) -> None:
    trials = with_torch(program_python, TRAINING, "100000", stop_after=20)
    usual = trials.usual()
    found = trials(DEFAULT, 1)

    assert found.is_cut
    assert not found.fault, found.why
    assert 20 <= found.steps < 1000
    assert usual.notes == (
        "What the program printed was not compared: each run was ended after some steps.",
    )
    assert left_behind(trials) == []
