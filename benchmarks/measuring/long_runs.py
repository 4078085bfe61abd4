"""Runs of minutes and hours, watched every second: memory, the recording's size, what was kept, the
prompt.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from layerscope.rawfile.raw_file import MAX_SIZE_BYTES
from layerscope.recording.reader import Reader
from measuring.course import Course, Samples, course, settled_ns, thinned
from measuring.plot import Panel, draw
from measuring.report import Report, Table, at_most, mib, percent
from measuring.runs import BenchmarkError, Recorded, Setting, recorded
from measuring.watch import Watch

GROWTH_BYTES = 16 << 20
PROMPT_S = 5.0
# What comes after the program's end, and what a slow machine adds.
TIMEOUT_FACTOR, TIMEOUT_MORE_S = 1.25, 300.0
WATCH_S = 1.0
COUNTERS = "counters"  # the layer of what is read, not written by the agent
ROLES = ("program", "drainer", "converter", "session")
REMARKS = [
    "Records: operators, modules and ranges that the agent wrote, as the layers state it. The "
    "totals must know all of "
    "them, however many spans are kept.",
    "The thirds and the line (an hour) leave out the first tenth of a run, at most three minutes, "
    "and what comes after "
    "the program's end. A run of a minute is nothing but its beginning: what is kept whole is "
    "still growing.",
    "Ours while it runs: CPU time of session, drainer and converter from the program's first step "
    "to its end, of a "
    "core. CPU for it: of all our processes after the program's end; busy cores make the prompt "
    "later.",
    "The folder is looked at every second, raw files and tables together.",
]


@dataclass(frozen=True)
class Expected:
    """What a program should make: records a second and names at least, and exactly so many
    steps.
    """

    a_second: int
    names: int
    steps: int


@dataclass(frozen=True)
class LongRun:
    """What a run of hours did, seen from outside, and what is left of it."""

    out: str  # what the program printed
    begin_ns: int
    end_ns: int
    records: int
    dropped: int
    spans: int  # rows of the table
    counted: int  # spans that the totals know
    names: int
    steps: int
    prompt_s: float
    ours_share: float  # of a core, from the first step to the program's end
    ours_after_s: float  # CPU time after the program's end
    watch: Watch

    @property
    def a_second(self) -> float:
        """Records."""
        return self.records / (self.end_ns - self.begin_ns) * 1e9

    def samples(self, role: str) -> Samples:
        """Its resident memory."""
        return [(sample.at_ns, sample.rss_bytes) for sample in self.watch.samples.get(role, [])]

    def folder_peak(self) -> int:
        """The most bytes that the recording had at any look."""
        return max((size for _, size in self.watch.folder_bytes), default=0)


class LongReport:
    """A report on long runs that grows by one run at a time."""

    def __init__(self, title: str) -> None:
        self.report = Report(title)
        self._kept = self.report.table(
            "What was recorded",
            "program",
            "seconds",
            "records",
            "a second",
            "names",
            "steps",
            "dropped",
            "counted in totals",
            "spans kept",
        )
        self._ends = self.report.table(
            "Bounds",
            "program",
            "folder, most",
            "folder, end",
            "target",
            "prompt after",
            "target",
            "CPU for it",
            "ours while it runs",
        )
        self._memory = self.report.table(
            "Resident memory, medians",
            "program",
            "process",
            "first third",
            "last third",
            "growth",
            "target",
            "an hour",
            "peak, with the end",
        )
        self.report.remarks += REMARKS

    def add(
        self, name: str, picture: str, found: LongRun, expected: Expected | None = None
    ) -> None:
        """One more run, held against what the program should have made."""
        _add_kept(self._kept, name, found, expected)
        _add_ends(self._ends, name, found)
        _add_memory(self._memory, name, found)
        self.report.data[name] = _figures(found)
        self.report.pictures[picture] = _picture(
            found, f"{name}: {found.a_second:,.0f} records a second"
        )


def measure(setting: Setting, program: str, words: list[str], seconds: float) -> LongRun:
    """Record one program that runs for `seconds` and says when it began."""
    limit_s = seconds * TIMEOUT_FACTOR + TIMEOUT_MORE_S
    with recorded(
        setting, program, *words, quiet=False, watch_every_s=WATCH_S, timeout_s=limit_s
    ) as run:
        watch = run.watch
        if watch is None or "program" not in watch.ended_ns:
            raise BenchmarkError("the program's end was not seen")
        end_ns = watch.ended_ns["program"]
        begin_ns = end_ns - round(seconds * 1e9)
        records = sum(layer.records for layer in run.run.info.layers if layer.name != COUNTERS)
        return LongRun(
            out=run.done.out,
            begin_ns=begin_ns,
            end_ns=end_ns,
            records=records,
            dropped=run.dropped,
            spans=run.rows("spans"),
            steps=run.rows("steps"),
            ours_share=_share(watch, begin_ns, end_ns),
            prompt_s=(run.done.end_ns - end_ns) / 1e9,
            watch=watch,
            ours_after_s=(run.done.cpu_ns - watch.cpu_at_program_end_ns) / 1e9,
            **_counted(run),
        )


def _counted(run: Recorded) -> dict[str, int]:
    """Spans and names, as the totals have them."""
    with Reader(run.run) as reader:
        (row,) = reader.query(
            "SELECT coalesce(sum(count), 0)::BIGINT AS counted, count(DISTINCT name) AS names FROM "
            "totals"
        ).to_pylist()
    return dict(row)


def _share(watch: Watch, begin_ns: int, end_ns: int) -> float:
    """CPU of our processes in a span of time, of a core."""
    spent = 0.0
    for role in ("session", "drainer", "converter"):
        seen = watch.between(role, begin_ns, end_ns)
        if len(seen) > 1:
            spent += (seen[-1].cpu_ns - seen[0].cpu_ns) / (seen[-1].at_ns - seen[0].at_ns)
    return spent


def _add_kept(table: Table, name: str, found: LongRun, expected: Expected | None) -> None:
    """One row."""
    rate, names, steps = f"{found.a_second:,.0f}", f"{found.names:,}", f"{found.steps:,}"
    if expected:
        rate += _verdict(found.a_second >= expected.a_second, f">= {expected.a_second:,}")
        names += _verdict(found.names >= expected.names, f">= {expected.names:,}")
        steps += _verdict(found.steps == expected.steps, f"{expected.steps:,}")
    missing = found.records - found.counted
    counted = f"{found.counted:,}: {f'{missing:,} MISSED' if missing else 'all'}"
    table.add(
        name,
        f"{(found.end_ns - found.begin_ns) / 1e9:.0f}",
        f"{found.records:,}",
        rate,
        names,
        steps,
        f"{found.dropped:,}: {'MISSED' if found.dropped else 'met'}",
        counted,
        f"{found.spans:,}",
    )


def _verdict(is_met: bool, target: str) -> str:
    """What goes behind a value."""
    return f" ({target}: {'met' if is_met else 'MISSED'})"


def _add_ends(table: Table, name: str, found: LongRun) -> None:
    """One row: the folder, the prompt and our CPU time."""
    last = found.watch.folder_bytes[-1][1] if found.watch.folder_bytes else 0
    peak = max(found.folder_peak(), last)
    target = at_most(peak, MAX_SIZE_BYTES, f"<= {MAX_SIZE_BYTES / 1e9:g} GB")
    table.add(
        name,
        f"{peak / 1e6:,.0f} MB",
        f"{last / 1e6:,.0f} MB",
        target,
        f"{found.prompt_s:.2f} s",
        at_most(found.prompt_s, PROMPT_S, f"<= {PROMPT_S:g} s"),
        f"{found.ours_after_s:.2f} s",
        percent(found.ours_share),
    )


def _add_memory(table: Table, name: str, found: LongRun) -> None:
    """One row a process."""
    begin_ns = settled_ns(found.begin_ns, found.end_ns)
    for role in ROLES:
        seen = course(found.samples(role), begin_ns, found.end_ns)
        if seen is None:
            table.add(name, role, *["not seen often enough"] * 2, *[""] * 4)
            continue
        growth = seen.last - seen.first
        table.add(
            name,
            role,
            mib(seen.first),
            mib(seen.last),
            mib(growth),
            at_most(growth, GROWTH_BYTES, f"<= {GROWTH_BYTES >> 20} MiB"),
            mib(seen.an_hour),
            mib(found.watch.peak_rss_bytes(role)),
        )


def _figures(found: LongRun) -> dict[str, Any]:
    """What goes into the file of data: minutes, MiB and MB."""
    begin_ns = settled_ns(found.begin_ns, found.end_ns)
    courses: dict[str, Course | None] = {
        role: course(found.samples(role), begin_ns, found.end_ns) for role in ROLES
    }
    return {
        **{name: value for name, value in vars(found).items() if name not in ("watch", "out")},
        "courses": {role: seen and asdict(seen) for role, seen in courses.items()},
        "memory_mib": {
            role: thinned(found.samples(role), found.begin_ns, 60e9, 2**20) for role in ROLES
        },
        "folder_mb": thinned(found.watch.folder_bytes, found.begin_ns, 60e9, 1e6),
    }


def _picture(found: LongRun, title: str) -> str:
    """Memory of each process and the size of the folder, over time."""
    memory = {role: thinned(found.samples(role), found.begin_ns, 60e9, 2**20) for role in ROLES}
    folder = {"recording": thinned(found.watch.folder_bytes, found.begin_ns, 60e9, 1e6)}
    near = found.folder_peak() > MAX_SIZE_BYTES / 10  # else the curve would lie on the axis
    return draw(
        title,
        "minutes since the program's first step",
        ("the program ends", (found.end_ns - found.begin_ns) / 60e9),
        [
            Panel(
                "Resident memory, MiB", {role: points for role, points in memory.items() if points}
            ),
            Panel(
                "Folder of the recording, MB",
                folder,
                ("--max-size", MAX_SIZE_BYTES / 1e6) if near else None,
            ),
        ],
    )
