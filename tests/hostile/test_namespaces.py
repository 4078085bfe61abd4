"""Programs in containers and what containers are made of: namespaces, other roots, file systems
that are not there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.differential import SOURCE, environment, program
from tests.hostile.case import Case
from tests.hostile.settings import WITHOUT_A_NAME, mounts, namespace, user
from tests.repeated import also

pytestmark = pytest.mark.slow
DAY_S = 86_400
NAMESPACES = {
    "processes": ["--pid", "--fork", "--mount-proc"],
    "a user": ["--user"],
    "root of its own": ["--user", "--map-root-user"],
    "clocks a day ahead": ["--time", "--monotonic", str(DAY_S), "--boottime", str(DAY_S), "--fork"],
}


@pytest.mark.parametrize(
    "kind", ["processes", *also(kind for kind in NAMESPACES if kind != "processes")]
)
def test_a_program_in_a_namespace_of_its_own(kind: str, case: Case) -> None:
    """We stay outside, as with a sandbox that the program is started in."""
    # Numbers of threads mean nothing outside of a pid namespace.
    but = frozenset({"other_pid_namespace"} if kind == "processes" else ())
    recorded = case.complete(case.both(within=namespace(*NAMESPACES[kind])), but)

    # Whatever it takes for the time: ours.
    late = "SELECT count(*) AS n FROM spans WHERE start_ns + dur_ns > (SELECT max(end_ns) FROM processes)"
    assert recorded.rows(late) == [{"n": 0}]


def test_both_in_a_network_a_user_and_a_clock_of_their_own(case: Case) -> None:
    """As in a container: the abstract socket is one of this network namespace."""
    case.complete(
        case.both(around=namespace("--net", "--user", "--map-root-user", "--uts", "--ipc"))
    )


def test_a_program_in_another_network_is_told_so(case: Case) -> None:
    """Abstract sockets end at the network namespace."""
    outcome = case.both(within=namespace("--net"))

    case.trained(outcome)
    assert case.recorded().per_process() == []
    case.told(
        "refused", "could not reach layerscope", "network namespace", "run layerscope itself inside"
    )
    assert "-I, -E and -S" not in case.stderr


def test_nothing_of_a_process_is_readable_without_proc(case: Case) -> None:
    outcome = case.both(around=mounts("umount --lazy /proc"))

    case.trained(outcome)
    assert case.recorded().per_process() == [20]
    case.told("no_proc", "/proc", "mount")


def test_a_program_without_proc_is_recorded(case: Case) -> None:
    case.complete(case.both(within=mounts("umount --lazy /proc")))


def test_a_user_without_a_name_and_a_home(public: Case) -> None:
    folder = public.work.parent
    variables = environment(HOME=None, XDG_CACHE_HOME=None, TMPDIR=str(folder))
    public.complete(public.both(around=user(WITHOUT_A_NAME), env=variables))


@pytest.mark.stress
def test_a_home_that_may_not_be_written(public: Case, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    variables = environment(HOME=str(home), XDG_CACHE_HOME=None, TMPDIR=str(public.work.parent))
    public.complete(public.both(around=user(WITHOUT_A_NAME), env=variables))

    assert list(home.iterdir()) == []


@pytest.mark.stress
def test_a_root_that_is_read_only_but_for_the_working_folder(case: Case, tmp_path: Path) -> None:
    keep = str(tmp_path)
    if any(character in keep for character in " '\""):
        pytest.skip(f"the folder {keep} cannot be named in a shell")
    script = f"mount --bind {keep} {keep} && mount -o remount,bind,ro / && cd {keep}/work"
    before = set(os.listdir("/tmp"))
    case.complete(case.both(around=mounts(script), env=environment(TMPDIR="/tmp", HOME="/nowhere")))

    fresh = {name for name in set(os.listdir("/tmp")) - before if "layerscope-" in name}
    # Tests that run at the same time have folders of their own.
    assert not {name for name in fresh if not name.startswith("layerscope-test-")}


def hardy(case: Case) -> list[str]:
    """A program that needs no temporary folder; optimizers of PyTorch do."""
    return program(case.python, "exit_status.py", "3")


READ_ONLY = "mount -t tmpfs none /dev/shm && mount -o remount,bind,ro / && cd /"


@pytest.mark.stress
def test_a_root_that_is_read_only_and_a_volume_for_the_recording(
    case: Case, tmp_path: Path
) -> None:
    """As a container may be started: no temporary folder, no home, and -o names the one place."""
    volume = tmp_path / "volume"
    volume.mkdir()
    case.recording = volume / "rec.layerscope"
    around = mounts(f"mount --bind {volume} {volume} && {READ_ONLY}")

    outcome = case.both(
        around=around, command=hardy(case), env=environment(TMPDIR=None, HOME="/nowhere")
    )

    assert (outcome.status, outcome.stdout) == (3, b"out\n")
    assert case.recorded().per_process() == [100]
    assert case.recorded().problems() == {}
    assert [path.name for path in volume.iterdir()] == ["rec.layerscope"]


@pytest.mark.stress
def test_a_root_that_is_read_only_and_nothing_else(case: Case) -> None:
    """The recording goes to shared memory, and the line that says so names the place."""
    around = mounts(READ_ONLY)
    words = [*around, *case.layerscope, "run", *hardy(case)]

    outcome = case.run(words, env=environment(TMPDIR=None, HOME="/nowhere"))

    assert (outcome.status, outcome.stdout) == (3, b"out\n")
    said = outcome.stderr.decode()
    why = r"cannot be written \(Read-only file system\): recording into /dev/shm/layerscope-\d+/"
    assert re.search(why, said), said
    assert "aten::hypot" in said


def test_where_nothing_can_be_written_it_is_said_before_anything_runs(case: Case) -> None:
    around = mounts("mount -o remount,bind,ro / && mount -t tmpfs -o ro none /dev/shm")
    variables = environment(TMPDIR=None, XDG_RUNTIME_DIR=None)
    command = [*around, *case.layerscope, "run", *program(case.python, "trains.py")]

    outcome = case.run(command, env=variables)

    assert (outcome.status, outcome.stdout) == (125, b"")
    said = outcome.stderr.decode()
    assert said.startswith("layerscope: cannot make the recording in ")
    assert "Read-only file system" in said
    assert said.endswith("Choose a place with -o\n")
    assert said.count("\n") == 1


def test_a_program_that_changes_its_root_after_it_has_begun(case: Case, tmp_path: Path) -> None:
    """Threads that begin later hand their memory over by a socket that has no path."""
    if os.getuid() != 0:
        pytest.skip("only root can change the root")
    (tmp_path / "root").mkdir()
    command = program(case.python, "changes_root.py", str(tmp_path / "root"))

    outcome = case.both(command=command)

    assert (outcome.status, outcome.stdout) == (0, b"[] 6\n")
    assert case.recorded().per_process() == [120]
    assert case.recorded().problems() == {}


def test_a_program_in_another_root_where_none_of_our_files_are(case: Case, tmp_path: Path) -> None:
    """A chroot with the system's files and the program's, but not with ours."""
    root = tmp_path / "root"
    root.mkdir()
    within = [
        *mounts(f"mount --rbind / {root} && mount -t tmpfs none {root}{SOURCE}/layerscope"),
        "chroot",
        str(root),
    ]

    outcome = case.both(within=within)

    case.trained(outcome)
    assert case.recorded().per_process() == []
    case.told(
        "refused",
        "could not load the files of layerscope",
        str(SOURCE),
        "make that folder readable",
    )
