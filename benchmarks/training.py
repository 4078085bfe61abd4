"""A real training of ten minutes on all cores: is anything lost, what is left of it, how soon is
the prompt there?
"""

from __future__ import annotations

from measuring.long_runs import LongReport, measure
from measuring.report import Report
from measuring.runs import Setting

ONLY_WHEN_NAMED = True
SECONDS, QUICK_SECONDS = 600.0, 30.0


def run(setting: Setting) -> Report:
    """examples/transformer.py, as it is, for as long."""
    seconds = setting.seconds or (QUICK_SECONDS if setting.quick else SECONDS)
    report = LongReport("Training: ten minutes of a transformer on all cores")
    found = measure(
        setting, "transformer.py", ["--seconds", f"{seconds:g}", "--report-every", "1000"], seconds
    )
    report.add("transformer", "training.svg", found)
    return report.report
