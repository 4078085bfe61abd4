"""CPU time of `layerscope export`, a million spans, for each format."""

from __future__ import annotations

import tempfile
from pathlib import Path

from measuring.intervals import mean_difference
from measuring.report import Report, at_most, interval
from measuring.runs import Recorded, Setting, execute, interleave, recorded

# Seconds a million spans, where there is a promise.
TARGETS = {".json": 1.5, ".json.gz": None, ".fxt": 0.1, ".parquet": None, ".csv": None}
PROGRAMS = {
    "many_small_ops.py": ["--operators", "1000000"],
    "mnist_cnn.py": ["--epochs", "1", "--limit", "400", "--threads", "1"],
}
QUICK = {"--operators": "300000", "--limit": "60"}
TINY = ["--operators", "100"]
RUNS, BUDGET_S = 10, 60


def run(setting: Setting) -> Report:
    """Export a long and a tiny recording in turns: what the spans cost is the difference."""
    report = Report("Export: CPU time of `layerscope export`")
    table = report.table(
        "Seconds of CPU",
        "program",
        "spans",
        "format",
        "a million spans",
        "a tiny recording",
        "bytes a span",
        "target",
    )
    with recorded(setting, "many_small_ops.py", *TINY) as tiny:
        for program, words in PROGRAMS.items():
            shorter = [
                QUICK.get(before, word) for before, word in zip(["", *words], words, strict=False)
            ]
            with recorded(setting, program, *(shorter if setting.quick else words)) as long:
                spans = long.rows("spans")
                for suffix, target in TARGETS.items():
                    times, size = exported(setting, long, tiny, suffix)
                    found = mean_difference(times["long"], times["tiny"]).scaled(1e6 / spans)
                    other_s = sum(times["tiny"]) / len(times["tiny"])
                    table.add(
                        program,
                        f"{spans:,}",
                        suffix,
                        interval(found),
                        f"{other_s:.2f}",
                        f"{size / spans:.1f}",
                        "" if target is None else at_most(found.high, target),
                    )
                    report.data[f"{program} {suffix}"] = {"spans": spans, "bytes": size, **times}
    report.remarks.append(
        "A million spans: the command on the long recording less the command on the tiny one, "
        "whole processes, by the "
        "spans. It holds all: reading the recording, nesting, flows, writing. Trimmed mean with 95 "
        "% interval."
    )
    return report


def exported(
    setting: Setting, long: Recorded, tiny: Recorded, suffix: str
) -> tuple[dict[str, list[float]], int]:
    """Seconds of CPU of the command on both recordings in turns, and the size of the long one's
    file.
    """
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:

        def once(run: Recorded, name: str) -> float:
            path = Path(folder) / f"{name}{suffix}"
            path.unlink(missing_ok=True)
            command = [
                setting.tool,
                "-m",
                "layerscope",
                "export",
                str(run.run.path),
                str(path),
                "-q",
            ]
            return execute(setting, command)[0].cpu_ns / 1e9

        arms = {"long": lambda: once(long, "long"), "tiny": lambda: once(tiny, "tiny")}
        times = interleave(arms, min(setting.pairs, RUNS), BUDGET_S)
        return times, (Path(folder) / f"long{suffix}").stat().st_size
