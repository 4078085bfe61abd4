"""A program cannot tell whether it is recorded: awkward programs, each with and without us.

What is compared is listed in tests/programs/facts.py and tests/differential.py: everything that the
program prints, its status, the files it leaves, and all that it can see of itself. The stated
differences: the variables by which layerscope comes in, sys.meta_path, and the parent process.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.differential import PROGRAMS, Differential, Outcome, environment, launcher, program
from tests.repeated import also

QUICK = ("facts.py bare", "exit_status.py 3", "broken_torch.py ImportError")
HYPOT = {
    # program and arguments: how many times each of its processes called aten::hypot
    "facts.py": [100],
    "facts.py bare": [],
    "exit_status.py 3": [100],
    "exit_status.py os._exit": [100],
    "exit_status.py abort": [100],
    "exit_status.py SIGTERM": [100],
    "exit_status.py SIGKILL": [100],
    "exit_status.py SIGINT": [100],
    "raises_at_import.py": [1],
    "broken_torch.py ImportError": [],
    "broken_torch.py ValueError": [],
    "closes_all.py 0": [600],
    "closes_all.py 3": [600],
    "closes_streams.py": [100],
    "leaves_folder.py": [100],
    "forks.py middle": [50, 110],
    "forks.py open": [50, 110],
    "probes_first.py": [100],
    "threads.py 2000": [2001],
    "execs_itself.py 2": [10, 11, 12],
    "starts_processes.py fork": [10, 11, 100],
    "starts_processes.py spawn": [10, 11, 100],
    "starts_processes.py forkserver": [10, 11, 100],
    "starts_processes.py subprocess": [11, 100],
    "loads_data.py": [8, 8, 10],
    "deep.py": [7],
    "odd_optimizer.py": [3],
    "profiles_itself.py itt": [],
}


# Each of these differs from another one by its argument alone.
REPEATED = (
    "exit_status.py abort", "exit_status.py SIGTERM", "exit_status.py SIGINT", "broken_torch.py ValueError",
    "closes_all.py 3", "starts_processes.py spawn", "forks.py open", "profiles_itself.py itt",
    "exit_status.py os._exit", "starts_processes.py forkserver", "starts_processes.py subprocess",
    "leaves_folder.py", "closes_streams.py", "raises_at_import.py",
)  # fmt: skip
SLOWNESS = {words: [] for words in QUICK} | {words: [pytest.mark.stress] for words in REPEATED}


def only_numbers_differ(outcome: Outcome) -> Outcome:
    """Without the time and the process in the lines that torch itself logs."""
    return Outcome(
        outcome.status,
        outcome.stdout,
        re.sub(rb"(?m)^(USDT|W)(:\S+ |\d+ )\S+ \S+", rb"\1", outcome.stderr),
        outcome.files,
    )


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=SLOWNESS.get(words, [pytest.mark.slow])) for words in HYPOT]
)
def test_a_program_is_the_same_and_its_operators_are_counted(
    words: str, differential: Differential, program_python: str, native_agent: Path
) -> None:
    differential.normalise = only_numbers_differ

    differential.same(program(program_python, *words.split()))

    recorded = differential.recorded()
    assert recorded.per_process() == HYPOT[words]
    assert recorded.gaps() == ({"too_deep": 88} if words == "deep.py" else {})


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kineto", *also(["legacy"])])
def test_torchs_own_profiler_counts_the_same_and_ours_stays_complete(
    how: str, differential: Differential, program_python: str, native_agent: Path
) -> None:
    differential.normalise = only_numbers_differ

    outcome = differential.same(program(program_python, "profiles_itself.py", how))

    recorded = differential.recorded()
    theirs = dict(
        line.rsplit(" ", 1)
        for line in outcome.stdout.decode().splitlines()
        if line.startswith("aten::")
    )
    assert theirs
    # The program computes one more loss after its profiler has ended, and makes its weights before.
    assert all(recorded.count(name) >= int(count) for name, count in theirs.items())
    assert recorded.count("aten::mm") == int(theirs["aten::mm"])
    assert recorded.count("forward") == 5
    assert recorded.gaps() == {}


@pytest.mark.parametrize(
    "options",
    [
        *(["-I"], ["-S"], ["-I", "-S"], ["-OO"], ["-W", "error"], ["-X", "dev"]),
        *also(
            [
                ["-E"],
                ["-B"],
                ["-P"],
                ["-O"],
                ["-s"],
                ["-u"],
                ["-X", "utf8"],
                ["-X", "no_debug_ranges"],
            ]
        ),
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_an_option_of_python_changes_nothing(
    options: list[str], differential: Differential, program_python: str, native_agent: Path
) -> None:
    """Without torch: it warns and fails under some of them. -S keeps our folder on sys.path: the
    stated difference.
    """
    command = program(program_python, "facts.py", "bare", options=options)
    hidden = "-S" in options and "-I" not in options
    if hidden:
        door = str(differential.recording / "raw" / "door").encode()
        ours = re.compile(rb',\n *"%s"(?=,?\n)' % door)
        differential.normalise = lambda o: Outcome(o.status, ours.sub(b"", o.stdout), o.stderr, {})

    differential.same(command)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-S"]], ids=" ".join)
def test_a_python_that_keeps_us_out_is_told_so(
    options: list[str], differential: Differential, program_python: str, native_agent: Path
) -> None:
    code = "import sys; sys.path.append(sys.argv[1])\nimport facts; print(facts.os.getcwd())"

    differential.same([program_python, *options, "-c", code, str(PROGRAMS)])

    assert (
        "-I, -E and -S" in differential.recorded().rows("SELECT remedy FROM problems")[0]["remedy"]
    )


COMMANDS = {
    "true": ["/bin/true"],
    "a name on PATH": ["false"],
    "a shell": ["/bin/sh", "-c", "echo out; echo err >&2; ulimit -a; umask; exit 4"],
    # SigQ counts what waits for all processes of the user.
    "the shell's signals": ["/bin/sh", "-c", "grep '^Sig[^Q]' /proc/self/status; kill -s USR1 $$"],
    "many arguments": [
        "/bin/echo",
        "--",
        "-q",
        "",
        "a b",
        "--",
        "-o",
        "x\ny",
        b"\xff\xfe",
        "--help",
    ],
    "an option like ours": ["/bin/echo", "-o", "other", "-q", "--version"],
    "-c": ["PYTHON", "-c", "import sys; print(sys.argv, sys.path, __name__)", "--", "a"],
    "-m": ["PYTHON", "-m", "json.tool", "--help"],
    "a shell that starts Python": [
        "/bin/sh",
        "-c",
        'x=1; "$0" -c "import sys; print(sys.argv)" "$@"; echo $?',
        "PYTHON",
        "y",
    ],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_any_command_is_the_same(
    name: str, differential: Differential, program_python: str
) -> None:
    differential.same([program_python if word == "PYTHON" else word for word in COMMANDS[name]])


@pytest.mark.slow
def test_a_program_from_standard_input(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nfrom facts import show, work\nwork(9)\nshow()\n"
    without = differential.run([program_python, "-", "a"], stdin=_file(differential, code))
    with_us = differential.record([program_python, "-", "a"], stdin=_file(differential, code))

    assert with_us == without
    assert differential.recorded().per_process() == [9]


def _file(differential: Differential, text: str) -> int:
    path = differential.work.parent / "stdin"
    path.write_text(text)
    return os.open(path, os.O_RDONLY)


@pytest.mark.slow
def test_a_compiled_program(differential: Differential, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        "#include <stdio.h>\nint main(int n, char **a) { puts(a[n - 1]); return n; }\n"
    )
    built = subprocess.run(
        ["cc", "-o", tmp_path / "program", source], capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip("no C compiler")

    assert differential.same([str(tmp_path / "program"), "x"]).status == 2


def test_a_script_without_an_interpreter_line_runs_in_a_shell(differential: Differential) -> None:
    def prepare(work: Path) -> None:
        (work / "script").write_text('echo "$0" "$@"; exit 6\n')
        (work / "script").chmod(0o755)

    differential.prepare = prepare
    with_us = differential.record(["./script", "a", "b c"])

    assert (with_us.status, with_us.stdout) == (6, b"./script a b c\n")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["./missing"], 127, "cannot run ./missing: No such file or directory"),
        (["missing-command"], 127, "cannot run missing-command: No such file or directory"),
        (["missing.py"], 127, "there is no file missing.py"),
        (["./plain"], 126, "cannot run ./plain: Permission denied"),
        (["."], 126, "cannot run .: Permission denied"),
        (["./noise"], 126, "cannot run ./noise: Exec format error"),
    ],
)
def test_a_program_that_cannot_be_started(
    words: list[str], status: int, said: str, differential: Differential
) -> None:
    def prepare(work: Path) -> None:
        (work / "plain").write_text("")
        (work / "noise").write_bytes(b"\x7fELF" + bytes(60))
        (work / "noise").chmod(0o755)

    differential.prepare = prepare
    outcome = differential.record(words, quiet=False)

    assert outcome.status == status
    assert outcome.stderr.decode().splitlines()[-1] == f"layerscope: {said}"
    assert not differential.recording.exists()


KINDS = ("sitecustomize", "usercustomize")
CUSTOMIZE = {
    "prints": "print('own sitecustomize', __name__, __file__)\nimport sys\nsys.own = 1\n",
    "raises": "raise ValueError('own')\n",
    "lacks something": "import there_is_no_such_module\n",
    "ends the program": "import sys\nsys.exit(3)\n",
    "imports torch": "import torch\n",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *(("sitecustomize", what) for what in ("prints", "ends the program", "imports torch")),
        ("usercustomize", "prints"),
        *also(("usercustomize", what) for what in ("ends the program", "imports torch")),
        *also((kind, what) for kind in KINDS for what in ("raises", "lacks something")),
    ],
)
def test_the_programs_own_customize_runs(
    kind: str, what: str, differential: Differential, program_python: str, native_agent: Path
) -> None:
    """By a shell that sets PYTHONPATH for the program alone: else it would be that of our own
    Python too.
    """
    path = differential.work.parent / "own"
    path.mkdir()
    (path / f"{kind}.py").write_text(CUSTOMIZE[what])
    # A sitecustomize that ends the program shows the one line of ours that imported it.
    ours = re.compile(rb'  File "[^"]*/raw/door/sitecustomize.py".*\n.*\n.*\n')
    differential.normalise = lambda o: Outcome(o.status, o.stdout, ours.sub(b"", o.stderr), o.files)
    code = f"import sys; print(sys.modules.get({kind!r}), getattr(sys, 'own', 0), sys.path)"
    script = 'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$1"; export PYTHONDONTWRITEBYTECODE=1; "$0" -c "$2"'

    differential.same(["/bin/sh", "-c", script, program_python, str(path), code])


@pytest.mark.slow
def test_our_own_processes_import_nothing_of_the_programs(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    """Files of the user called as modules of ours, in the working directory and on PYTHONPATH."""
    names = (
        "numpy",
        "pyarrow",
        "queue",
        "struct",
        "msgspec",
        "duckdb",
        "secrets",
        "sqlite3",
        "psutil",
        "resource",
    )

    def prepare(work: Path) -> None:
        for folder in (work, work / "path"):
            folder.mkdir(exist_ok=True)
            for name in names:
                (folder / f"{name}.py").write_text(
                    "raise SystemExit('this is not yours to import')"
                )

    differential.prepare = prepare
    differential.same(
        [program_python, "-c", "print(1)"],
        env=environment(PYTHONPATH=str(differential.work / "path")),
    )

    assert differential.recorded().run.info.state == "finished"
    assert differential.recorded().problems() == {}  # its stacks are there


def check_nothing_kept(differential: Differential) -> None:
    """No file of the recording holds the secret."""
    for path in differential.recording.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path


@pytest.mark.slow
def test_a_command_line_that_is_no_utf8_and_holds_a_secret(
    differential: Differential, program_python: str
) -> None:
    code = "import json, pathlib, sys; print(json.loads(pathlib.Path(sys.argv[1]).read_text())['command'][3:])"
    words = [
        str(differential.recording / "run.json"),
        "--api-token",
        "hunter2",
        "PASSWORD=hunter2",
        b"caf\xe9",
    ]

    outcome = differential.record([program_python, "-c", code, *words])

    assert outcome.status == 0
    assert b"hunter2" not in outcome.stdout
    assert b"***" in outcome.stdout
    check_nothing_kept(differential)


@pytest.mark.slow
def test_secrets_are_masked_in_processes_too(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    differential.record([*program(program_python, "facts.py"), "--api-token", "hunter2"])

    argv = differential.recorded().rows("SELECT argv FROM processes")
    assert ["--api-token ***" in row["argv"] for row in argv].count(True) == 1
    check_nothing_kept(differential)


@pytest.mark.slow
def test_an_environment_in_which_our_own_libraries_could_not_be_imported(
    differential: Differential, old_numpy_python: str, native_agent: Path
) -> None:
    differential.same(program(old_numpy_python, "facts.py"))

    assert differential.recorded().per_process() == [100]


@pytest.mark.slow
def test_the_python_of_the_active_environment_runs_a_bare_file(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    variables = environment(VIRTUAL_ENV=str(Path(program_python).parent.parent))

    without = differential.run(program(program_python, "facts.py"), env=variables)
    with_us = differential.record([str(PROGRAMS / "facts.py")], env=variables)

    assert with_us == without
    assert differential.recorded().per_process() == [100]


@pytest.mark.slow
def test_only_our_own_lines_are_added_to_stderr(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    command = program(program_python, "exit_status.py", "3")

    without = differential.run(command)
    with_us = differential.record(command, quiet=False)

    first, _, rest = with_us.stderr.partition(b"\n")
    assert first.startswith(b"layerscope: recording ")
    assert rest.startswith(without.stderr + b"\nlayerscope: ")
    assert (with_us.stdout, with_us.status) == (without.stdout, 3)


def test_two_dashes_are_only_ours_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [*launcher(tmp_path), "run", "-q", "--", "/bin/echo", "a", "--", "b"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (b"a -- b\n", b"")
