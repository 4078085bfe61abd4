"""What is counted by process, thread and step: hand-computed answers."""

from __future__ import annotations

from tests.analyse.test_tables import rows
from tests.recordings import Recording, S


def test_counters_by_process_are_what_perf_stat_tells() -> None:
    recording = Recording()
    recording.rows["processes"][0] |= {"end_ns": 4 * S}
    worker = recording.add_process(200, start_ns=S)
    ours = {"cpu_ns": 2 * S, "switches_voluntary": 5, "switches_forced": 7, "migrations": 3, "delay_ns": 9,
            "faults_minor": 100, "faults_major": 2, "rss_bytes": 50, "rss_peak_bytes": 90, "storage_read_bytes": 11,
            "storage_written_bytes": 12}  # fmt: skip
    for name, value in ours.items():
        recording.add_counter(0, name, [(S, 1), (3 * S, value)])
    recording.add_counter(worker, "cpu_ns", [(3 * S, S)], "ns")
    recording.add_counter(worker, "rss_bytes", [(S, 80), (3 * S, 10)], "bytes")
    recording.add_counter(worker, "cpu_ns", [(3 * S, 99 * S)], domain="mine")

    first, second = rows(recording, "counters", "process")

    assert first == {
        "process": 0, "cpu_ns": 2 * S, "cpus_used": 0.5, "delay_ns": 9, "switches": 12, "forced": 7, "migrations": 3,
        "faults": 102, "major": 2, "peak_bytes": 90, "read_bytes": 11, "write_bytes": 12,
    }  # fmt: skip
    assert (second["cpu_ns"], second["cpus_used"], second["peak_bytes"]) == (S, 0.5, 80)
    assert {name for name, value in second.items() if value is None} == {
        "delay_ns", "switches", "forced", "migrations", "faults", "major", "read_bytes", "write_bytes",
    }  # fmt: skip


def test_counters_by_thread_are_the_totals_of_threads_that_were_accounted() -> None:
    recording = Recording()
    recording.rows["processes"][0] |= {"end_ns": 4 * S}
    worker = recording.add_thread(0, 101, "worker")
    recording.add_thread(0, 102, "unknown")
    recording.rows["tracks"][0] |= {"cpu_ns": S, "start_ns": 2 * S, "switches_voluntary": 4, "switches_forced": 2,
                                    "migrations": 1, "faults_minor": 8, "faults_major": 1, "delay_ns": 5}  # fmt: skip
    recording.rows["tracks"][worker] |= {"cpu_ns": 3 * S, "start_ns": S, "end_ns": 3 * S}

    busiest, main = rows(recording, "counters", "thread")

    assert (busiest["name"], busiest["dur_ns"], busiest["cpus_used"], busiest["switches"]) == (
        "worker", 2 * S, 1.5, None,
    )  # fmt: skip
    assert main == {
        "process": 0, "tid": 100, "name": "python", "dur_ns": 4 * S, "cpu_ns": S, "cpus_used": 0.25, "delay_ns": 5,
        "switches": 6, "forced": 2, "migrations": 1, "faults": 9, "major": 1,
    }  # fmt: skip


def test_counters_by_step_are_known_as_far_as_the_readings_tell() -> None:
    """One long step and a short one; a sample each 10 ms, of a thread that is always busy."""
    recording = Recording()
    recording.add_step(0, S, (0, 2 * S, 0, 0, 0))
    recording.add_step(1, 3 * S, (0, S // 10, 0, 0, 0))
    for at_ns in range(0, 4 * S, S // 100):
        recording.add_sample(None, S // 100, at_ns)
    readings = range(0, 6 * S, S)
    for name, growth in (("faults_minor", 100), ("faults_major", 1), ("storage_read_bytes", 7)):
        recording.add_counter(0, name, [(at_ns, at_ns // S * growth) for at_ns in readings])

    long, short = rows(recording, "counters", "step")

    assert long == {
        "process": 0, "step": 0, "dur_ns": 2 * S, "cpu_ns": 2 * S, "cpus_used": 1.0, "delay_ns": None,
        "switches": None, "forced": None, "migrations": None, "faults": 202, "read_bytes": 14, "write_bytes": None,
    }  # fmt: skip
    assert (short["cpu_ns"], short["cpus_used"], short["faults"], short["read_bytes"]) == (
        S // 10,
        1.0,
        None,
        None,
    )
    assert [row["cpus_used"] for row in rows(recording, "steps")] == [1.0, 1.0]


def test_without_samples_the_cpu_time_of_long_steps_is_read() -> None:
    recording = Recording()
    recording.add_step(0, S, (0, 2 * S, 0, 0, 0))
    recording.add_step(1, 3 * S, (0, S // 10, 0, 0, 0))
    recording.add_counter(0, "cpu_ns", [(0, 0), (S, S // 2), (3 * S, 2 * S), (4 * S, 3 * S)], "ns")

    long, short = rows(recording, "counters", "step")

    assert (long["cpu_ns"], long["cpus_used"]) == (3 * S // 2, 0.75)
    assert (short["cpu_ns"], short["cpus_used"]) == (None, None)
    assert [row["cpus_used"] for row in rows(recording, "steps")] == [None, None]
