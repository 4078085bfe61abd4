"""`run --layers +verbose,+mkl`: the program's output stays what it is, and its primitives are
recorded.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.capture.verbose_tap import Filter
from layerscope.ingest.open import open_run
from tests.cli.test_run_signals import counts, terminal
from tests.differential import Differential, environment, program
from tests.quick_torch import WITHOUT_COMPILER
from tests.recorded import Recorded, layerscope

VERBOSE = ["--layers", "+verbose"]
TENSORS = "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0"
LINE = f"onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,{TENSORS},,,4x4,0.5"
TIMEOUT_S = 60
# Prints the facts that a program can see of its output, and lines of the log among its own.
PROGRAM = f"""
import os, stat, sys
out = os.fstat(1)
kind = [name for name in ("CHR", "REG", "FIFO") if getattr(stat, "S_IS" + name)(out.st_mode)]
size = tuple(os.get_terminal_size(1)) if os.isatty(1) else ""
print(kind, os.isatty(1), sys.stdout.line_buffering, size, os.get_blocking(1), flush=True)
print("progress 10%", end="", flush=True)
os.write(1, b"{LINE}\\n")
print("\\rprogress 20%", flush=True)
print("on stderr", file=sys.stderr, flush=True)
os.write(1, b"one")
os.write(1, b"dnn is no marker, nor is onednn_verbos\\n" + bytes(range(256)))
for number in range(2000):
    os.write(1, b"row %d\\n{LINE}\\n" % number)
