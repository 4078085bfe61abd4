"""What our processes use beside a program that makes many operators, and that nothing is lost."""

from __future__ import annotations

from measuring.report import Report, Table, at_most, mib, percent
from measuring.runs import BenchmarkError, Recorded, Setting, plain, recorded
from measuring.watch import Watch

RATE = 160_000
SHARE = 0.10
THREAD_MIB = 4
PACED_S, FULL_SPEED_S, QUICK_S = 30.0, 10.0, 4.0
SETTLED_NS = 1_000_000_000
WATCH_S = 0.25
THREADS = (1, 8, 64)
QUICK_THREADS = (1, 16)
ROLES = ("drainer", "converter", "session", "program")
# A full ring takes more to copy than a quarter of one: less than a byte an operator is not growth.
NOISE_BYTES = 8 << 20


def run(setting: Setting) -> Report:
    """Steady, then as fast as two threads go, then memory."""
    report = Report("Drain: our processes beside a program of many operators")
    columns = (
        "program",
        "operators",
        "a second",
        "dropped",
        "drainer",
        "converter",
        "both while it runs",
        "target",
    )
    cpu = report.table("CPU: ns an operator, and the share of a core", *columns)
    memory = report.table(
        "Memory (VmRSS)", "program", *(f"{role}: start, end, peak" for role in ROLES)
    )
    paced_s, full_s = (QUICK_S, QUICK_S) if setting.quick else (PACED_S, FULL_SPEED_S)
    steady = ["--rate", str(RATE), "--seconds", str(paced_s)]
    stream(setting, report, cpu, memory, f"{RATE:,} a second, {paced_s:g} s", steady, SHARE)
    full = ["--threads", "2", "--seconds", str(full_s)]
    stream(setting, report, cpu, memory, f"2 threads, full speed, {full_s:g} s", full, None)
    threads(setting, report)
    operators(setting, report)
    report.remarks += [
        f"While it runs: from {SETTLED_NS / 1e9:g} s after the first operators to the program's "
        "end. Whole: with the "
        "start of both processes (imports) and the last conversion after the program's end.",
        "Session and program hold memory of their own libraries; the rings count in the drainer "
        "and in the program.",
    ]
    return report


def stream(
    setting: Setting,
    report: Report,
    cpu: Table,
    memory: Table,
    name: str,
    words: list[str],
    share: float | None,
) -> None:
    """Record one stream of operators and add its rows."""
    with recorded(setting, "stream.py", *words, watch_every_s=WATCH_S) as run:
        said, watch, cost = run.done.json, run.watch, run.run.info.cost
        if watch is None or "program" not in watch.ended_ns:
            raise BenchmarkError("the program's end was not seen")
        records, dropped, rows = run.run.info.layers[0].records, run.dropped, run.rows("spans")
        wall_ns = run.run.info.program.wall_ns
    begin_ns = said["begin_ns"] + SETTLED_NS
    rate = said["operators"] / said["wall_ns"] * 1e9
    while_running = {role: steady_share(watch, role, begin_ns) for role in ("drainer", "converter")}
    whole_ns = {"drainer": cost.drainer_cpu_ns, "converter": cost.converter_cpu_ns}
    whole = {role: spent_ns / wall_ns for role, spent_ns in whole_ns.items()}
    lost = (
        f"{dropped}: {'met' if not dropped else 'MISSED'}"
        if rows >= said["operators"]
        else "spans are missing"
    )
    first = [f"{said['operators']:,}", f"{rate:,.0f}", lost]
    add_shares(cpu, [name, *first], while_running, rate, share)
    # In a short run the start of both processes is most of the whole.
    add_shares(
        cpu,
        [f"{name}, whole", *first],
        whole,
        records / wall_ns * 1e9,
        None if setting.quick else share,
    )
    memory.add(name, *(course(watch, role, begin_ns) for role in ROLES))
    report.data[name] = {
        "operators": said["operators"],
        "records": records,
        "dropped": dropped,
        "a_second": rate,
        "share_while_running": while_running,
        "whole_cpu_ns": whole_ns,
        "program_wall_ns": wall_ns,
        "rss": {
            role: [(s.at_ns, s.rss_bytes) for s in watch.samples.get(role, [])] for role in ROLES
        },
    }


