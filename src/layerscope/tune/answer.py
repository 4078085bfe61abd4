"""What `layerscope tune` prints in the end: the plan of a dry run, the answer, and the page with
all runs.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from layerscope.analyse.result import BYTES, COUNT, NS, RATIO, Result, ResultColumn, of_rows
from layerscope.show import json_output, screen, terminal, tune_page
from layerscope.show.exports import whole_or_nothing
from layerscope.tune.elimination import FEWEST_ROUNDS
from layerscope.tune.final import PAIRS
from layerscope.tune.objective import Objective, Shown
from layerscope.tune.paired import Interval
from layerscope.tune.progress import shown
from layerscope.tune.race import FASTER, NO_DIFFERENCE, REFUSED, Standing
from layerscope.tune.session import Plan, Tuned
from layerscope.tune.setting import DEFAULT
from layerscope.tune.track import DISQUALIFIED

NO_ANSWER, INTERRUPTED = 1, 130
WINNER = "winner"
_UNITS = {"s": NS, "ns": NS, "bytes": BYTES}
_OTHER_WORK = (
    "Whether it does the same work is not known: with another value of an option of the program, "
    "what it prints is not compared, and a step or a run may be a smaller one. Compare with "
    "--metric what it says of its speed itself."
)
# What is in front of PROGRAM, without what a resumed run is told anew.
_OF_THE_JOURNAL = ("--resume", "--journal")


def write_plan(plan: Plan, arguments: argparse.Namespace) -> None:
    """What a dry run says."""
    columns = tuple(
        ResultColumn(name, "string", "", meaning)
        for name, meaning in (
            ("stage", "what is tried next to each other"),
            ("setting", "its name"),
            ("because", "why it may help"),
            ("command", "how the program would be started"),
        )
    )
    program = plan.wish.program
    rows = [("", DEFAULT.name, "as it is", DEFAULT.line(program))]
    rows += [
        (s.title, one.name, one.because, one.line(program))
        for s in plan.space.stages
        for one in s.settings
    ]
    first = len(plan.space.stages[0].settings) if plan.space.stages else 0
    runs = 2 + FEWEST_ROUNDS * (first + 1) + 2 * PAIRS
    notes = (
        *plan.space.notes,
        "Nothing was run. Which libraries the program has is known only from a run, and with them "
        "there may be more.",
        f"A budget of {plan.wish.budget_s / 60:.3g} min is enough to try all of the first stage "
        f"when a run takes {plan.wish.budget_s / runs:.2g} s or less: at least {runs} runs.",
    )
    _print(of_rows("plan", columns, rows, notes=notes), arguments, "")


def write(tuned: Tuned, arguments: argparse.Namespace) -> int:
    """Print the answer; the exit status."""
    line = tuned.outcome.winner.line(tuned.wish.program) if tuned.outcome.winner else ""
    columns = _columns(tuned.objective)
    rows = [_row(tuned, standing) for standing in tuned.outcome.standings]
    said = sentences(tuned)
    if arguments.json:
        sys.stdout.flush()
        result = of_rows("settings", columns, rows, notes=said, empty="")
        json_output.write(result, sys.stdout.buffer, "tune", shlex.join(tuned.wish.program))
    else:
        _write_text(tuned, columns, rows, line, said)
    sys.stdout.flush()
    if arguments.html is not None:
        with whole_or_nothing(arguments.html) as stream:
            tune_page.write(page(tuned, line), stream)
    if tuned.is_interrupted:
        if not arguments.quiet:
            screen.tell(f"layerscope: to go on: {_resume_line(tuned)}")
        return INTERRUPTED
    if arguments.html is not None and not arguments.quiet:
        screen.tell(f"layerscope: {arguments.html} shows every run: open it in a browser")
    return NO_ANSWER if tuned.outcome.verdict == REFUSED else 0


def _write_text(
    tuned: Tuned,
    columns: tuple[ResultColumn, ...],
    rows: list[tuple[object, ...]],
    line: str,
    said: tuple[str, ...],
) -> None:
    readable = columns[:-1]
    if rows:
        terminal.write(of_rows("settings", readable, [row[:-1] for row in rows]), sys.stdout)
        screen.line("")
    screen.line(said[0])
    if line:
        for text in ("", f"    {line}", ""):
            screen.line(text)
    for sentence in said[1:]:
        screen.line(sentence)


def _print(result: Result, arguments: argparse.Namespace, run: str) -> None:
    if arguments.json:
        sys.stdout.flush()
        out = sys.stdout.buffer
        json_output.write(result, out, "tune", run)
    else:
        terminal.write(result, sys.stdout)


def _columns(objective: Objective) -> tuple[ResultColumn, ...]:
    return (
        ResultColumn("setting", "string", "", "its name"),
        ResultColumn("state", "string", "", "winner, default, leads, in race, out or disqualified"),
        ResultColumn("rounds", "int64", COUNT, "rounds of the race that it was in"),
        ResultColumn(
            "value", "float64", _UNITS.get(objective.unit, ""), f"median of {objective.name}"
        ),
        ResultColumn("ratio", "float64", RATIO, "value in parts of the defaults beside it"),
        ResultColumn("ratio_low", "float64", RATIO, "ratio lies with 95 % between this"),
        ResultColumn("ratio_high", "float64", RATIO, "and this"),
        ResultColumn("why", "string", "", "why it is out or disqualified"),
        ResultColumn("command", "string", "", "how the program is started with it"),
    )


def _row(tuned: Tuned, standing: Standing) -> tuple[object, ...]:
    value = standing.value
    if value is not None and tuned.objective.unit == "s":
        value *= 1e9
    is_winner = standing.setting == tuned.outcome.winner
    return (
        standing.setting.name,
        WINNER if is_winner else standing.state,
        standing.rounds,
        value,
        *_ratio(tuned, standing),
        standing.why or None,
        standing.setting.line(tuned.wish.program),
    )


def _ratio(tuned: Tuned, found: Standing | Interval) -> Shown:
    objective = tuned.objective
    low, high = found.low, found.high
    return objective.shown_ratio(found.ratio, low, high)


def sentences(tuned: Tuned) -> tuple[str, ...]:
    """The verdict first, then why, what else was measured, and what qualifies it."""
    found = [verdict(tuned), *tuned.why]
    for answered in tuned.what_if:
        if answered.found is None:
            ratio = "it does not run so"
        else:
            ratio = _ratio_words(tuned, answered.found)
        name = _capitalized(answered.setting.name)
        found.append(f"{name}: {ratio}. {answered.says}")
    found += tuned.wish.what_if_said
    found.append(f"Compared: {tuned.objective.statement}.")
    for note in _notes(tuned):
        end = "" if note.endswith(".") else "."
        found.append(_capitalized(note) + end)
    return tuple(found)


def _capitalized(text: str) -> str:
    """With a capital first; what follows stays as it is."""
    first = text[0]
    others = text[1:]
    return first.upper() + others


def verdict(tuned: Tuned) -> str:
    """The answer in a sentence."""
    outcome, final = tuned.outcome, tuned.outcome.final
    if outcome.verdict == FASTER and final is not None:
        better = (
            f"{final.setting.name} is better: {_ratio_words(tuned, final)}, by {final.rounds} "
            "pairs of runs of it and the defaults alone."
        )
        is_other_work = bool(final.setting.arguments) and tuned.wish.metric is None
        return f"{better} {_OTHER_WORK}" if is_other_work else better
    if outcome.verdict == NO_DIFFERENCE:
        best = ""
        if final:
            best = f" The best one, {final.setting.name}: {_ratio_words(tuned, final)}."
        return f"No measurable difference: keep the defaults.{best}"
    reason = outcome.notes[-1] if outcome.notes else "nothing was measured"
    return f"No answer: {reason}."


def _notes(tuned: Tuned) -> list[str]:
    outcome = tuned.outcome
    notes = list(outcome.notes)
    if outcome.verdict == REFUSED:
        del notes[-1:]  # it is the answer
    notes.extend(tuned.notes)
    return notes


def _ratio_words(tuned: Tuned, found: Standing | Interval) -> str:
    ratio, low, high = _ratio(tuned, found)
    if ratio is None:
        return "not known"
    words = f"{ratio:.2f}"
    if low is not None and high is not None:
        words += f" [{low:.2f}, {high:.2f}]"
    return f"{words} of the defaults"


def _resume_line(tuned: Tuned) -> str:
    """The command line again, with the journal."""
    words = list(tuned.wish.words)
    program = len(words) - len(_program_words(words, tuned))
    kept, is_value = [], False
    for word in words[:program]:
        name = word.partition("=")[0]
        if not is_value and name not in _OF_THE_JOURNAL:
            kept.append(word)
        is_value = name in _OF_THE_JOURNAL and "=" not in word and not is_value
    return shlex.join(
        ["layerscope", *kept[:1], "--resume", tuned.journal, *kept[1:], *words[program:]]
    )


def _program_words(words: list[str], tuned: Tuned) -> list[str]:
    """The end of the command line, from PROGRAM on: its Python may stand in front of it in the
    command.
    """
    program = tuned.wish.program
    for count in (len(program), len(program) - 1):
        end = words[-count:]
        if count and tuple(end) == program[-count:]:
            return end
    return []


def page(tuned: Tuned, line: str) -> tune_page.TunePage:
    """The page with every run."""
    objective, measured = tuned.objective, tuned.outcome.measurements
    values: dict[str, list[float]] = {}
    for one in measured:
        value = None if one.fault else objective.value(one)
        if value is not None:
            values.setdefault(one.setting, []).append(objective.shown(value))
    rows = []
    for standing in tuned.outcome.standings:
        name = standing.setting.name
        is_winner = standing.setting == tuned.outcome.winner
        role = "best" if is_winner else "gone" if standing.state == DISQUALIFIED else ""
        in_parts, low, high = _ratio(tuned, standing)
        ratio = "" if in_parts is None else f"{in_parts:.2f}"
        sure = "" if low is None or high is None else f"{low:.2f} to {high:.2f}"
        cells = (
            name,
            WINNER if is_winner else standing.state,
            str(len(values.get(name, ()))),
            "" if standing.value is None else shown(standing.value, objective.unit),
            ratio,
            sure,
            standing.why,
            standing.setting.line(tuned.wish.program),
        )
        rows.append(tune_page.Row(name, tuple(values.get(name, ())), cells, role))
    ticks = tune_page.ticks([value for row in rows for value in row.values])
    return tune_page.TunePage(
        f"layerscope tune: {shlex.join(tuned.wish.program)}",
        verdict(tuned),
        line,
        objective.statement,
        tuple(shown(value, objective.unit) for value in ticks),
        ticks,
        ("setting", "state", "runs", "median", "ratio", "95 % interval", "why", "command"),
        tuple(rows),
        sentences(tuned)[1:],
        numbers=(2, 3, 4, 5),
    )
