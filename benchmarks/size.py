"""Bytes of a recording, a span."""

from __future__ import annotations

from measuring.report import Report, at_most
from measuring.runs import Recorded, Setting, recorded
from measuring.watch import folder_bytes

TABLES_TARGET, ALL_TARGET = 10.0, 18.0
PROGRAMS = {
    "mnist_cnn.py": ["--epochs", "2", "--threads", "1"],
    "mnist_mlp.py": ["--epochs", "2", "--threads", "1"],
    "many_small_ops.py": ["--operators", "1000000"],
}
QUICK = {"--epochs": "1", "--operators": "300000"}
QUICK_LIMIT = ["--limit", "60"]


def run(setting: Setting) -> Report:
    """Record each example once."""
    report = Report("Size: bytes a span on disk")
    table = report.table(
        "Recordings of the examples",
        "program",
        "spans",
        "the spans table",
        "all tables",
        "target",
        "with raw",
        "target",
    )
    for program, words in PROGRAMS.items():
        with recorded(setting, program, *(shortened(words) if setting.quick else words)) as run:
            spans = run.rows("spans")
            sizes = measured(run)
        tables, everything = sizes["tables"] / spans, (sizes["tables"] + sizes["raw"]) / spans
        table.add(
            program,
            f"{spans:,}",
            f"{sizes['spans'] / spans:.2f}",
            f"{tables:.2f}",
            at_most(tables, TABLES_TARGET),
            f"{everything:.2f}",
            at_most(everything, ALL_TARGET),
        )
        report.data[program] = {"spans": spans, **sizes}
    report.remarks.append(
        "All tables: everything in the folder but raw. Small tables weigh more in a short "
        "recording."
    )
    return report


def shortened(words: list[str]) -> list[str]:
    """For a quick run."""
    less = [QUICK.get(option, word) for option, word in zip(["", *words], words, strict=False)]
    return [*less, *(QUICK_LIMIT if "--epochs" in words else [])]


def measured(run: Recorded) -> dict[str, int]:
    """Bytes on disk: of raw, of all else, of the spans table alone."""
    whole, raw = folder_bytes(run.run.path), folder_bytes(run.run.raw)
    return {"raw": raw, "tables": whole - raw, "spans": folder_bytes(run.run.path / "spans")}
