"""What a program in C does by MXNet's profiler, in every order it may be done in, with a stand-in for
MXNet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.building import build
from tests.native.mxnet_driven import FAKE_MXNET, KNOWN, UNKNOWN
from tests.recorded import NO_STACKS, Recorded, layerscope, open_run

FAKE_PROFILER = FAKE_MXNET.with_name("fake_mxnet_profiler.c")
BEGIN = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int MXGetVersion(int *);
int MXProfileCreateDomain(const char *, void **);
int MXProfileCreateTask(void *, const char *, void **);
int MXProfileCreateFrame(void *, const char *, void **);
int MXProfileCreateEvent(const char *, void **);
int MXProfileCreateCounter(void *, const char *, void **);
int MXProfileDestroyHandle(void *);
int MXProfileDurationStart(void *);
int MXProfileDurationStop(void *);
int MXProfileSetCounter(void *, uint64_t);
int MXProfileAdjustCounter(void *, int64_t);
int MXProfileSetMarker(void *, const char *, const char *);
int MXSetProcessProfilerState(int, int, void *);
int MXSetProfilerState(int);
int MXProcessProfilePause(int, int, void *);
int MXProfilePause(int);
int MXDumpProcessProfile(int, int, void *);
int MXDumpProfile(int);

static void *stop(void *object) {
    MXProfileDurationStop(object);
    return NULL;
}

int main(void) {
    void *domain, *task, *other, *frame, *event, *counter, *refused = NULL;
    int version = MXGetVersion(&version) + MXProfileCreateDomain("own", &domain);
    (void)task, (void)other, (void)frame, (void)event, (void)counter, (void)refused, (void)stop;
"""
END = "    return version;\n}\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fake")
    linking = ("-Wl,-z,lazy", f"-Wl,--build-id=0x{KNOWN}")
    sources = [FAKE_MXNET, FAKE_PROFILER]
    return build(folder / "libmxnet.so", sources, "-O2", "-shared", "-fPIC", *linking)


def linked(library: Path, folder: Path, lines: str, *flags: str) -> Path:
    """A program in C that is linked with this library and does this."""
    source = folder / "program.c"
    source.write_text(BEGIN + lines + END)
    where = f"-Wl,-rpath,{library.parent}"
    return build(folder / "program", [source, library], "-O1", "-Wall", "-Werror", *flags, where)


def run_recorded(program: Path, cwd: Path) -> Recorded:
    done = layerscope("run", "-o", "recording", *NO_STACKS, "--", str(program), cwd=cwd)
    run = open_run(cwd / "recording.layerscope")
    return Recorded(run, done.returncode, done.stdout, done.stderr)


def recorded(library: Path, cwd: Path, lines: str, *flags: str) -> Recorded:
    """The recording of a program in C that does this, of which nothing is missing."""
    found = run_recorded(linked(library, cwd, lines, *flags), cwd)
    assert found.status == 0, found.stderr
    assert found.rows("SELECT * FROM problems") == []
    return found


def ranges(recording: Recorded) -> list[tuple[str, str]]:
    rows = recording.rows(
        "SELECT kind, name FROM spans WHERE layer = 'ranges' ORDER BY start_ns, name"
    )
    return [(row["kind"], row["name"]) for row in rows]


def marks(recording: Recorded) -> list[tuple[str, str]]:
    rows = recording.rows("SELECT kind, name FROM marks ORDER BY at_ns")
    return [(row["kind"], row["name"]) for row in rows]


@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_tasks_frames_and_events_are_ranges(
    library: Path, native_agent: Path, tmp_path: Path, binding: str
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    MXProfileCreateTask(domain, "task", &task);
    MXProfileCreateFrame(domain, "frame", &frame);
    MXProfileCreateEvent("event", &event);
    MXProfileDurationStart(task);
    MXProfileDurationStart(frame);
    MXProfileDurationStart(event);
    MXProfileDurationStop(task); /* before what began after it */
    MXProfileDurationStop(event);
    MXProfileDurationStop(frame);
""",
        f"-Wl,-z,{binding}",
    )

    assert ranges(recording) == [("task", "task"), ("frame", "frame"), ("event", "event")]
    assert recording.value("SELECT count(*) FROM spans WHERE unfinished") == 0


def test_what_starts_twice_was_a_moment_and_what_stops_twice_stops_once(
    library: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    MXProfileCreateTask(domain, "task", &task);
    MXProfileDurationStop(task);
    MXProfileDurationStart(task);
    usleep(2000);
    MXProfileDurationStart(task);
    usleep(2000);
    MXProfileDurationStop(task);
    MXProfileDurationStop(task);
""",
    )

    durations = recording.rows("SELECT dur_ns FROM spans WHERE layer = 'ranges' ORDER BY start_ns")
    assert len(durations) == 2
    assert durations[0]["dur_ns"] == 0
    assert durations[1]["dur_ns"] >= 2_000_000


