"""Words that several checks share, and what follows from the CPUs that are granted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from layerscope.host.cpu import Cpu


def threads_granted(cpu: Cpu) -> int:
    """How many threads can run all the time: more would be held back by the limit of CPU time."""
    # A quota is a quotient of microseconds: 2.9999 CPUs are three.
    return max(1, math.floor(cpu.granted + 0.01))


def threads_told(variables: Mapping[str, str]) -> int | None:
    """What OMP_NUM_THREADS says of the outermost threads; None where it says nothing."""
    word = variables.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(word) if word.isdecimal() and int(word) > 0 else None


def counted(number: float, word: str, plural: str = "") -> str:
    """`number` with its noun: "1 CPU", "1.5 CPUs", "64 threads"."""
    text = f"{number:,d}" if isinstance(number, int) else f"{number:.3g}"
    return f"{text} {word if text == '1' else plural or word + 's'}"


def listed(words: Iterable[str], link: str = "and") -> str:
    """`words` as in a sentence: "a, b and c"."""
    given = list(words)
    return f" {link} ".join(filter(None, [", ".join(given[:-1]), *given[-1:]]))


def cpu_list(cpus: Iterable[int]) -> str:
    """Numbers of CPUs as taskset and numactl take them: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(cpus)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def percent(share: float) -> str:
    """A share as people say it: "0.4 %", "12 %"."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"
