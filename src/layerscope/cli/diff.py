"""Compare two recordings: what became slower or faster, what was added and what is gone.

A and B are recordings; VIEW shows one table instead of the overview; kernels are work of GPUs, by
the steps that launched it, and memory is what is live at the peak of each, where allocations were
recorded (run --layers=+memory). If both have steps, their
medians are compared, without warm-up steps; otherwise the duration of the whole run. With repeated
steps every change has a 95 % confidence interval. The interval covers the variation between steps
of one run, not between runs.

--fail-if turns the comparison into a test. CONDITION is for example step>5%, phase.backward>10%,
operator:aten::mm>20%, module:Net.conv1>10%, kernel:NAME>5% or peak>5% (of live memory). It fails
only if the entire 95 % confidence interval lies above the threshold; a change without an interval
never fails, but for the peak, which has none. The exit status is 1 if a condition failed, 0 if none
did, and 125 if the recordings could not be compared, or a recording lacks blocks, so that its peak
is not known.

    layerscope diff before after
    layerscope diff before after operators --where "verdict = 'slower'"
    layerscope diff before after --markdown --fail-if "step>5%" --fail-if "operator:aten::mm>20%"
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from layerscope.cli import _output
from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.analyse.diff.conditions import Judgement
    from layerscope.analyse.result import Result

FAILED = 1
# The columns that people are shown; machines get all.
_READABLE = 11


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.usage = f"{parser.prog} A B [operators|modules|kernels|steps|memory] [options]"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="A B [VIEW]",
        help="two recordings, and what to show: operators, modules, kernels, steps or memory",
    )
    parser.add_argument(
        "--mean",
        action="store_true",
        help="compare the mean of the steps, which adds up, not the median",
    )
    parser.add_argument(
        "--fail-if",
        metavar="CONDITION",
        action="append",
        default=[],
        help="exit with 1 if it is true",
    )
    _output.add_choice(
        parser,
        top="overview: 16, operators, modules, kernels, memory: 20, steps, --csv and --json: all",
    )
    output = _output.add_format(parser)
    output.add_argument(
        "--markdown", action="store_true", help="print Markdown for a comment under a change"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not name the next command")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison that `arguments` ask for; 1 if a condition failed."""
    from layerscope.analyse import diff
    from layerscope.analyse.diff import conditions
    from layerscope.analyse.diff.intervals import MEAN, MEDIAN
    from layerscope.analyse.result import select
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    a, b, view = _sides_and_view(arguments.words, tuple(diff.VIEWS))
    asked = [conditions.parse(text) for text in arguments.fail_if]
    top = (
        diff.TOPS[view]
        if arguments.top is None and not _output.is_for_machines(arguments)
        else arguments.top
    )
    paths = find_run(a), find_run(b)
    with Reader(open_run(paths[0])) as left, Reader(open_run(paths[1])) as right:
        views = {view, *(condition.view for condition in asked)}
        made = diff.build(left, right, (a, b), sorted(views), MEAN if arguments.mean else MEDIAN)
        judgements = [conditions.judge(condition, made) for condition in asked]
        result = select(made.result(view, right.connection()), arguments.where, arguments.sort, top)
        _write(result, judgements, arguments, f"{paths[0]} {paths[1]}")
    if not (arguments.quiet or arguments.markdown or _output.is_for_machines(arguments)):
        screen.tell(f"Next: {_next_command(a, b, view)}")
    return FAILED if any(judgement.failed for judgement in judgements) else 0


def _write(
    result: Result, judgements: list[Judgement], arguments: argparse.Namespace, run: str
) -> None:
    sentences = tuple(judgement.sentence for judgement in judgements)
    if not _output.is_for_machines(arguments):
        result = replace(result, columns=result.columns[:_READABLE])
    if arguments.markdown:
        from layerscope.show import markdown_output

        words = " ".join(shlex.quote(word) for word in arguments.words)
        markdown_output.write(result, sys.stdout, f"layerscope diff {words}", sentences)
        return
    _output.write(replace(result, notes=(*result.notes, *sentences)), arguments, "diff", run)


def _sides_and_view(words: list[str], views: tuple[str, ...]) -> tuple[str, str, str]:
    """The two recordings and the view, which stands last."""
    listed = f"The views are {', '.join(views)}"
    if len(words) not in (2, 3):
        raise UsageError(f"name two recordings: layerscope diff before after [operators]. {listed}")
    before, after, *rest = words
    view = rest[0] if rest else views[0]
    if view not in views:
        raise UsageError(f"there is no view {view!r}. {listed}")
    return before, after, view


def _next_command(a: str, b: str, view: str) -> str:
    """The next command, about the same recordings."""
    sides = f"{shlex.quote(a)} {shlex.quote(b)}"
    return (
        f"layerscope diff {sides} operators"
        if view != "operators"
        else f"layerscope table {shlex.quote(b)} operators"
    )
