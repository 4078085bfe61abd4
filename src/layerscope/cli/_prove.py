"""`layerscope findings --prove`: which change is tried, on which program, and what is kept."""

from __future__ import annotations

import argparse
import math
import shlex
from typing import TYPE_CHECKING

from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.analyse.findings import RunFindings
    from layerscope.analyse.findings.finding import Finding
    from layerscope.recording.run import Run
    from layerscope.tune.proof import ProofWish
    from layerscope.tune.setting import Setting

BUDGET_MIN = 10.0


def prove(found: RunFindings, run: Run, arguments: argparse.Namespace) -> None:
    """Compare the program as it is and with the change, print the verdict, and keep it with
    `run`.
    """
    from layerscope.recording.proofs import keep_proof
    from layerscope.tune.proof import prove as compare

    wish = _wish(found, run, arguments)
    screen.tell(f"layerscope: {shlex.join(wish.program)}, against {wish.is_said}")
    proof = compare(wish, run.info)
    screen.line(proof.words)
    try:
        keep_proof(run, proof)
    except OSError as error:
        screen.tell(f"layerscope: the verdict is not kept with {run.path} ({error.strerror})")


def _wish(found: RunFindings, run: Run, arguments: argparse.Namespace) -> ProofWish:
    from layerscope.tune import proof

    program = _program(run, arguments.program)
    finding = _finding(found, arguments.prove)
    rule = arguments.prove
    if finding:
        rule = finding.rule
    if arguments.command and arguments.with_env:
        raise UsageError("--with and --with-env are two changes: prove one at a time")
    if arguments.command:
        change = proof.of_command(arguments.command)
        said = arguments.command
    elif arguments.with_env:
        change = proof.of_variables(arguments.with_env)
        said = " ".join(arguments.with_env)
    else:
        change, said = _remedy(finding, rule, program)
    budget_s = 60 * _minutes(arguments.budget)
    return proof.ProofWish(
        rule, program, change, said, budget_s, arguments.any_output, arguments.quiet
    )


def _program(run: Run, words: str | None) -> tuple[str, ...]:
    """The words behind --, else the command that was recorded."""
    from layerscope.session.command import program_command

    if words is None:
        if not run.info.command:
            raise UsageError("name the program behind --: findings --prove 1 -- train.py")
        return tuple(run.info.command)
    command, _ = program_command(shlex.split(words))
    return tuple(command)


def _finding(found: RunFindings, name: str) -> Finding | None:
    """The finding by its number or rule; None for a rule that found nothing."""
    from layerscope.analyse import findings

    if name.isdigit():
        number = int(name)
        count = len(found.found)
        if not 1 <= number <= count:
            raise UsageError(f"--prove {name}: {_numbered(count)}")
        return found.found[number - 1]
    findings.load(name)
    for one in found.found:
        if one.rule == name:
            return one
    return None


def _numbered(count: int) -> str:
    """Which numbers findings have."""
    return f"the findings are numbered from 1 to {count}" if count else "there are no findings"


def _remedy(finding: Finding | None, rule: str, program: tuple[str, ...]) -> tuple[Setting, str]:
    """The first remedy that needs nobody's editor, and how it is called."""
    from layerscope.analyse.findings.finding import ARGUMENTS, ENVIRONMENT
    from layerscope.tune import proof

    if finding is None:
        raise UsageError(
            f"{rule} found nothing in this recording: give the change by --with or --with-env"
        )
    for remedy in finding.remedies:
        if remedy.kind == ENVIRONMENT:
            pairs = [f"{name}={value}" for name, value in remedy.variables.items()]
            return proof.of_variables(pairs), " ".join(pairs)
        if remedy.kind == ARGUMENTS:
            return proof.of_arguments(remedy.arguments, program), shlex.join(remedy.arguments)
    what = finding.remedies[0].what if finding.remedies else finding.title
    raise UsageError(
        f"{rule} needs an edit ({what}): make it in a copy of the program, and prove it by "
        '--with "COMMAND OF THE COPY"'
    )


def _minutes(text: str | None) -> float:
    try:
        minutes = BUDGET_MIN if text is None else float(text)
    except ValueError:
        minutes = math.nan
    if not minutes > 0 or math.isinf(minutes):
        raise UsageError(f"--budget {text}: give a number of minutes above 0")
    return minutes
