"""What a program pays outside of a window, for tiny operators: over the same program without
layerscope.
"""

from __future__ import annotations

from functools import partial

from measuring.intervals import ratio_of_medians
from measuring.report import Report, at_most, interval
from measuring.runs import Setting, interleave, plain, recorded

STEPS, QUICK_STEPS = 150, 20
BUDGET_S = 240.0
OUTSIDE = 1.02
ARMS = {
    "inside: all is recorded": (),
    "outside of --steps 1000000:": ("--steps", "1000000:"),
    "outside of --after 1000000": ("--after", "1000000"),
}


def run(setting: Setting) -> Report:
    """Processes in turns."""
    report = Report("Windows: CPU time of tiny operators under layerscope run -q, over without")
    words = [str(QUICK_STEPS if setting.quick else STEPS)]
    arms = {"without": partial(_plain, setting, words)}
    arms |= {name: partial(_recorded, setting, words, options) for name, options in ARMS.items()}
    found = interleave(arms, setting.pairs, BUDGET_S)
    table = report.table(
        "Two processes, in turns",
        "program",
        "pairs",
        "ns an operator",
        "ratio of medians",
        "target",
    )
    for name, operator_ns in found.items():
        ratio = ratio_of_medians(operator_ns, found["without"])
        median_ns = sorted(operator_ns)[len(operator_ns) // 2]
        is_outside = name.startswith("outside")
        target = at_most(ratio.high, OUTSIDE, f"<= {OUTSIDE:.2f}") if is_outside else ""
        table.add(
            name,
            str(len(operator_ns)),
            f"{median_ns:.0f}",
            interval(ratio) if name != "without" else "",
            target,
        )
        report.data[name] = {"operator_ns": operator_ns, "ratio": ratio}
    report.remarks.append("Intervals are 95 %; targets are for their upper ends.")
    return report


def _plain(setting: Setting, words: list[str]) -> float:
    return _operator_ns(plain(setting, "steps.py", *words).json)


def _recorded(setting: Setting, words: list[str], options: tuple[str, ...]) -> float:
    with recorded(setting, "steps.py", *words, options=options) as run:
        return _operator_ns(run.done.json)


def _operator_ns(told: dict[str, int]) -> float:
    return told["cpu_ns"] / told["operators"]
