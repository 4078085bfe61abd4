"""The summary as plain text: what `layerscope run` prints after the program's end and keeps as
`summary.txt`.
"""

from __future__ import annotations

import re
import shlex
import signal
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from msgspec.structs import replace

from layerscope.analyse.failures import Failure
from layerscope.analyse.module_times import ModuleRow
from layerscope.analyse.open_operators import OpenOperators
from layerscope.analyse.step_times import StepTimes
from layerscope.analyse.summary import OperatorRow, OperatorTimes, Summary
from layerscope.analyse.tables.operators import EMPTY
from layerscope.analyse.thinned import Thinned
from layerscope.model import units
from layerscope.model.events import WINDOW_UNCOUNTED
from layerscope.model.frameworks import frameworks
from layerscope.model.layers import RANGES
from layerscope.model.units import percent
from layerscope.recording.run import RunInfo
from layerscope.show.cost_line import cost_sentence
from layerscope.show.findings_text import worth_a_try
from layerscope.show.function_lines import function_lines
from layerscope.show.gpu_lines import gpu_lines
from layerscope.show.memory_lines import memory_lines
from layerscope.show.onednn_line import use_of, version_of
from layerscope.show.rank_line import device_line, rank_line
from layerscope.show.resource_lines import resource_facts, thread_line
from layerscope.show.screen import printable
from layerscope.show.summary_idle import idle_row
from layerscope.show.summary_steps import (
    kind_lines,
    phase_lines,
    shape_lines,
    steady,
    step_and_phases,
    step_line,
    what_a_step_is,
)
from layerscope.show.summary_words import LEAST_SHOWN, MODULE, WIDTH, plural, scale, step_noun
from layerscope.show.terminal import display_width, problem_sentence, shortened

_NAME = 62
# Where there is a column for the primitives of an operator.
_SHORT_NAME = 40
_OPERATORS_COMMAND = "layerscope table operators"
_LEAST_PRIMITIVE = 0.01  # of an operator's time: less of a primitive is not worth its room
_WORTH_SAYING = 0.1
# Where less than this of the time of operators is in the steps, these may not be what repeats.
_MOSTLY_OUTSIDE = 0.8
# Shares that add up to more than this are worth a word: they are of the time of a step.
_OVERLAP = 1.02
_OVERLAP_OF_THREADS = (
    "The shares add up to more than 100 %: several threads ran operators at the same time."
)
_OVERLAP_OF_ENGINE = (
    "The shares add up to more than 100 %: an engine executes the operators that a step submits, "
    "several at the same time, or when the step is over."
)
_MOST_THREADS = 8
_MOST_FAILURES = 3
_HEADING = "Operator (self time)"
_NO_STEP = (
    "No step was found (no optimizer, data loader, module call or mark): figures are of the whole "
    "run."
)
_NONE_IN_STEPS = "No operators ran in the measured steps."


