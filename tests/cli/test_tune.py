"""`layerscope tune` on real programs: what it finds, what it says, how it goes on, and what it
refuses.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.cli import tune as tune_verb
from layerscope.tune import objective, output, progress, session, why
from layerscope.tune.measurement import Measurement
from layerscope.tune.race import Outcome
from layerscope.tune.setting import DEFAULT, Setting
from layerscope.tune.trial import Usual
from tests.attempts import once_in_three
from tests.quick_torch import WITHOUT_COMPILER
from tests.recorded import ROOT, layerscope
from tests.repeated import also, times

# Each run of the program leaves a line: how it was started.
WITNESS = """
import json, os, sys, time
told = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MALLOC_TRIM_THRESHOLD_")}
with open("runs", "a") as file:
    print(json.dumps([told, sorted(os.sched_getaffinity(0)), sys.argv[1:]]), file=file)
"""
BETTER = WITNESS + "time.sleep(0.02 if told['OMP_NUM_THREADS'] == '1' else 0.3)\nprint('done')\n"
SLEEPING = WITNESS + "time.sleep(0.2)\nprint('done')\n"
WAIT_S = 300


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OMP_", "KMP_", "MALLOC_", "GOMP_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def program(text: str, name: str = "a program.py") -> list[str]:
    Path(name).write_text(text)
    return [sys.executable, name]


def tune(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return layerscope("tune", *words, cwd=Path.cwd(), **more)


def rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["name"] for column in answer["columns"]]
    return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


def runs() -> list[Any]:
    return [json.loads(line) for line in Path("runs").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
@once_in_three
def test_a_setting_that_is_better_is_found_and_its_line_starts_the_program_like_that() -> None:
    done = tune(
        "--presets",
        "--budget",
        "1",
        "--json",
        "--html",
        "page.html",
        "--no-why",
        "--",
        *program(BETTER),
    )

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["command"], answer["table"]) == ("tune", "settings")
    table = rows(answer)
    default = next(row for row in table if row["setting"] == "default")
    (best,) = [row for row in table if row["state"] == "winner"]
    assert default["state"] == "default"
    assert "one-thread" in best["setting"] or len(os.sched_getaffinity(0)) == 1
    assert 0 < best["ratio"] < 0.98
    assert best["ratio_low"] <= best["ratio"] <= best["ratio_high"]
    assert answer["notes"][0].startswith(f"{best['setting']} is better: 0.")

    measured = [run for run in runs() if run[0]["OMP_NUM_THREADS"] == "1"]
    subprocess.run(
        ["/bin/sh", "-c", best["command"]], check=True, timeout=60, stdout=subprocess.DEVNULL
    )
    assert runs()[-1] in measured

    page = Path("page.html").read_text()
    assert page.count('<circle class="dot"') >= 6 + 2 * 5
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert [path.name for path in Path.cwd().iterdir()] != []
    assert sorted(path.name for path in Path.cwd().iterdir()) == [
        "a program.py",
        "page.html",
        "runs",
    ]
    assert "at most" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@once_in_three
@pytest.mark.stress
def test_a_program_that_only_sleeps_keeps_the_defaults() -> None:
    done = tune("--presets", "--budget", "0.3", "--", *program(SLEEPING))

    assert done.returncode == 0, done.stderr
    assert "No measurable difference: keep the defaults." in done.stdout
    assert "    env " not in done.stdout
    assert "the program runs again and again" in done.stderr
    assert "No steps are known: " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, *also([signal.SIGINT])])
def test_what_was_measured_is_not_measured_again(number: signal.Signals) -> None:
    words = ["--presets", "--budget", "0.3", "--no-why", "--objective", "wall"]
    script = program(SLEEPING)
    process = subprocess.Popen(
        [sys.executable, "-m", "layerscope", "tune", *words, "--journal", "kept", "--", *script],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + WAIT_S
    while not (Path("kept").exists() and len(Path("kept").read_text().splitlines()) > 4):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S)
    kept = Path("kept").read_text()
    resumed = ["tune", "--resume", "kept", *words, "--", *script]
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert re.search(r"^default +default +\d", out, re.MULTILINE)
        assert "No answer: it was ended by Ctrl-C before there was an answer." in out
        (line,) = re.findall(r"^layerscope: to go on: layerscope (.*)$", err, re.MULTILINE)
        assert sorted(shlex.split(line)) == sorted(resumed)
        resumed = shlex.split(line)
    before = len(runs())
    done = layerscope(*resumed, cwd=Path.cwd())

    assert done.returncode == 0, done.stderr
    whole = Path("kept").read_text()
    assert whole.startswith(kept[: kept.rfind("\n") + 1])
    # Two by default to begin with; then nothing that the journal has. Who is killed leaves one run
    # to end by itself.
    more = (
        len(runs())
        - before
        - (2 + len(whole.splitlines()) - len(kept[: kept.rfind("\n") + 1].splitlines()))
    )
    assert more == 0 or (more == 1 and number == signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
@once_in_three
@pytest.mark.stress
def test_values_of_an_option_of_the_program_are_tried() -> None:
    text = WITNESS + "print('rate', 40 if '--size=2' in sys.argv else 10, 'x')\n"
    done = tune(
        "--presets", "--budget", "1.2", "--no-why", "--vary", "--size={2,3}", "--metric", r"rate (\d+)",
        "--more-is-better", "--json", "--", *program(text), "--size=1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (best,) = [row for row in rows(json.loads(done.stdout)) if row["state"] == "winner"]
    assert "--size=2" in best["setting"]
    assert best["ratio"] == pytest.approx(4.0)
    assert best["value"] == 40
    assert "--size=2" in shlex.split(best["command"])
    assert "--size=1" not in best["command"]


@pytest.mark.slow
@pytest.mark.stress
def test_on_one_cpu() -> None:
    cpu = min(os.sched_getaffinity(0))
    command = [
        sys.executable,
        "-m",
        "layerscope",
        "tune",
        "--budget",
        "0.7",
        "-q",
        "--json",
        "--",
        *program(SLEEPING),
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=WAIT_S,
        check=False, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert not [row for row in rows(answer) if row["state"] == "winner"]
    assert all(run[1] == [cpu] for run in runs())


@pytest.mark.slow
@pytest.mark.timeout(900)
@once_in_three
@pytest.mark.stress
def test_what_changes_results_is_measured_and_never_wins() -> None:
    text = (
        WITNESS
        + "mode = os.environ.get('ONEDNN_DEFAULT_FPMATH_MODE')\ntime.sleep(0.05 if mode else 0.4)\nprint(mode)\n"
    )
    done = tune("--presets", "--budget", "1.2", "--what-if", "bf16,compile", "--", *program(text))
    assert done.returncode == 0, done.stderr
    assert "No measurable difference: keep the defaults." in done.stdout
    assert re.search(
        r"What if bf16: 0\.\d\d \[0\.\d\d, 0\.\d\d\] of the defaults\. It changes results: .*It prints something else: "
        r"line 1 of what it printed is 'BF16'",
        done.stdout,
    )
    assert (
        "compile cannot be tried from outside of the program. In its code: model = torch.compile(model)."
        in done.stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize("steps", [20, *also([0])])
def test_why_is_read_from_recordings_of_both(
    steps: int, program_python: str, native_agent: Path
) -> None:
    Path("train.py").write_text(
        WITHOUT_COMPILER
        + """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2704, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(8, 1, 28, 28)).sum().backward()
    optimizer.step()