print("last line without an end: mkldnn_verb", end="", flush=True)
"""


# -- the filter ------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 400), max_size=20))
def test_however_the_bytes_come_the_same_passes(cuts: list[int]) -> None:
    text = f"a{LINE}\nbonednn_{LINE}\nmkldnn_verbose,info,x\n\n\r 5%dnnl_verbose,exec,1\nend onednn_verb".encode()
    filtered, passed, lines, at = Filter(), b"", [], 0
    for length in [*cuts, len(text)]:
        some, found = filtered.feed(text[at : at + length])
        passed, lines, at = passed + some, lines + found, at + length
    some, found = filtered.finish()

    assert passed + some == b"abonednn_\n\r 5%end onednn_verb"
    assert lines + found == [
        LINE.encode(),
        LINE.encode(),
        b"mkldnn_verbose,info,x",
        b"dnnl_verbose,exec,1",
    ]


def test_a_line_that_is_cut_is_none_of_the_programs() -> None:
    filtered = Filter()
    assert filtered.feed(b"x\nonednn_verbose,v1,prim") == (b"x\n", [])
    assert filtered.finish() == (b"", [b"onednn_verbose,v1,prim"])


def test_an_endless_line_is_no_line_of_the_log() -> None:
    filtered = Filter()
    text = b"onednn_verbose," + b"x" * (1 << 21)
    assert filtered.feed(text) == (text, [])


# -- the program's output --------------------------------------------------------------------------


@pytest.fixture
def differential(tmp_path: Path) -> Differential:
    one = Differential(tmp_path)
    recorder = one.recorder
    one.recorder = lambda quiet=True: [*recorder(quiet)[:-1], *VERBOSE, "--"]  # type: ignore[method-assign]
    one.normalise = lambda outcome: type(outcome)(
        outcome.status,
        outcome.stdout.replace(LINE.encode() + b"\n", b""),
        outcome.stderr,
        outcome.files,
    )
    return one


def test_a_pipe_stays_a_pipe(differential: Differential, program_python: str) -> None:
    outcome = differential.same([program_python, "-c", PROGRAM])
    assert outcome.stdout.startswith(b"['FIFO'] False False")
    assert outcome.stdout.count(b"row ") == 2000
    log = gzip.decompress((differential.recording / "raw" / "verbose.gz").read_bytes())
    assert log.count(LINE.encode() + b"\n") == 2001


def test_both_streams_into_one_pipe_keep_their_order(
    differential: Differential, program_python: str
) -> None:
    outcome = differential.same([program_python, "-c", PROGRAM], stderr=subprocess.STDOUT)
    assert b"progress 20%\non stderr\nonednn is no marker" in outcome.stdout


def test_a_closed_pipe_ends_the_program(
    differential: Differential, tmp_path: Path, program_python: str
) -> None:
    text = "import time\nwhile True:\n    print('x' * 999, flush=True)\n    time.sleep(0.001)\n"
    statuses = []
    for recorder in ([], differential.recorder()):
        with subprocess.Popen(
            [*recorder, program_python, "-c", text],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(),
        ) as process:  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            statuses.append(process.wait(TIMEOUT_S))
    assert statuses[0] == statuses[1] != 0


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_file_stays_a_file(
    differential: Differential, tmp_path: Path, program_python: str, mode: str
) -> None:
    text = (
        PROGRAM
        + "import fcntl\nprint(os.lseek(1, 0, 1) > 5, bool(fcntl.fcntl(1, 3) & os.O_APPEND))\n"
    )
    texts = []
    for recorder in ([], differential.recorder()):
        path = tmp_path / f"out{len(texts)}"
        path.write_bytes(b"before\n")
        with path.open(mode) as out:
            out.write(b"already\n")
            out.flush()
            done = subprocess.run(
                [*recorder, program_python, "-c", text],
                stdout=out, stderr=subprocess.PIPE, env=environment(), timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            os.write(out.fileno(), b"after\n")
        assert (done.returncode, done.stderr) == (0, b"on stderr\n")
        texts.append(path.read_bytes())
    assert texts[1] == texts[0].replace(LINE.encode() + b"\n", b"")
    assert texts[1].endswith(b"after\n")
    assert not (differential.recording / "raw" / "stdout").exists()


@pytest.mark.parametrize("is_piped", [False, True], ids=["file", "pipe"])
def test_what_a_daemon_prints_later_arrives(
    differential: Differential, tmp_path: Path, program_python: str, is_piped: bool
) -> None:
    go = tmp_path / "go"
    text = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        f"    end = time.monotonic() + {TIMEOUT_S}\n"
        f"    while not os.path.exists({str(go)!r}) and time.monotonic() < end:\n        time.sleep(0.05)\n"
        "    os.write(1, b'later\\n')\n    os._exit(0)\n"
        "os.write(1, b'now\\n')\nos._exit(3)\n"
    )
    path = tmp_path / "out"
    with path.open("wb") as out:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out) if is_piped else None
        command = [*differential.recorder(), program_python, "-c", text]
        with subprocess.Popen(
            command, stdout=reader.stdin if reader else out, env=environment()
        ) as process:
            assert process.wait(TIMEOUT_S) == 3
        if reader and reader.stdin:
            reader.stdin.close()
        assert wait_for(path, b"now\n") == b"now\n"
        go.touch()
        assert wait_for(path, b"now\nlater\n") == b"now\nlater\n"
        if reader:
            assert reader.wait(TIMEOUT_S) == 0


def wait_for(path: Path, content: bytes) -> bytes:
    """What is in a file when it has this content, or after a while."""
    end = time.monotonic() + TIMEOUT_S
    while path.read_bytes() != content and time.monotonic() < end:
        time.sleep(0.05)
    return path.read_bytes()


def in_terminal(
    command: list[str], size: tuple[int, int], resize: tuple[int, int] | None = None
) -> tuple[int, bytes]:
    """The status of a command in a terminal of its own, with its controlling terminal, and what the
    terminal showed.
    """
    pid, master = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        os.execvpe(command[0], command, environment())
    shown = b""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        shown += data
        if resize and b"resize me" in shown:
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *resize, 0, 0))
            resize = None
        if not data:
            break
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return os.waitstatus_to_exitcode(status), shown


def test_a_terminal_stays_a_terminal(differential: Differential, program_python: str) -> None:
    command = [program_python, "-c", PROGRAM]
    status, shown = in_terminal([*differential.recorder(), *command], (33, 77))
    bare_status, bare = in_terminal(command, (33, 77))
    assert (status, bare_status) == (0, 0)
    assert shown == bare.replace(LINE.encode() + b"\r\n", b"")
    assert shown.startswith(b"['CHR'] True True (77, 33)")


def test_a_new_size_of_the_terminal_reaches_the_program(
    differential: Differential, program_python: str
) -> None:
    text = (
        "import os, signal, time\n"
        "sizes = []\nsignal.signal(signal.SIGWINCH, lambda *_: sizes.append(tuple(os.get_terminal_size(1))))\n"
        "print('resize me', flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while (not sizes or sizes[-1] != (100, 50)) and time.monotonic() < end:\n    time.sleep(0.05)\n"
        "print('it is', sizes[-1], flush=True)\n"
    )
    status, shown = in_terminal(
        [*differential.recorder(), program_python, "-c", text], (33, 77), (50, 100)
    )
    assert status == 0
    assert b"it is (100, 50)" in shown


def test_keys_of_the_terminal_reach_the_program(
    differential: Differential, program_python: str
) -> None:
    text = "import sys\nprint('resize me')\nprint('you said', input('what? '))\nprint('end', sys.stdin.read() == '')\n"
    pid, master = pty.fork()
    if pid == 0:
        command = [*differential.recorder(), program_python, "-c", text]
        os.execvpe(command[0], command, environment())
    shown, sent = b"", [(b"what? ", b"hello\n"), (b"you said hello", b"\x04")]
    end = time.monotonic() + TIMEOUT_S
    while b"end True" not in shown and time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            shown += os.read(master, 65536)
        if sent and sent[0][0] in shown:
            os.write(master, sent.pop(0)[1])
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"end True" in shown


@pytest.mark.slow
def test_a_job_in_a_terminal_is_stopped_and_continued(
    differential: Differential, program_python: str
) -> None:
    command = program(program_python, "signals.py", "SIGTSTP")
    with terminal(differential, command, recorded=True, shell=True) as one:
        pid = one.program_pid()
        one.type(b"\x1a")
        one.read(b"got SIGCONT")
        os.kill(pid, signal.SIGTERM)
        assert counts(one.read(b"]")) == {"SIGCONT": 1, "SIGTERM": 1}
        assert one.process.wait(TIMEOUT_S) == 0
        assert one.events() == [f"stopped by {int(signal.SIGTSTP)}", "ended 9"]


def test_a_socket_is_left_alone_and_that_is_said(
    differential: Differential, program_python: str
) -> None:
    import socket

    ours, theirs = socket.socketpair()
    text = "import os, stat; print(stat.S_ISSOCK(os.fstat(1).st_mode), os.environ.get('ONEDNN_VERBOSE'))"
    with ours, theirs:
        command = [*differential.recorder(), program_python, "-c", text]
        done = subprocess.run(
            command, stdout=theirs, env=environment(), timeout=TIMEOUT_S, check=False
        )
        theirs.close()
        assert done.returncode == 0
        assert ours.recv(100) == b"True None\n"
    assert "neither a terminal nor" in differential.recorded().problems()["no_verbose"]


def test_the_users_own_log_stays_where_he_wants_it(
    differential: Differential, program_python: str
) -> None:
    text = f"import os\nprint(os.environ['DNNL_VERBOSE'], os.environ.get('ONEDNN_VERBOSE'))\nprint('{LINE}')\n"
    done = differential.record([program_python, "-c", text], env=environment(DNNL_VERBOSE="1"))
    assert done.stdout == f"1 None\n{LINE}\n".encode()


# -- what is recorded ------------------------------------------------------------------------------

NETWORK = (
    WITHOUT_COMPILER
    + """
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    net(torch.randn(4, 3, 16, 16)).sum().backward()
    optimizer.step()