def text(summary: Summary, run: str = "") -> str:
    """The whole summary."""
    noun = step_noun(summary.steps) if summary.steps else ""
    overview = [
        *_overview(summary, noun),
        *shape_lines(summary.by_shape, noun),
        *_modules(summary),
        *_wrapped(thread_line(summary, noun)),
    ]
    for line in memory_lines(summary, noun):
        overview += _wrapped(line)
    overview += failure_lines(summary.failures, noun)
    for line in gpu_lines(summary.gpu) if summary.gpu else ():
        overview += _wrapped(line)
    if summary.late_device:
        overview += _wrapped(device_line(summary.late_device))
    if summary.slowest_rank and not (summary.gpu and summary.gpu.late):
        overview += _wrapped(f"By rank: {rank_line(summary.slowest_rank)}")
    blocks = [
        _header(summary),
        overview,
        _operators(summary),
        worth_a_try(summary.findings) if summary.findings else [],
        _losses(summary),
        _closing(summary, run),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def headline(summary: Summary) -> str:
    """The program, how it ended, how long it took, and its steps."""
    info, steps = summary.info, summary.steps
    what = (
        [printable(info.imported_from)]
        if info.imported_from
        else [_program(info.command), _ending(info)]
    )
    if info.program.wall_ns:
        what.append(units.duration(info.program.wall_ns))
    if summary.ranks > 1:
        what.append(f"{summary.ranks} ranks")
    for role, count in sorted(summary.roles.items()):
        what.append(f"{count} {plural(printable(role), count)}")
    if summary.processes > max(summary.ranks + sum(summary.roles.values()), 1):
        what.append(f"{summary.processes} processes")
    left = f"{', '.join(what)}."
    if steps:
        where = f" in {steps.processes} processes" if steps.processes > 1 else ""
        left += (
            f" {steps.count:,} "
            f"{plural(step_noun(steps), steps.count)}{where}{_warmup(steps)}{_failed(steps)}."
        )
    return left


def _header(summary: Summary) -> list[str]:
    info = summary.info
    left = f"layerscope: {headline(summary)}"
    versions = ", ".join(_versions(summary))
    room = WIDTH - display_width(left)
    window = (
        [
            f"Only a window was recorded: {info.window}.",
            "CPU time, memory and switches of processes are of the whole run.",
        ]
        if info.window and all(one.code != WINDOW_UNCOUNTED for one in summary.problems)
        else []
    )
    use = _wrapped(use_of(summary.onednn)) if summary.onednn else []
    if not versions:
        return [left, *use, *window]
    return [
        *([left + versions.rjust(room)] if len(versions) + 3 <= room else [left, versions]),
        *use,
        *window,
    ]


def _versions(summary: Summary) -> Iterator[str]:
    """Of what the program runs on."""
    known = summary.info.versions
    if "python" in known:
        yield f"Python {known['python']}"
    for framework in frameworks():
        if framework.name in known:
            yield f"{framework.name} {known[framework.name]}"
    if summary.onednn:
        yield version_of(summary.onednn)


def _warmup(steps: StepTimes) -> str:
    if not steps.warmup:
        return ""
    if steps.processes > 1:
        which = "the first" if steps.warmup <= steps.processes else "the first ones"
        return f", {which} of each process, {steps.warmup} in all, excluded (warm-up)"
    return (
        ", the first excluded (warm-up)"
        if steps.warmup == 1
        else f", the first {steps.warmup} excluded (warm-up)"
    )


def _failed(steps: StepTimes) -> str:
    """A request that an exception ended is none that was served."""
    if not steps.failed:
        return ""
    return f"; {steps.failed:,} failed{' and excluded' if steps.left_out else ''}"


def failure_lines(failures: list[Failure], noun: str) -> list[str]:
    """Which exceptions ended calls of modules, most calls first; `noun`: what a step is called."""
    lines = []
    for failure in failures[:_MOST_FAILURES]:
        what = f"{failure.calls:,} {plural('forward pass', failure.calls)}"
        if failure.requests == failure.calls:
            what = f"{failure.calls:,} {plural(noun, failure.calls)}"
        where = f" in {failure.operator}" if failure.operator else ", in no operator"
        lines += _wrapped(printable(f"Failed: {what}{where}: {failure.exception}"))
    more = sum(failure.calls for failure in failures[_MOST_FAILURES:])
    if more:
        lines.append(
            f'Failed: {more:,} more by other exceptions: layerscope query "from marks where kind '
            "= 'raised'\""
        )
    return lines


def _program(command: list[str]) -> str:
    """The program without its arguments and, of a script, its interpreter: `train.py`, `python -m
    module`, or what it is.
    """
    words = list(command)
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        rest = words[1:]
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
            del rest[: 2 if rest[0] in ("-W", "-X") else 1]
        if rest[:1] == ["-m"]:
            return printable(" ".join(["python", *rest[:2]]))
        if rest[:1] == ["-c"]:
            rest = words[:1]
        words = rest or words
    return printable(shortened(words[0], _NAME)) if words else "unknown program"


def _ending(info: RunInfo) -> str:
    if info.exit.signal is not None:
        try:
            return f"ended by {signal.Signals(info.exit.signal).name}"
        except ValueError:
            return f"ended by signal {info.exit.signal}"
    if info.exit.code is not None:
        return f"exit {info.exit.code}"
    if info.exit.goes_on:
        return "still running"
    if info.state == "finished":
        return "ended"  # how, is told to its parent alone, which was not us
    return (
        "still running"
        if info.state == "running"
        else "end unknown because the recording was cut off"
    )


def _overview(summary: Summary, noun: str) -> list[str]:
    """On the left the phases of a step, on the right what else is known about it."""
    own = () if summary.info.imported_from else resource_facts(summary, noun)
    facts = [fact for fact in (steady(summary.steps), *own) if fact]
    kinds = kind_lines(summary.operators)
    if summary.steps is None:
        if summary.info.imported_from:
            return [*kinds, *facts]
        if kinds:
            return [_NO_STEP, *_side_by_side(kinds, facts)]
        return (
            [_NO_STEP, *(f"  {fact}" for fact in facts)]
            if summary.operators
            else [f"  {fact}" for fact in facts]
        )
    right = [*what_a_step_is(summary.steps, summary.modules, summary.generation), *facts]
    if kinds:
        return [*step_and_phases(summary.steps), *_side_by_side(kinds, right)]
    return _side_by_side([step_line(summary.steps), *phase_lines(summary.steps)], right)


def _side_by_side(left: list[str], right: list[str]) -> list[str]:
    width = max(map(len, left)) + 3
    lines = []
    for bar, fact in zip_longest(left, right, fillvalue=""):
        line = f"{bar:<{width}}{fact}"
        lines.append(line.rstrip())
    return lines


def _modules(summary: Summary) -> list[str]:
    modules = summary.modules
    if modules is None:
        return []
    whole_ns = summary.steps.mean_ns if summary.steps else modules.rows[0].self_ns
    divisor, unit = scale(whole_ns)
    spent = [(_module(row), row.self_ns) for row in modules.rows]
    if modules.rest_names:
        spent.append((f"{modules.rest_names:,} more", modules.rest_ns))
    spent.append(("outside any module", modules.outside_ns))
    least_ns = LEAST_SHOWN * divisor
    shown = [(name, ns) for name, ns in spent if ns >= least_ns] or spent[:1]
    parts = [f"{name} {units.three_digits(ns / divisor)}" for name, ns in shown]
    parts[0] = f"By module: {parts[0]} {unit}"
    return _wrapped(", ".join(parts))


def _module(row: ModuleRow) -> str:
    name = shortened(printable(row.name), MODULE)
    if row.functional:
        return f"rest of {name}" if row.of_class else f"functional ops in {name}.forward"
    return f"{name} ({shortened(printable(row.of_class), MODULE)})" if row.of_class else name


def _operators(summary: Summary) -> list[str]:
    times, steps = summary.operators, summary.steps
    if times is None and summary.functions:
        return function_lines(summary.functions)
    if times is None:
        return [] if _is_of_memory(summary) else [_no_operators(summary)]
    if times.layer == RANGES:
        return _without_operators(times, steps)
    if not times.rows:
        return [_NONE_IN_STEPS, *_remarks(times, [])]
    rows = list(times.rows)
    if times.rest_names:
        rows.append(replace(times.rest, name=f"{times.rest_names:,} more"))
    idle = idle_row(summary)
    if idle is not None:
        rows.append(idle)
    lines = _ranking(_HEADING, rows, steps, has_primitives=bool(times.kinds))
    if times.rest_names:
        lines[1 + len(times.rows)] += f"   {_OPERATORS_COMMAND}"
    bulks = _wrapped(summary.bulks) if summary.bulks else []
    return [*lines, *_remarks(times, rows), *bulks]


def _is_of_memory(summary: Summary) -> bool:
    """Whether it is what another tool wrote about memory alone."""
    has_others = summary.operators is not None or bool(summary.functions)
    is_imported = bool(summary.info.imported_from)
    return is_imported and summary.blocks is not None and not has_others


def _no_operators(summary: Summary) -> str:
    return "No operators were recorded." if summary.problems else EMPTY


def what_is_missing(summary: Summary) -> list[str]:
    """Sentences in place of steps and operators that a recording does not have."""
    missing = []
    if not summary.steps:
        missing.append(_NO_STEP)
    times = summary.operators
    if times is None and not _is_of_memory(summary):
        missing.append(_no_operators(summary))
    elif times is not None and not times.rows and not times.primitives:
        missing.append(_NONE_IN_STEPS)
    return missing


def _without_operators(times: OperatorTimes, steps: StepTimes | None) -> list[str]:
    """What a program marked itself, and what it asked of libraries."""
    rows = list(times.rows)
    if times.rest_names:
        rows.append(replace(times.rest, name=f"{times.rest_names:,} more"))
    lines = (
        _ranking("Range (self time)", rows, steps, has_primitives=bool(times.kinds)) if rows else []
    )
    if not times.primitives:
        return lines
    return [
        *lines,
        *([""] if lines else []),
        *_ranking("Primitive (self time)", times.primitives, steps),
    ]


def _ranking(
    heading: str, rows: list[OperatorRow], steps: StepTimes | None, has_primitives: bool = False
) -> list[str]:
    """A table of names with their time, share and calls and, with `has_primitives`, the primitives
    that they called.
    """
    longest = _NAME
    if has_primitives:
        longest = _SHORT_NAME
    names = [shortened(printable(row.name), longest) for row in rows]
    width = max(map(display_width, (heading, *names)))
    divisor, unit = scale(steps.mean_ns if steps else max(row.self_ns for row in rows))
    unit_heading = f"{unit}/{step_noun(steps)}" if steps else unit
    figure = max(8, len(unit_heading))
    calls = [units.amount(row.calls) if row.calls else "" for row in rows]
    # Room for primitives is scarce.
    number = max(5 if has_primitives else 7, *map(len, calls))
    lines = [f"{heading:<{width}}  {unit_heading:>{figure}}  {'share':>5}  {'calls':>{number}}"]
    room = WIDTH - len(lines[0]) - 2
    if has_primitives:
        lines[0] += "  below it"
    for name, row, called in zip(names, rows, calls, strict=True):
        padding = " " * (width - display_width(name))
        spent = units.three_digits(row.self_ns / divisor)
        share = percent(row.share)
        line = f"{name}{padding}  {spent:>{figure}}  {share:>5}  {called:>{number}}"
        if has_primitives:
            line += f"  {_primitives_of(row, divisor, room)}"
        lines.append(line.rstrip())
    return lines


def _primitives_of(row: OperatorRow, divisor: int, room: int) -> str:
    """What an operator called, most time first: `oneDNN jit:avx512_core 2.06, reorders 0.53`."""
    if not row.primitives:
        return row.worker
    least_ns = max(LEAST_SHOWN * divisor, _LEAST_PRIMITIVE * row.self_ns)
    parts: list[str] = []
    library = ""
    for one in row.primitives:
        if parts and one.ns < least_ns:
            break
        name, _, rest = one.what.partition(" ")
        what = rest if rest and name == library else one.what
        parts.append(f"{what} {units.three_digits(one.ns / divisor)}")
        library = name if rest else library
    count = len(parts)
    while count > 1 and display_width(_listed(parts, count)) > room:
        count -= 1
    return shortened(_listed(parts, count), room)


def _listed(parts: list[str], count: int) -> str:
    """The first of these parts, and dots for the others."""
    shown = parts[:count]
    if count < len(parts):
        shown.append("...")
    return ", ".join(shown)


def _remarks(times: OperatorTimes, rows: list[OperatorRow]) -> Iterator[str]:
    if sum(row.share for row in rows) > _OVERLAP:
        yield from _wrapped(_OVERLAP_OF_ENGINE if times.is_asynchronous else _OVERLAP_OF_THREADS)
    if times.outside_share > _WORTH_SAYING:
        outside = f"{percent(times.outside_share)} of all operator time"
        yield f"Not included: {outside}: between and around the steps, or in other processes."
    if times.outside_share > _MOSTLY_OUTSIDE:
        yield (
            "If other work than these steps is what repeats, have it taken for the steps: "
            "run --step-mark"
        )


def _losses(summary: Summary) -> list[str]:
    lines = [line for problem in summary.problems for line in _wrapped(problem_sentence(problem))]
    if summary.open_operators:
        died = summary.info.exit.signal is not None
        when = "when the program was ended" if died else "when the recording ended"
        lines.append(f"Running {when}, outermost first:")
        lines += [
            line for thread in summary.open_operators[:_MOST_THREADS] for line in _open(thread)
        ]
        if len(summary.open_operators) > _MOST_THREADS:
            lines.append(f"  and {len(summary.open_operators) - _MOST_THREADS} more threads")
    return lines


def _open(thread: OpenOperators) -> list[str]:
    """The operators that were open on a thread, the outermost first."""
    operators = " > ".join(thread.names)
    return _wrapped(printable(f"  {thread.thread}: {operators}"), "    ")


def _closing(summary: Summary, run: str) -> list[str]:
    is_lossy = any(problem.code.startswith("lost_") for problem in summary.problems)
    by_weight = summary.operators is not None and summary.operators.layer == RANGES
    lines = []
    if summary.thinned:
        lines += _wrapped(_kept(summary.thinned, is_lossy, by_weight))
    if not summary.info.imported_from:
        size = f"{units.size(summary.cost.size_bytes)} in {printable(summary.folder)}"
        lines += _wrapped(f"Overhead: {cost_sentence(summary.cost)}; {size}")
    words = ["layerscope report", *([shlex.quote(run)] if run else [])]
    if _is_of_memory(summary):
        words = ["layerscope table", *words[1:], "peak"]
    following = f"Next: {' '.join(words)}"
    return [*lines, printable(following)]


def _kept(thinned: Thinned, is_lossy: bool, by_weight: bool = False) -> str:
    """What is still there of a long run."""
    spans = (
        f"{units.three_digits(thinned.kept_spans / 1e6)} of "
        f"{units.three_digits(thinned.spans / 1e6)} million spans"
    )
    steps = f"{thinned.kept_steps:,} of {thinned.steps:,} steps, " if thinned.steps else ""
    exact = "exact but for what was lost" if is_lossy else "exact"
    sums = (
        "in the sums above each counts for those like it"
        if by_weight
        else f"the sums above are {exact}"
    )
    return f"Kept in detail: {steps}{spans}; {sums}. To keep all: run --full"


def _wrapped(line: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
