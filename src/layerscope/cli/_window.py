"""The options of `run` that say which window of the program is recorded: --steps, --after, --for,
--every and --paused.
"""

from __future__ import annotations

import argparse
import math
import re

from layerscope.model.errors import UsageError
from layerscope.rawfile.windows import RequestedWindow

# The agent counts in 32 bits where steps are written down.
MOST_STEPS = 2**31 - 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--steps",
        metavar="A:B",
        help="record only the steps A to B-1, counted from 0; also A: and :B",
    )
    parser.add_argument(
        "--after", metavar="S", help="start recording S seconds after the program's start"
    )
    parser.add_argument(
        "--for", metavar="S", dest="for_", help="stop recording S seconds after the window began"
    )
    parser.add_argument(
        "--every",
        metavar="N",
        help="open the window again every N steps (with --steps) or N seconds (with --for)",
    )

    parser.add_argument(
        "--paused",
        action="store_true",
        help="record nothing until `layerscope start`, and no more after `layerscope stop`",
    )


def window_of(arguments: argparse.Namespace) -> RequestedWindow | None:
    """What the arguments ask for; None: everything. UsageError when it makes no sense."""
    steps, after, for_, every = arguments.steps, arguments.after, arguments.for_, arguments.every
    if arguments.paused:
        return _steered(arguments)
    if steps is None and after is None and for_ is None:
        if every is not None:
            raise UsageError("--every repeats a window. Say which: --steps A:B, or --for S")
        return None
    after_s = None if after is None else seconds("--after", after, 0.0)
    for_s = None if for_ is None else seconds("--for", for_)
    if steps is not None:
        return _of_steps(steps, after, for_s, every)
    if every is None:
        return RequestedWindow(after_s=after_s, for_s=for_s)
    if for_s is None:
        raise UsageError("--every repeats a window that ends. Say how long it is: --for S")
    every_s = seconds("--every", every)
    if every_s <= for_s:
        raise UsageError(
            f"--every {every} leaves nothing between windows of {for_s:g} s. Leave it out, or make "
            "it longer"
        )
    return RequestedWindow(after_s=after_s, for_s=for_s, every=every_s)


def _steered(arguments: argparse.Namespace) -> RequestedWindow:
    """A window that is opened from outside."""
    others = ("steps", "after", "for_", "every")
    named = [f"--{name.strip('_')}" for name in others if getattr(arguments, name) is not None]
    if named:
        raise UsageError(
            f"--paused leaves it to `layerscope start` when a window opens. Leave {named[0]} out, "
            "or --paused"
        )
    return RequestedWindow(steered=True)


def _of_steps(
    steps: str, after: str | None, for_s: float | None, every: str | None
) -> RequestedWindow:
    first, last = _range(steps)
    if after is not None:
        raise UsageError(
            "a window begins either at a step or at a time. Leave --steps or --after out"
        )
    if last is not None and for_s is not None:
        raise UsageError(
            f"--steps {steps} and --for both set the end of the window. For example: --steps "
            f"{first}: --for 5"
        )
    if every is None:
        return RequestedWindow(first=first, last=last, for_s=for_s)
    if last is None:
        raise UsageError(
            f"--every repeats a window that ends. Say with which step: --steps {first}:{first + 10}"
        )
    if not re.fullmatch(r"\d+", every) or not 0 < int(every) <= MOST_STEPS:
        raise UsageError(
            f"--every {every}: with --steps it is a whole number of steps, such as 100"
        )
    if int(every) <= last - first:
        raise UsageError(
            f"--every {every} leaves nothing between windows of {last - first:,} steps. Leave it "
            "out, or make it larger"
        )
    return RequestedWindow(first=first, last=last, every=int(every))


def _range(steps: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"(\d*):(\d*)", steps.strip(), re.ASCII)
    if found is None or not (found[1] or found[2]):
        raise UsageError(
            f"--steps {steps} is no window. It is A:B for the steps A to B-1, such as 10:20, 10: "
            "or :20"
        )
    first, last = int(found[1] or 0), int(found[2]) if found[2] else None
    if max(first, last or 0) > MOST_STEPS:
        raise UsageError(f"--steps {steps}: steps are counted up to {MOST_STEPS:,}")
    if last is not None and last <= first:
        raise UsageError(
            f"--steps {steps} holds no step: the second number is the step behind the last one"
        )
    return first, last


def seconds(option: str, word: str, least: float | None = None) -> float:
    """A number of seconds above 0, or from `least` on."""
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    is_wrong = not math.isfinite(found) or found < 0
    if least is None and not found:
        is_wrong = True
    if is_wrong:
        raise UsageError(f"{option} {word} is no number of seconds. For example: {option} 5")
    return found
