"""The options of `run` that say which layers are recorded and how often stacks are sampled."""

from __future__ import annotations

import argparse
import re

from layerscope.capture.sampler import HZ, MOST_HZ
from layerscope.model.errors import UsageError, did_you_mean
from layerscope.model.layers import MODULES, PRIMITIVES, STACKS
from layerscope.session.budget import DEFAULT_SHARE, BudgetOptions
from layerscope.session.requested_layers import ALWAYS, DEFAULT, ON_REQUEST, VERBOSE


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--layers",
        metavar="LIST",
        default="",
        help="record these layers beside operators and counters, or with + and - these more or "
        "less: "
        f"{', '.join([*DEFAULT, *ON_REQUEST])}",
    )
    parser.add_argument(
        "--without",
        metavar="LIST",
        default="",
        help="do not record these layers, as --layers=-NAME does not",
    )
    parser.add_argument(
        "--rate",
        metavar="HZ",
        help=f"stack samples per second of CPU time of a thread (default {HZ})",
    )
    parser.add_argument(
        "--budget",
        metavar="SHARE",
        help="when the recording uses more CPU time than this share of the program's, such as 3%%: "
        "sample stacks more rarely, pause the profiler of XLA, and pause the whole recording for "
        f"some seconds again and again (default {DEFAULT_SHARE:.0%}%, which never pauses all, and "
        "is for stacks only unless --rate is given); none: record everything",
    )


def layers_of(arguments: argparse.Namespace) -> frozenset[str]:
    """The layers that the arguments ask for. UsageError when they ask for none that there is."""
    words = _words(arguments.layers)
    signed = [word for word in words if word[0] in "+-"]
    if signed and len(signed) < len(words):
        raise UsageError(
            f"--layers {arguments.layers}: either all names have a sign or none, such as "
            f"+{VERBOSE},-{MODULES}"
        )
    chosen = set(DEFAULT if signed or not words else map(_layer, words))
    chosen |= {_layer(word[1:]) for word in signed if word[0] == "+"}
    left_out = [word[1:] for word in signed if word[0] == "-"] + _words(arguments.without)
    for name in left_out:
        if name in ALWAYS:
            raise UsageError(
                f"{name} are always recorded and cannot be left out: all other layers belong to "
                "them"
            )
    chosen -= set(map(_layer, left_out))
    chosen |= set(ALWAYS)
    if PRIMITIVES not in chosen and VERBOSE in chosen:
        raise UsageError(f"{VERBOSE} are {PRIMITIVES} too. Leave out one of the two options")
    return frozenset(chosen)


def rate_of(arguments: argparse.Namespace, layers: frozenset[str]) -> int:
    """Samples of a thread in a second of its CPU time. UsageError when that cannot be meant."""
    if arguments.rate is None:
        return HZ
    if STACKS not in layers:
        raise UsageError(f"--rate {arguments.rate}: {STACKS} are left out, so there are no samples")
    try:
        rate = int(arguments.rate)
    except ValueError:
        rate = 0
    if not 1 <= rate <= MOST_HZ:
        raise UsageError(f"--rate {arguments.rate}: give a whole number from 1 to {MOST_HZ}")
    return rate


def budget_of(arguments: argparse.Namespace, layers: frozenset[str]) -> BudgetOptions | None:
    """What the recording may cost; None: whatever it does. UsageError when that cannot be meant."""
    text = arguments.budget
    if text is None:
        is_free = STACKS not in layers or arguments.rate is not None
        return None if is_free else BudgetOptions(DEFAULT_SHARE)
    if text.strip().lower() == "none":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    share = float(found[1]) / 100 if found else 0.0
    if not 0 < share <= 1:
        raise UsageError(
            f"--budget {text}: give a percentage above 0 and up to 100, such as 3%, or none"
        )
    return BudgetOptions(share, is_asked=True)


def profiler_share_of(arguments: argparse.Namespace, budget: BudgetOptions | None) -> float | None:
    """Which share of the program's CPU time a profiler of a framework may take; None: whatever it
    does.
    """
    if budget is not None:
        return budget.share
    return DEFAULT_SHARE if arguments.budget is None else None


def _words(text: str) -> list[str]:
    words = map(str.strip, text.split(","))
    return [word for word in words if word]


def _layer(name: str) -> str:
    if name not in (*DEFAULT, *ON_REQUEST):
        known = [*DEFAULT, *ON_REQUEST]
        raise UsageError(
            f"there is no layer {name!r}.{did_you_mean(name, known)} The layers are "
            f"{', '.join(known)}"
        )
    return name