"""
    )
    words = (program_python, "train.py", str(times(1_000_000, 500)) if steps else "50")
    wish = session.Wish(
        words,
        None,
        None,
        False,
        600.0,
        (),
        (),
        False,
        (),
        (),
        steps,
        False,
        None,
        None,
        0,
        True,
        True,
        (),
    )
    usual = Usual(
        (Measurement("default", -1, 10.0, 1.0, 1),),
        True,
        "optimizer",
        (),
        1,
        output.expected("", ""),
    )
    outcome = Outcome("faster", DEFAULT, (), None, ())
    tuned = session.Tuned(wish, objective.objective("cpu", True), usual, outcome, ())
    found = [
        session._recorded(tuned, one)
        for one in (DEFAULT, Setting("threads=1", {"OMP_NUM_THREADS": "1"}))
    ]

    for one in found:
        assert one.per_step
        assert one.dur_ns > 0
        assert (one.cpu_ns or 0) > 0
        assert one.reorder_ns is not None
    assert (found[1].spin_ns or 0.0) <= (found[1].cpu_ns or 0.0)
    assert all(sentence.endswith(".") for sentence in why.sentences(*found))
    assert [path.name for path in Path.cwd().iterdir()] == ["train.py"]


@pytest.mark.slow
def test_a_program_that_fails_is_refused_in_a_sentence() -> None:
    done = tune("--", *program("raise SystemExit('no data')"))
    assert done.returncode == 125
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "layerscope: the program fails without any setting: it ended with status 1: no data. "
        "It must end well to be tuned"
    )


def test_a_dry_run_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "tune",
        "--dry-run",
        "--budget",
        "5",
        "--vary",
        "--size={2}",
        "--",
        *program(WITNESS),
        "--size",
        "1",
    ]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert re.search(
        rf"as it is +{re.escape(shlex.join([*program(WITNESS), '--size', '1']))}$",
        printed,
        re.MULTILINE,
    )
    assert re.search(r"--size=2 .*--size 2$", printed, re.MULTILINE)
    assert "Nothing was run." in printed
    assert re.search(
        r"A budget of 5 min is enough .* when a run takes \S+ s or less: at least \d+ runs\.",
        printed,
    )
    assert not Path("runs").exists()

    assert cli.main([*words[:2], "--json", *words[2:]]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["table"] == "plan"
    assert rows(answer)[0]["setting"] == "default"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: PROGRAM"),
        (["--budget", "0", "true"], "--budget 0: give a number above 0"),
        (["--budget", "nan", "true"], "--budget nan: give a number above 0"),
        (["--steps", "1.5", "true"], "--steps 1.5: give a whole number above 0"),
        (["--seed", "-1", "true"], "--seed -1: give a whole number from 0 on"),
        (["--metric", "(", "--less-is-better", "true"], "is no regular expression"),
        (["--metric", "x", "true"], "add --more-is-better or --less-is-better"),
        (["--less-is-better", "true"], "are about a --metric"),
        (
            ["--metric", "x", "--less-is-better", "--objective", "wall", "true"],
            "there can be no --objective beside it",
        ),
        (["--objective", "speed", "--dry-run", "true"], "there is no objective 'speed'"),
        (["--vary", "batch=1", "true"], "does not begin with an option of the program"),
        (["--what-if", "magic", "true"], "--what-if magic: there are bf16"),
        (["--resume", "nothing", "true"], "--resume nothing: there is no such file"),
        (["--steps", "5", "--objective", "wall", "true"], "means nothing"),
        (["--steps", "5", "--metric", "x", "--less-is-better", "true"], "take one"),
        (["--resume", "a", "--journal", "b", "true"], "there can be no --journal beside it"),
        (["--html", "nowhere/a.html", "true"], "lies in a folder that does not exist"),
        (["nothing.py"], "there is no file nothing.py"),
    ],
)
def test_what_makes_no_sense_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tune", *words]) in (125, 127)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["--vary", "--a={1}", "-q", "x.py"], ["--vary=--a={1}", "-q", "x.py"]),
        (
            ["--budget", "5", "--vary", "-b={1}", "--", "x"],
            ["--budget", "5", "--vary=-b={1}", "--", "x"],
        ),
        (["x.py", "--vary", "--a"], ["x.py", "--vary", "--a"]),
        (["--", "x", "--vary", "--a"], ["--", "x", "--vary", "--a"]),
    ],
)
def test_an_option_may_follow_vary_and_the_words_of_the_program_stay(
    words: list[str], made: list[str]
) -> None:
    assert tune_verb.prepared(words) == made


def test_a_journal_that_exists_is_not_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    Path("kept").write_text("mine\n")
    assert cli.main(["tune", "--journal", "kept", "true"]) == 125
    assert "--journal kept exists already: go on with it by --resume" in capsys.readouterr().err
    assert Path("kept").read_text() == "mine\n"


def test_a_terminal_has_one_line_that_is_rewritten(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    teller = progress.Teller(quiet=False)
    teller.now("one")
    teller.now("two\x1b[31m")
    teller.say("three")
    teller.now("four")
    teller.done("")
    clear = progress._CLEAR
    assert capsys.readouterr().err == (
        f"{clear}layerscope: one{clear}layerscope: two\\x1b[31m{clear}layerscope: three\n{clear}layerscope: four{clear}"
    )
    progress.Teller(quiet=True).say("nothing")
    assert capsys.readouterr().err == ""
