"""Say what a program has that costs it time, what removing that can save at most, and the evidence.

RUN is a recording or anything that opens like one; left out, it is the newest one here. A price is
an upper bound for a step (without steps: for the run), with a 95 % interval. It counts only time of
the thread that makes the steps, so what another thread hides costs nothing; prices overlap and do
not add up. What saves less than 2 % of a step is not shown but listed as looked at.

--prove measures whether a change helps: the program runs in pairs, as it is and with the change,
and has to print the same. A remedy of variables or arguments is applied; your own change is given
by --with-env or --with. The verdict is kept beside the recording and shown with the finding.

--fail-on 5% or 2ms exits with 1 if the lower end of a price that is certain is above; 125 if the
recording cannot be judged. docs/findings/README.md has a page for every rule.

    layerscope findings
    layerscope findings --explain page_fault_time
    layerscope findings --evidence --rule loader_wait
    layerscope findings --fail-on 5% --json
    layerscope findings --prove page_fault_time -- train.py --epochs 1
    layerscope findings --prove 1 --with "train_new.py --epochs 1" -- train.py --epochs 1
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from typing import TYPE_CHECKING

from layerscope.cli import _output
from layerscope.cli._prove import BUDGET_MIN, prove
from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.analyse.findings import RunFindings

FAILED = 1
_LIMIT = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>%|ns|us|µs|ms|s)")
_UNITS_NS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `findings`."""
    parser.add_argument(
        "recording", metavar="RUN", nargs="?", help="the recording (default: the newest one here)"
    )
    parser.add_argument(
        "--rule", metavar="NAME", action="append", default=[], help="only what this rule finds"
    )
    parser.add_argument(
        "--set",
        metavar="RULE.THRESHOLD=VALUE",
        action="append",
        default=[],
        help="another threshold; --explain lists them",
    )
    parser.add_argument("--explain", metavar="RULE", help="print what the rule looks for, and why")
    parser.add_argument(
        "--evidence", action="store_true", help="print what shows each finding: question and answer"
    )
    parser.add_argument(
        "--fail-on",
        metavar="PRICE",
        help="exit with 1 if one that is certain costs more: 5%% of a step, or 2ms",
    )
    proving = parser.add_argument_group("to prove one")
    proving.add_argument(
        "--prove",
        metavar="RULE|N",
        help="measure whether a change removes this finding; the program follows behind --",
    )
    proving.add_argument(
        "--with", dest="command", metavar="COMMAND", help="the change: another command"
    )
    proving.add_argument(
        "--with-env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="the change: a variable of the environment; may be given again",
    )
    proving.add_argument(
        "--any-output", action="store_true", help="the changed program may print anything"
    )
    proving.add_argument(
        "--budget", metavar="MIN", help=f"minutes that it may take (default {BUDGET_MIN:g})"
    )
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not name the next command")


def prepared(words: list[str]) -> list[str]:
    """The command line as argparse takes it: what follows -- is the program's."""
    if "--" not in words:
        return words
    place = words.index("--")
    own = words[:place]
    of_program = words[place + 1 :]
    program = shlex.join(of_program)
    return [*own, f"--program={program}"]


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, or prove one; 1 if --fail-on says so."""
    from layerscope.analyse import findings
    from layerscope.analyse.findings.finding import changed_limits
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    if arguments.explain:
        sys.stdout.write(findings.explained(arguments.explain))
        return 0
    limit = _limit(arguments.fail_on)
    chosen = [name for name in arguments.rule if findings.load(name)]
    changes = changed_limits(arguments.set, findings.thresholds())
    path = find_run(arguments.recording)
    with Reader(open_run(path)) as reader:
        found = findings.find(reader, chosen, changes)
        if arguments.prove:
            prove(found, reader.run, arguments)
            return 0
        _write(found, arguments, str(path), reader.run.info.start_ns)
    if found.found and not (arguments.quiet or arguments.json):
        screen.tell(f"Next: layerscope findings --explain {found.found[0].rule}")
    if limit and _costs_more(found, *limit):
        return FAILED
    return 0


def _write(found: RunFindings, arguments: argparse.Namespace, run: str, origin_ns: int) -> None:
    from layerscope.analyse.findings import table
    from layerscope.show import findings_text, json_output

    if arguments.json:
        make = table.result
        if arguments.evidence:
            make = table.evidence
        sys.stdout.flush()
        json_output.write(make(found, origin_ns), sys.stdout.buffer, "findings", run)
        return
    text = findings_text.text(found)
    if arguments.evidence:
        text = findings_text.evidence(found)
    sys.stdout.write(text)
    _output.say_problems(found.problems, arguments)


def _limit(text: str | None) -> tuple[float, str] | None:
    """The number of --fail-on, and % or ns."""
    if text is None:
        return None
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--fail-on {text}: give a share of a step (5%) or a time (2ms)")
    number, unit = float(match["number"]), match["unit"]
    return (number / 100, "%") if unit == "%" else (number * _UNITS_NS[unit], "ns")


def _costs_more(found: RunFindings, limit: float, unit: str) -> bool:
    """Whether the lower end of a price that is certain is above `limit`."""
    from layerscope.analyse.findings.finding import CERTAIN

    for one in found.found:
        low = one.price.low_ns
        if unit == "%":
            low = one.price.low_share
        if one.certainty == CERTAIN and low > limit:
            return True
    return False
