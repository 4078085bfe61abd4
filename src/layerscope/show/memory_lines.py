"""What the summary says of the blocks that were allocated: their peak and what leaks."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.memory.at_peak import BlocksAtPeak, LineGrowth
from layerscope.analyse.memory.categories import CATEGORIES, OTHER
from layerscope.analyse.memory.names import NO_LINE
from layerscope.analyse.summary import Summary
from layerscope.model import units
from layerscope.show.screen import printable

# How many categories are named at most, and from what part of the peak on.
_MOST_CATEGORIES = 5
_LEAST_SHARE = 0.01
# Where one is counted, of several blocks.
_PLURALS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "activation": "activations",
    "buffer": "buffers",
}


def memory_lines(summary: Summary, noun: str) -> Iterator[str]:
    """A line about the peak, and one about the line of the program that leaks. `noun`: what a step
    is called; empty where there are none.
    """
    blocks = summary.blocks
    if blocks is None:
        return
    folder = f"{summary.info.cwd}/"
    parts = [part for part in (_what(blocks), _most(blocks, folder)) if part]
    told = ""
    if parts:
        told = f": {'; '.join(parts)}"
    yield printable(f"{_peak(blocks, noun)}{told}")
    if blocks.growth is not None:
        yield printable(_leak(blocks.growth, noun, folder))


def _leak(leak: LineGrowth, noun: str, folder: str) -> str:
    """The line that allocates what nobody releases."""
    size = units.size(leak.bytes_per_step)
    low, high = units.size(leak.low), units.size(leak.high)
    sure = ""
    if low != high:
        sure = f" (95 %: {low} to {high})"
    line = leak.line.removeprefix(folder)
    what = f"allocates {size} a {noun}{sure}"
    return f"Leak: {line} {what} that was not released when the last step ended"


def _peak(blocks: BlocksAtPeak, noun: str) -> str:
    """How much it is, and when."""
    when = ""
    if blocks.after_ns is not None:
        after = units.duration(blocks.after_ns)
        when = f", after {after}"
    if blocks.step >= 0:
        when = f", in {noun} {blocks.step}"
        if blocks.phase != "other":
            when += f" ({blocks.phase})"
    what = "Memory"
    if blocks.is_tensors:
        what = "Tensors"
    return f"{what}: {blocks.size} at the peak{blocks.whose}{when}"


def _what(blocks: BlocksAtPeak) -> str:
    """The largest categories; nothing where there is no other than the rest."""
    rest = {CATEGORIES[OTHER]}
    if set(blocks.categories) <= rest:
        return ""
    least = _LEAST_SHARE * blocks.bytes
    parts = []
    for name, size in blocks.categories.items():
        if size >= least:
            named = _PLURALS.get(name, name)
            held = units.size(size)
            parts.append(f"{named} {held}")
    most = parts[:_MOST_CATEGORIES]
    return ", ".join(most)


def _most(blocks: BlocksAtPeak, folder: str) -> str:
    """The line that holds most, where it is known."""
    line, size = next(iter(blocks.lines.items()), (NO_LINE, 0))
    if line == NO_LINE:
        return ""
    name = line.removeprefix(folder)
    return f"most of {name}: {units.size(size)}"
