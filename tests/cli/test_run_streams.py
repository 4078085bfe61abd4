"""`layerscope run` leaves streams, blocked signals and limits as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.differential import PROGRAMS, Differential, program


@pytest.mark.slow
@pytest.mark.stress
def test_closed_standard_streams_stay_closed(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nimport facts, json\nfacts.work(5)\n"
    code += (
        "open('facts.txt', 'w').write(json.dumps([facts.process_facts(), facts.python_facts()]))"
    )
    inner = [program_python, "-c", code]
    outer = ["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-']

    without = differential.run([*outer, *inner])
    with_us = differential.run([*outer, *differential.recorder(), *inner])

    assert with_us == without
    assert differential.recorded().per_process() == [5]


@pytest.mark.parametrize("stderr", ["/dev/full", "a pipe that nobody reads"])
def test_a_stderr_that_takes_nothing_does_not_keep_the_program_from_running(
    stderr: str, differential: Differential, program_python: str
) -> None:
    if stderr == "/dev/full":
        number = os.open(stderr, os.O_WRONLY)
    else:
        reading, number = os.pipe()
        os.close(reading)
    try:
        outcome = differential.record(
            [program_python, "-c", "print('ran'); exit(3)"], quiet=False, stderr=number
        )
    finally:
        os.close(number)

    assert (outcome.status, outcome.stdout) == (3, b"ran\n")


@pytest.mark.slow
def test_a_reader_that_leaves_early(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    script = '{ "$@"; echo $? >status; } | head -1'
    inner = program(program_python, "prints_much.py")

    without = differential.run(["/bin/sh", "-c", script, "sh", *inner])
    with_us = differential.run(["/bin/sh", "-c", script, "sh", *differential.recorder(), *inner])

    assert with_us == without
    assert with_us.files["status"] != b"0\n"


@pytest.mark.slow
def test_an_ignored_sigchld_stays_ignored_for_the_program(
    differential: Differential, program_python: str
) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGCHLD), signal.getsignal(signal.SIGUSR1)); exit(5)"
    ignoring = [sys.executable, "-c", "import os, signal, sys\nfor s in (17, 10): signal.signal(s, signal.SIG_IGN)\n"
                "os.execv(sys.argv[1], sys.argv[1:])"]  # fmt: skip

    without = differential.run([*ignoring, program_python, "-c", code])
    with_us = differential.run([*ignoring, *differential.recorder(), program_python, "-c", code])

    assert with_us == without
    assert with_us.status == 5


@pytest.mark.slow
def test_blocked_signals_and_limits_are_the_programs(
    differential: Differential, program_python: str
) -> None:
    before = [sys.executable, "-c", "import os, resource, signal, sys\n"
              "signal.pthread_sigmask(signal.SIG_BLOCK, [1, 10, 34])\n"
              "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 200))\n"
              "os.umask(0o027); os.nice(3)\n"
              "os.execv(sys.argv[1], sys.argv[1:])"]  # fmt: skip
    inner = program(program_python, "facts.py", "bare")

    without = differential.run([*before, *inner])
    with_us = differential.run([*before, *differential.recorder(), *inner])

    assert with_us == without
    assert b'"Umask": "0027"' in with_us.stdout


@pytest.mark.slow
def test_many_threads_at_once_under_a_small_limit_of_descriptors(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    code = f"""
import sys, threading; sys.path.append({str(PROGRAMS)!r})
import torch; torch.set_num_threads(1)
from facts import work
gate = threading.Barrier(150)
def one():
    work(1); gate.wait()
threads = [threading.Thread(target=one) for _ in range(150)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    low = ["/bin/sh", "-c", 'ulimit -Sn 64; exec "$0" "$@"']

    outcome = differential.run([*low, *differential.recorder(), program_python, "-c", code])

    assert (outcome.status, outcome.stderr) == (0, b"")
    assert differential.recorded().per_process() == [150]
