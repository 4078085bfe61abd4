"""Words that several checks share, and what follows from the CPUs that are granted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from layerscope.host.cpu import Cpu


def threads_granted(cpu: Cpu) -> int:
    """How many threads can run all the time: more would be held back by the limit of CPU time."""
    # A quota is a quotient of microseconds: 2.9999 CPUs are three.
    return max(1, math.floor(cpu.granted + 0.01))


def threads_requested(variables: Mapping[str, str]) -> int | None:
    """What OMP_NUM_THREADS says of the outermost threads; None where it says nothing."""
    value = variables.get("OMP_NUM_THREADS", "")
    outermost, _, _ = value.partition(",")
    word = outermost.strip()
    if not word.isdecimal():
        return None
    return int(word) or None


def counted(number: float, word: str, plural: str = "") -> str:
    """`number` with its noun: "1 CPU", "1.5 CPUs", "64 threads"."""
    text = f"{number:.3g}"
    if isinstance(number, int):
        text = f"{number:,d}"
    if text == "1":
        return f"1 {word}"
    noun = plural or f"{word}s"
    return f"{text} {noun}"


def listed(words: Iterable[str], link: str = "and") -> str:
    """`words` as in a sentence: "a, b and c"."""
    all_words = list(words)
    *first, last = all_words or [""]
    if not first:
        return last
    beginning = ", ".join(first)
    return f"{beginning} {link} {last}"


def cpu_list(cpus: Iterable[int]) -> str:
    """Numbers of CPUs as taskset and numactl take them: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(cpus)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = []
    for first, last in runs:
        word = f"{first}" if first == last else f"{first}-{last}"
        words.append(word)
    return ",".join(words)


def percent(share: float) -> str:
    """A share as people say it: "0.4 %", "12 %"."""
    value = 100 * share
    if value == 0 or value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %"
