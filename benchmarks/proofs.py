"""Whether `layerscope findings --prove` says what is true: of changes that change nothing, of a
variable and an argument that make the program faster, of another command that makes it slower.

The program prepares its samples on the thread of its steps (a pair of tests/findings/pairs), which
is what SICK=1 switches on.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass

from measuring.report import Report
from measuring.runs import HERE, Setting, execute

ONLY_WHEN_NAMED = True
RULE = "heavy_preprocessing"
PROGRAM = HERE.parents[1] / "tests" / "findings" / "pairs" / f"{RULE}.py"
NOTHING, PROVEN, REFUTED = "no difference measurable", "proven", "refuted"
NULL_CHANGES = 20
RIGHT = 19
# Of each proof, in minutes.
BUDGET_MIN = 0.7
PROOF_S = 300.0


@dataclass(frozen=True)
class Trial:
    """A change of the program that runs with SICK=`sick`, and the verdict that is right."""

    change: tuple[str, ...]
    right: str
    sick: int = 1


def run(setting: Setting) -> Report:
    """Each change, one after the other."""
    report = Report("Proofs: the verdicts on changes with a known effect")
    table = report.table("Changes", "change", "right verdict", "runs", "said")
    null_changes = 2 if setting.quick else NULL_CHANGES
    null = [Trial(("--with-env", f"UNUSED={number}"), NOTHING) for number in range(null_changes)]
    said = Counter(verdict(setting, one) for one in null)
    table.add("a variable that nothing reads", NOTHING, str(null_changes), words(said))
    report.data["null"] = dict(said)
    for name, one in with_effect(setting).items():
        found = Counter([verdict(setting, one)])
        table.add(name, one.right, "1", words(found))
        report.data[name] = dict(found)
    report.remarks.append(
        f"Of {NULL_CHANGES} changes that change nothing at least {RIGHT} must be called "
        f"{NOTHING!r}. Each proof had {BUDGET_MIN:g} minutes."
    )
    return report


def with_effect(setting: Setting) -> dict[str, Trial]:
    """Changes that make the program faster or slower."""
    other = f"env SICK=1 {setting.program} {PROGRAM}"
    return {
        "a variable that takes the fault away": Trial(("--with-env", "SICK=0"), PROVEN),
        "a command that has the fault": Trial(("--with", other), REFUTED, sick=0),
    }


def words(said: Counter[str]) -> str:
    """The verdicts with their counts."""
    return ", ".join(f"{count} {name}" for name, count in said.most_common())


def verdict(setting: Setting, trial: Trial) -> str:
    """Record the program with the fault and ask for a proof of the change."""
    path = setting.folder / "proof.layerscope"
    program = [setting.program, str(PROGRAM)]
    ours = [setting.tool, "-m", "layerscope"]
    if not path.exists():
        execute(setting, ["env", "SICK=1", *ours, "run", "-q", "-o", str(path), "--", *program])
    (path / "proofs.json").unlink(missing_ok=True)
    shutil.rmtree(setting.folder / "cache" / "layerscope" / "proofs", ignore_errors=True)
    ask = ["findings", str(path), "--prove", RULE, *trial.change, "--any-output", "-q"]
    budget = ["--budget", str(BUDGET_MIN)]
    command = ["env", f"SICK={trial.sick}", *ours, *ask, *budget, "--", *program]
    execute(setting, command, timeout_s=PROOF_S)
    (kept,) = json.loads((path / "proofs.json").read_text())
    return str(kept["verdict"])
