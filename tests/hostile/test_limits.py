"""Limits of the kernel: processes, descriptors, address space, file sizes, environment, memory and
CPU time.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from layerscope.ingest.open import open_run
from tests.differential import PROGRAMS, environment, program
from tests.hostile.case import HYPOT, STEPS, Case
from tests.hostile.settings import WITHOUT_A_NAME, Cgroup, limited, refusing, user
from tests.recorded import ask
from tests.repeated import also

pytestmark = pytest.mark.slow
MEMORY_BYTES = 512 << 20
# A word of the environment may have 32 pages, with its name and a NUL (MAX_ARG_STRLEN).
LONGEST = 32 * 4096 - len("PYTHONPATH=") - 1
PERF_EVENT_OPEN, PROCESS_VM_READV, MEMFD_CREATE, PIDFD_OPEN = 298, 310, 319, 434
SENDMSG, SETPRIORITY, FALLOCATE, SCHED_SETATTR = 46, 141, 285, 314


def test_twenty_descriptors(case: Case) -> None:
    """Not enough for an event of each thread: these go to what carries operators."""
    case.complete(case.both(around=limited("nofile", 20)), but=frozenset({"no_descriptors"}))
    case.told("no_descriptors", "the limit of open files is 20", "ulimit -n 64")


def test_an_address_space_of_1500_mb(case: Case) -> None:
    case.complete(case.both(around=limited("as", 1_500_000_000)))


def test_a_user_who_may_have_no_other_process_runs_the_program_alone(public: Case) -> None:
    variables = environment(OPENBLAS_NUM_THREADS="1", TMPDIR=str(public.work.parent))
    around = [*user(WITHOUT_A_NAME), *limited("nproc", 2)]

    outcome = public.both(around=around, env=variables)

    public.trained(outcome)
    assert "Resource temporarily unavailable" in public.stderr
    assert "nothing is recorded; raise ulimit -u" in public.stderr
    assert not public.recording.exists()


def test_a_user_who_may_have_few_processes(public: Case) -> None:
    """Enough for our processes but not for their threads: whatever of it can be had, the rest is a
    sentence.
    """
    variables = environment(OPENBLAS_NUM_THREADS="1", TMPDIR=str(public.work.parent))
    around = [*user(WITHOUT_A_NAME), *limited("nproc", 7)]

    outcome = public.both(around=around, env=variables)

    public.trained(outcome)
    run = open_run(public.recording)
    (hypot,) = ask(run, f"SELECT count(*) AS n FROM spans WHERE name = '{HYPOT}'")
    refused = ("no thread of its own", "Resource temporarily unavailable")
    assert hypot["n"] == STEPS or any(words in public.stderr for words in refused)
    assert hypot["n"] in (0, STEPS)


def test_files_smaller_than_a_ring(case: Case) -> None:
    """The limit holds for shared memory too: what cannot be recorded is counted, and the way out is
    named.
    """
    outcome = case.both(around=limited("fsize", 100_000))

    case.trained(outcome)
    recorded = case.recorded()
    assert recorded.gaps()["no_ring"] > 100
    assert recorded.count(HYPOT) == 0
    assert "no ring could be made for their thread" in " ".join(case.stderr.split())
    assert "ulimit -v, -f, -n" in " ".join(case.stderr.split())


def test_a_search_path_as_long_as_the_kernel_takes(case: Case) -> None:
    """There is no room for the door: the program starts as it would without us."""
    entry = "/nowhere/"
    outcome = case.both(env=environment(PYTHONPATH=entry + "x" * (LONGEST - len(entry))))

    case.trained(outcome)
    assert case.recorded().per_process() == []
    case.told("no_door", "no room for a longer PYTHONPATH", "shorten PYTHONPATH")


@pytest.mark.stress
def test_a_long_search_path(case: Case) -> None:
    long = ":".join(f"/nowhere/{number}" for number in range(5000))

    case.complete(case.both(env=environment(PYTHONPATH=long)))


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    group = Cgroup(MEMORY_BYTES)
    yield group
    group.remove()


def test_512_mb_and_half_a_core_for_program_and_recorder_together(
    case: Case, cgroup: Cgroup
) -> None:
    command = program(case.python, "trains.py", "2000")

    outcome = case.both(command=command, preexec_fn=cgroup.enter)

    case.trained(outcome)
    assert cgroup.killed() == 0
    recorded = case.recorded()
    lost = sum(recorded.gaps().values())
    assert lost or recorded.count(HYPOT) == 2000
    assert recorded.rows("SELECT count(*) AS n FROM steps") == [{"n": 2000}] or lost
    assert recorded.problems() == {}


def test_calls_that_containers_forbid_and_only_stacks_need(case: Case) -> None:
    calls = [PERF_EVENT_OPEN, PROCESS_VM_READV, PIDFD_OPEN, SCHED_SETATTR, SETPRIORITY]

    without_stacks = frozenset({"events_refused", "no_switches", "stacks_unsignalled"})
    case.complete(case.both(around=refusing(case.python, calls, errno.EPERM)), but=without_stacks)


@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (MEMFD_CREATE, errno.ENOSYS, "memfd_create: Function not implemented"),
        *also(
            [
                (FALLOCATE, errno.EOPNOTSUPP, "fallocate: Operation not supported"),
                (SENDMSG, errno.EPERM, "sendmsg: Operation not permitted"),
            ]
        ),
    ],
    ids=["memfd_create", "fallocate", "sendmsg"],
)
def test_calls_without_which_nothing_can_be_handed_over(
    call: int, error: int, name: str, case: Case
) -> None:
    outcome = case.both(within=refusing(case.python, [call], error))

    case.trained(outcome)
    assert case.recorded().per_process() == []
    case.told("refused", name, "seccomp")


def test_no_memory_for_the_ring_of_a_later_thread(case: Case) -> None:
    """The program goes on; what that thread did is counted."""
    code = f"""
import sys; sys.path.append({str(PROGRAMS)!r})
import facts, resource, threading, torch
torch.set_num_threads(1); facts.work(50)
threading.stack_size(1 << 20)
begun, go = threading.Event(), threading.Event()
def later():
    begun.set(); go.wait(); facts.work(7); print("worked", flush=True)
thread = threading.Thread(target=later); thread.start(); begun.wait()
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), resource.RLIM_INFINITY))
go.set(); thread.join(); print("done"); exit(5)
"""
    outcome = case.both(command=[case.python, "-c", code])

    assert (outcome.status, outcome.stdout) == (5, b"worked\ndone\n")
    recorded = case.recorded()
    assert recorded.count(HYPOT) == 50
    assert recorded.gaps() == {"no_ring": 7 + 3}  # work makes a tensor of ones, by three operators
    assert "10 records" in " ".join(case.stderr.split())
