"""An hour in fast motion, through the real agent and its rings: does memory stay flat, the folder
below its cap?
"""

from __future__ import annotations

import json

from measuring.long_runs import Expected, LongReport, measure
from measuring.report import Report
from measuring.runs import Setting

ONLY_WHEN_NAMED = True
SECONDS, QUICK_SECONDS = 3600.0, 60.0
SHARE_WITHOUT_STEPS = 1 / 6
RATE, NAMES = 500_000, 10_000


def run(setting: Setting) -> Report:
    """With steps, then without."""
    whole_s = setting.seconds or (QUICK_SECONDS if setting.quick else SECONDS)
    report = LongReport("Long runs: an hour in fast motion")
    for name, picture, seconds, more in (
        ("with steps", "long.svg", whole_s, []),
        (
            "without steps",
            "long_without_steps.svg",
            whole_s * SHARE_WITHOUT_STEPS,
            ["--without-steps"],
        ),
    ):
        found = measure(setting, "hours.py", ["--seconds", f"{seconds:g}", *more], seconds)
        steps = json.loads(found.out.splitlines()[-1])["steps"]
        report.add(name, picture, found, Expected(RATE, NAMES, steps))
    return report.report
