"""What cannot be recorded is counted, exactly, and never disturbs the program."""

from __future__ import annotations

import time

import numpy as np
import pytest

from layerscope.rawfile import dtypes, layout
from tests.native.door import Door
from tests.native.driven import Drive


def test_a_full_ring_drops_and_counts_exactly(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    driven = drive("start()\nrun(['a', 'b', 'c'], 300_000)", door)

    assert driven.status == 0, driven.stderr
    (handed,) = door.handed.values()
    (header,) = handed.headers()
    records = handed.records(0)
    spans = int((records["kind"] < layout.THREAD_BEGIN).sum())
    # The record of the thread is the only other one; two places are kept for an account of the
    # loss.
    assert len(records) == spans + 1 == layout.RING_RECORDS - 7
    assert int(header["lost_full"]) == 300_000 - spans
    assert int(header["lost_deep"]) == 0
    assert int(header["lost_first"]) < int(header["lost_last"])


def test_a_loss_is_told_as_soon_as_there_is_room_again(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    process = drive.start(
        """
        start()
        run(['before'], 150_000)
        print("full", flush=True); input()
        run(['after'], 1000)
        print("done", flush=True); input()
        """,
        door,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "full\n"
    (handed,) = door.handed.values()
    (header,) = handed.headers()
    lost, published = int(header["lost_full"]), int(header["published"])
    header["consumed"] = published
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    stdout, stderr = process.communicate("\n", timeout=60)
    door.close()

    assert (process.returncode, stdout, stderr) == (0, "", "")
    assert lost == 150_000 - (published - 1)
    assert int(header["lost_full"]) == 0
    ring = layout.RING_RECORDS
    records = np.frombuffer(handed.rings[0], dtypes.RECORD, ring, layout.RING_HEADER)
    account = records[published % ring]
    assert (int(account["kind"]), int(account["name"]), int(account["module"])) == (
        layout.LOST,
        lost,
        0,
    )
    assert int(header["published"]) == published + 1 + 1000


def test_drops_of_a_run_are_rows_of_gaps(drive: Drive) -> None:
    """The drainer comes late: everything up to a full ring is there, the rest is counted."""
    door = Door(drive.folder / "raw", drainer="")
    process = drive.start(
        "start()\nrun(['a'], 200_000)\nprint('x', flush=True)\ninput()\nrun(['b'], 50_000)", door
    )
    assert process.stdout is not None
    process.stdout.readline()
    door.start_drainer()
    (handed,) = door.handed.values()
    header = handed.headers()[0]
    for _ in range(1000):
        if int(header["consumed"]) == int(header["published"]):
            break
        time.sleep(0.01)
    stdout, stderr = process.communicate("\n", timeout=60)
    driven = drive.finish(door, process.pid, process.returncode, stdout, stderr)

    assert (driven.status, driven.stderr) == (0, "")
    counts = {
        row["name"]: row["n"]
        for row in driven.rows("SELECT name, count(*) AS n FROM spans GROUP BY name")
    }
    assert counts["b"] == 50_000
    assert driven.losses() == {"ring_full": 200_000 - counts["a"]}
    (gap,) = driven.rows("SELECT * FROM gaps")
    assert gap["track"] == driven.rows("SELECT DISTINCT track FROM spans")[0]["track"]


def test_without_a_listener_nothing_is_recorded_and_nothing_happens(drive: Drive) -> None:
    door = Door(drive.folder / "raw")
    door.close()
    driven = drive(
        """
        before = descriptors()
        assert prepare() == -111, prepare()  # ECONNREFUSED
        assert agent.ls_torch_start() == -3
        op("nothing")
        agent.ls_note_optimizer(1)
        agent.ls_note_cost(ctypes.c_uint64(5))
        agent.ls_operators_stop()
        assert descriptors() == before
        """,
        door,
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert not door.handed


def test_threads_that_find_the_listener_gone_count_what_they_do_not_record(drive: Drive) -> None:
    door = Door(drive.folder / "raw")
    process = drive.start(
        """
        start()
        op("recorded")
        print("ready", flush=True); input()
        worker = Worker()
        for number in range(100):
            worker.do(op, "without a ring")
        time.sleep(0.06)  # the agent asks again after 50 ms
        worker.do(op, "still without")
        op("main goes on")
        worker.close()
        """,
        door,
    )
    assert process.stdout is not None
    process.stdout.readline()
    door.stop_listening()
    stdout, stderr = process.communicate("\n", timeout=60)
    driven = drive.finish(door, process.pid, process.returncode, stdout, stderr)

    assert (driven.status, driven.stderr) == (0, "")
    assert [row[0] for row in driven.tree()] == ["recorded", "main goes on"]
    assert driven.losses() == {"no_ring": 101}
    (gap,) = driven.rows("SELECT * FROM gaps")
    spans = driven.spans()
    assert spans[0]["start_ns"] < gap["start_ns"] < gap["end_ns"] < spans[1]["start_ns"]


def test_a_listener_that_never_accepts_costs_records_only(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="", accepts=False)
    driven = drive(
        """
        assert prepare() == 0
        assert agent.ls_torch_start() == 1  # nobody has answered the probe's question
        op("not yet")
        """,
        door,
    )

    assert (driven.status, driven.stderr) == (0, "")


@pytest.mark.parametrize("limit", ["3", "len(descriptors())"])
def test_a_program_without_free_descriptors_is_not_disturbed(drive: Drive, limit: str) -> None:
    driven = drive(
        f"""
        import resource
        start()
        op("recorded")
        worker = Worker()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, hard))
        for number in range(10):
            worker.do(op, "no descriptor for a ring")
        op("main has a ring")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        time.sleep(0.06)
        worker.do(op, "and now there is one")
        worker.close()
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert driven.losses() == {"no_ring": 10}
    assert [row[0] for row in driven.tree()] == [
        "recorded",
        "main has a ring",
        "and now there is one",
    ]


def test_no_descriptor_stays_open_and_none_is_written_to_after_closerange(drive: Drive) -> None:
    driven = drive(
        """
        import tempfile
        before = descriptors()
        start()
        op("main")
        worker = Worker()
        worker.do(op, "worker")
        assert descriptors() == before, (descriptors(), before)
        os.closerange(3, 1000)
        files = [tempfile.TemporaryFile() for _ in range(20)]
        for number in range(20_000):  # names enough for a second segment
            op(f"a name that nobody has seen before {number}")
        other = Worker()
        other.do(op, "a ring made after closerange")
        other.close(); worker.close()
        agent.ls_operators_stop()
        assert all(os.fstat(file.fileno()).st_size == 0 for file in files)
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert len(driven.spans()) == 20_003
    assert not driven.losses()


def test_after_the_stop_nothing_is_recorded_and_a_new_start_records_again(drive: Drive) -> None:
    driven = drive(
        """
        start()
        op("before")
        left = begin("open at the stop", RANGE)
        agent.ls_operators_stop()
        op("while stopped")
        end(left)
        assert agent.ls_torch_start() == 0
        op("again")
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    names = [row[0] for row in driven.tree()]
    assert "while stopped" not in names
    assert names[0] == "before"
    assert names[-1] == "again"


def test_operators_of_a_thread_past_its_end_are_counted(drive: Drive) -> None:
    driven = drive(
        """
        start()
        op("main")
        torch.fake_late_thread(text("in a destructor"))
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert [row[0] for row in driven.tree()] == [
        "main",
        "in a destructor",
    ]  # the second one of that name is the loss
    assert driven.losses() == {"no_ring": 1}


def test_threads_that_start_at_once_start_once(drive: Drive) -> None:
    """As two threads do that import something when the probe has answered."""
    driven = drive(
        """
        start()
        together = threading.Barrier(4)
        def begin_again():
            together.wait()
            assert agent.ls_torch_start() == 0
        for _ in range(200):
            agent.ls_operators_stop()
            threads = [threading.Thread(target=begin_again) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        op("once")
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert driven.tree() == [("once", 0, None)]