def test_what_is_destroyed_ends_and_its_handle_may_be_given_out_again(
    library: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    MXProfileCreateTask(domain, "first", &task);
    MXProfileDurationStart(task);
    MXProfileDestroyHandle(task);
    MXProfileCreateFrame(domain, "second", &other);
    version += task != other;
    MXProfileDurationStart(other);
    MXProfileDurationStop(other);
""",
    )

    assert ranges(recording) == [("task", "first"), ("frame", "second")]
    assert recording.value("SELECT count(*) FROM spans WHERE unfinished") == 0


def test_another_thread_may_stop_it(library: Path, native_agent: Path, tmp_path: Path) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    pthread_t thread;
    MXProfileCreateTask(domain, "task", &task);
    MXProfileDurationStart(task);
    pthread_create(&thread, NULL, stop, task);
    pthread_join(thread, NULL);
""",
    )

    assert ranges(recording) == [("task", "task")]
    assert recording.value("SELECT count(*) FROM spans WHERE unfinished") == 0


def test_counters_have_their_domain_and_their_value(
    library: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    MXProfileCreateCounter(domain, "counter", &counter);
    MXProfileSetCounter(counter, 5);
    MXProfileAdjustCounter(counter, 3);
    MXProfileAdjustCounter(counter, -12);
    MXProfileSetCounter(counter, 1000); /* refused */
    MXProfileDurationStart(counter); /* it has no duration */
    MXProfileCreateTask(domain, "task", &task);
    MXProfileAdjustCounter(task, 3); /* and a task no value */
""",
    )

    rows = recording.rows(
        "SELECT tracks.name AS domain, counters.name, value FROM counters JOIN tracks USING (track) "
        "WHERE counters.name = 'counter' ORDER BY at_ns"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("own", "counter", value) for value in (5, 8, -4)
    ]
    assert ranges(recording) == []


def test_state_pause_dump_and_markers_are_marks(
    library: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    MXSetProfilerState(1);
    MXProfilePause(1);
    MXProcessProfilePause(0, 0, NULL);
    MXProfileSetMarker(domain, "here", "process");
    MXSetProcessProfilerState(0, 0, NULL);
    MXDumpProfile(1);
    MXDumpProcessProfile(1, 0, NULL);
    MXSetProcessProfilerState(1, 1, NULL); /* of the servers of a store */
    MXProcessProfilePause(1, 1, NULL);
    MXDumpProcessProfile(1, 1, NULL);
""",
    )

    name = "MXNet profiler"
    assert marks(recording) == [
        ("resumed", name),
        ("paused", name),
        ("resumed", name),
        ("marker", "here"),
        ("paused", name),
        ("marker", f"{name}: dump"),
        ("marker", f"{name}: dump"),
    ]


def test_what_mxnet_refuses_is_not_recorded_and_its_answer_arrives(
    library: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    int refusals = !MXProfileCreateTask(domain, "bad", &refused) + !MXProfileCreateEvent("bad", &refused)
                   + !MXProfileCreateDomain("bad", &refused) + !MXSetProfilerState(2) + !MXProfilePause(2)
                   + !MXDumpProfile(2) + !MXProfileSetMarker(domain, "bad", "process")
                   + !MXProfileDurationStart(NULL) + !MXProfileDurationStop(NULL);
    version += refusals || refused;
""",
    )

    assert ranges(recording) == []
    assert marks(recording) == []


def test_a_forked_child_ends_nothing_of_its_parent(
    library: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        library,
        tmp_path,
        """
    MXProfileCreateTask(domain, "task", &task);
    MXProfileCreateTask(domain, "of the child", &other);
    MXProfileDurationStart(task);
    if (!fork()) {
        MXProfileDurationStop(task);
        MXProfileDurationStart(other);
        MXProfileDurationStop(other);
        _exit(0);
    }
    wait(NULL);
    MXProfileDurationStop(task);
""",
    )

    rows = recording.rows(
        "SELECT name, count(*)::INT AS count, count(DISTINCT track)::INT AS tracks FROM spans "
        "WHERE layer = 'ranges' GROUP BY name ORDER BY name"
    )
    assert [tuple(row.values()) for row in rows] == [("of the child", 1, 1), ("task", 1, 1)]
    assert recording.value("SELECT count(*) FROM processes") == 2


def test_a_build_that_nobody_has_looked_at_is_left_alone(
    native_agent: Path, tmp_path: Path
) -> None:
    linking = ("-Wl,-z,lazy", f"-Wl,--build-id=0x{UNKNOWN}")
    sources = [FAKE_MXNET, FAKE_PROFILER]
    (tmp_path / "unknown").mkdir()
    library = tmp_path / "unknown" / "libmxnet.so"
    build(library, sources, "-O2", "-shared", "-fPIC", *linking)
    program = linked(library, tmp_path, "    MXSetProfilerState(1);\n")

    recording = run_recorded(program, tmp_path)

    assert recording.status == 0
    (problem,) = recording.rows("SELECT code, what FROM problems")
    assert problem["code"] == "build_refused"
    assert UNKNOWN in problem["what"]
    assert marks(recording) == []