def add_shares(
    table: Table, first: list[str], shares: dict[str, float], rate: float, target: float | None
) -> None:
    """One row: of each process ns an operator and its share of a core, and both together."""
    each = [f"{share / max(rate, 1) * 1e9:.0f} ns, {percent(share)}" for share in shares.values()]
    both = sum(shares.values())
    table.add(
        *first,
        *each,
        percent(both),
        at_most(both, target, f"<= {percent(target)}") if target else "",
    )


def steady_share(watch: Watch, role: str, begin_ns: int) -> float:
    """The share of a core that a process took from `begin_ns` to the program's end."""
    end_ns = watch.ended_ns["program"]
    seen = watch.between(role, begin_ns, end_ns)
    if len(seen) < 2:
        raise BenchmarkError(f"the {role} was not seen often enough")
    return (seen[-1].cpu_ns - seen[0].cpu_ns) / (seen[-1].at_ns - seen[0].at_ns)


def course(watch: Watch, role: str, begin_ns: int) -> str:
    """Memory of a process at `begin_ns`, at the program's end, and at its peak, which may come
    later.
    """
    end_ns = watch.ended_ns["program"]
    seen = watch.between(role, begin_ns, end_ns) or watch.samples.get(role, [])
    if not seen:
        return "not seen"
    values = (seen[0].rss_bytes, seen[-1].rss_bytes, watch.peak_rss_bytes(role))
    return ", ".join(f"{value / 2**20:.0f}" for value in values) + " MiB"


def threads(setting: Setting, report: Report) -> None:
    """What each thread adds to the program's memory when it is recorded."""
    table = report.table(
        "Memory of the program by threads (Rss)", "threads", "without", "with", "a thread", "target"
    )
    added = {}
    counts = QUICK_THREADS if setting.quick else THREADS
    for count in counts:
        words = ["--threads", str(count), "--operators", "1000"]
        without = plain(setting, "stream.py", *words).json["rss_bytes"][0]
        with recorded(setting, "stream.py", *words) as run:
            with_it = run.done.json["rss_bytes"][0]
        added[count] = with_it - without
        target = ""
        each = ""
        if count > counts[0]:
            slope = (added[count] - added[counts[0]]) / (count - counts[0])
            each, target = mib(slope), at_most(slope / 2**20, THREAD_MIB, f"<= {THREAD_MIB} MiB")
        table.add(str(count), mib(without), mib(with_it), each, target)
    report.data["threads"] = added


def operators(setting: Setting, report: Report) -> None:
    """Whether recording more operators takes more memory, in any process."""
    goals = (100_000, 1_000_000) if setting.quick else (1_000_000, 10_000_000)
    table = report.table(
        "Memory by operators", "process", *(f"{goal:,}" for goal in goals), "growth", "target"
    )
    with recorded(setting, "stream.py", "--operators", str(goals[0]), watch_every_s=WATCH_S) as run:
        peaks = [peak_memory(run)]
    with recorded(
        setting, "stream.py", "--operators", ",".join(map(str, goals)), watch_every_s=WATCH_S
    ) as run:
        rows = {"program, in one run": run.done.json["rss_bytes"]}
        peaks.append(peak_memory(run))
    rows |= {
        f"{role}, peak": [peak[role] for peak in peaks]
        for role in ("drainer", "converter", "session")
    }
    for name, (first, last) in rows.items():
        judged = name.startswith(("program", "drainer"))
        target = at_most(last - first, NOISE_BYTES, "none (8 MiB)") if judged else ""
        table.add(name, mib(first), mib(last), mib(last - first), target)
    report.data["operators"] = {"goals": goals, **rows}


def peak_memory(run: Recorded) -> dict[str, int]:
    """The most that each of our processes had."""
    return {role: run.watch.peak_rss_bytes(role) if run.watch else 0 for role in ROLES}