"""
)


def record(python: str, text: str, cwd: Path, *options: str, **variables: str) -> Recorded:
    (cwd / "program.py").write_text(text)
    words = ["run", "-o", "recording", *options, "--", python, "program.py"]
    done = layerscope(*words, cwd=cwd, env={"OMP_NUM_THREADS": "1", **variables})
    return Recorded(
        open_run(cwd / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )


@pytest.mark.slow
def test_lines_become_primitives_where_the_library_tells_no_collector(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    run = record(program_python, NETWORK, tmp_path, *VERBOSE, ONEDNN_ITT_TASK_LEVEL="0")
    assert (run.status, run.stdout) == (0, "")
    assert not run.rows("SELECT * FROM problems")
    by_operator = run.rows(
        "SELECT o.name, count(*) AS n FROM primitives p JOIN spans o ON o.span = p.operator "
        "WHERE primitive_kind = 'convolution' AND cache_hit IS NULL GROUP BY o.name ORDER BY o.name"
    )
    assert by_operator == [
        {"name": "aten::convolution_backward", "n": 4}, {"name": "aten::mkldnn_convolution", "n": 4},
    ]  # fmt: skip
    assert run.value("SELECT count(*) FROM primitives WHERE operator IS NULL") == 0
    assert run.value("SELECT count(*) FROM primitives WHERE cache_hit") > 0
    assert run.value("SELECT count(DISTINCT step) FROM primitives JOIN spans USING (span)") == 4
    outside = (
        "SELECT count(*) FROM primitives p JOIN spans s USING (span) JOIN spans o ON o.span = p.operator "
        "WHERE s.start_ns < o.start_ns OR s.start_ns + s.dur_ns > o.start_ns + o.dur_ns "
        "OR s.parent IS DISTINCT FROM o.span"
    )
    assert run.value(outside) == 0


@pytest.mark.slow
def test_what_the_library_tells_a_collector_is_not_recorded_twice(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    run = record(program_python, NETWORK, tmp_path, *VERBOSE)
    found = (
        "SELECT count(*) FROM primitives JOIN spans USING (span) "
        "WHERE primitive_kind = 'convolution' AND kind = 'execute'"
    )
    assert run.value(found) == 8
    assert run.stdout == ""


@pytest.mark.slow
def test_a_program_without_operators_shows_its_lines(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    run = record(program_python, f"print('{LINE}')\nprint('mine')\n", tmp_path, *VERBOSE)
    assert run.stdout == "mine\n"
    (row,) = run.rows(
        "SELECT primitive_kind, operator, dur_ns FROM primitives JOIN spans USING (span)"
    )
    assert row == {"primitive_kind": "reorder", "operator": None, "dur_ns": 500_000}


@pytest.mark.slow
def test_calls_of_mkl_belong_to_their_operators(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    text = (
        NETWORK
        + "import os\npid = os.fork()\n"
        + "if pid == 0:\n    torch.mm(torch.ones(3, 4), torch.ones(4, 5))\n    os._exit(0)\n"
    )
    run = record(
        program_python,
        text + "os.waitpid(pid, 0)\ntorch.fft.fft(torch.ones(64))\n",
        tmp_path,
        "--layers",
        "+mkl",
    )
    assert (run.status, run.stdout) == (0, "")
    rows = run.rows(
        "SELECT o.name, process, count(*) AS n, count(*) FILTER (s.parent = o.span) AS direct FROM primitives p "
        "JOIN spans s USING (span) JOIN spans o ON o.span = p.operator JOIN tracks t ON t.track = s.track "
        "WHERE library = 'MKL' GROUP BY ALL ORDER BY process, n"
    )
    assert [(row["name"], row["n"], row["direct"]) for row in rows] == [
        ("aten::addmm", 4, 4), ("aten::mm", 8, 8), ("aten::mm", 1, 1),
    ]  # fmt: skip
    assert (
        run.value("SELECT count(*) FROM primitives WHERE library = 'MKL' AND operator IS NULL") == 1
    )
    (problem,) = run.rows("SELECT what FROM problems WHERE code = 'mkl_unlinked'")
    assert "1 FFT" in problem["what"]


@pytest.mark.slow
def test_of_a_window_only_what_is_known_to_lie_in_it_is_kept(
    native_agent: Path, program_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_ITT_TASK_LEVEL", "0")
    run = record(program_python, NETWORK, tmp_path, "--layers", "+verbose,+mkl", "--steps", "1:3")
    assert (run.status, run.stdout) == (0, "")
    rows = run.rows("SELECT DISTINCT step, library FROM primitives JOIN spans USING (span)")
    assert sorted((row["step"], row["library"]) for row in rows) == [(1, "oneDNN"), (2, "oneDNN")]
    assert [
        row["code"] for row in run.rows("SELECT code FROM problems WHERE layer = 'primitives'")
    ] == ["mkl_untimed"]


# -- the options -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_layers_can_be_left_out(native_agent: Path, program_python: str, tmp_path: Path) -> None:
    run = record(program_python, NETWORK, tmp_path, "--without", "modules,primitives")
    layers = [row["layer"] for row in run.rows("SELECT DISTINCT layer FROM spans")]
    assert layers == ["operators"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--layers", "+module"],
            "there is no layer 'module'. Did you mean 'modules'? The layers are operators, ",
        ),
        (["--layers", "modules,+mkl"], "either all names have a sign or none"),
        (["--layers=-operators"], "operators are always recorded and cannot be left out"),
        (["--without", "counters"], "counters are always recorded and cannot be left out"),
        (["--layers", "+verbose", "--without", "primitives"], "Leave out one of the two"),
    ],
)
def test_layers_that_make_no_sense_are_refused(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = layerscope("run", *words, "true", cwd=tmp_path)
    assert done.returncode == 125
    assert sentence in done.stderr
    assert not list(tmp_path.iterdir())
