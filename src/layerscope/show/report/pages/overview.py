"""What ran, how long a step takes, on what it is spent, and what is wrong with the recording."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from layerscope.analyse.findings import RunFindings
from layerscope.analyse.step_times import StepTimes
from layerscope.analyse.summary import Summary, summarise
from layerscope.model.events import Problem
from layerscope.recording.reader import Reader
from layerscope.show import findings_text
from layerscope.show import summary as summary_text
from layerscope.show.cost_line import cost_sentence
from layerscope.show.memory_lines import memory_lines
from layerscope.show.resource_lines import resource_facts, thread_line
from layerscope.show.summary_idle import idle_row
from layerscope.show.summary_steps import steady, what_a_step_is
from layerscope.show.summary_words import step_noun
from layerscope.show.terminal import problem_sentence

TITLE = "Overview"
ORDER = 10


def data(reader: Reader) -> dict[str, Any]:
    """The figures of the summary."""
    found = summarise(reader)
    noun = ""
    if found.steps:
        noun = step_noun(found.steps)
    idle = idle_row(found)
    return {
        "headline": summary_text.headline(found),
        "text": summary_text.text(found),
        "noun": noun,
        "steps": _steps(found.steps),
        "operators": to_builtins(found.operators) if found.operators else None,
        "modules": to_builtins(found.modules) if found.modules else None,
        "missing": summary_text.what_is_missing(found),
        "facts": _facts(found, noun),
        "problems": [_problem(problem) for problem in found.problems],
        "failures": [" ".join(summary_text.failure_lines(found.failures, noun))],
        "idle": to_builtins(idle) if idle else None,
        "functions": to_builtins(found.functions) if found.functions else None,
        "cost": cost_sentence(found.cost),
        "memory": _memory(found, noun),
        "worth": _worth(found.findings),
    }


def _memory(found: Summary, noun: str) -> dict[str, Any] | None:
    """What was live at the peak, where allocations were recorded."""
    if found.blocks is None:
        return None
    return {"lines": [*memory_lines(found, noun)], "categories": found.blocks.categories}


def _worth(findings: RunFindings | None) -> list[dict[str, Any]]:
    """The first findings, as the summary shows them."""
    if findings is None:
        return []
    shown = findings.found[: findings_text.MOST_IN_SUMMARY]
    return [
        {
            "rule": one.rule,
            "title": one.title,
            "where": one.where.words(findings.folder),
            "price": findings_text.price_words(one.price),
            "certainty": one.certainty,
            "proven": one.proven,
        }
        for one in shown
    ]


def _steps(steps: StepTimes | None) -> dict[str, Any] | None:
    if steps is None:
        return None
    return {**to_builtins(steps), "measured": steps.measured}


def _facts(found: Summary, noun: str) -> list[str]:
    """Sentences about the steps and the resources that they took."""
    facts = []
    if found.steps:
        facts += [*what_a_step_is(found.steps, found.modules, found.generation)]
    if not found.info.imported_from:
        facts += [steady(found.steps), thread_line(found, noun), *resource_facts(found, noun)]
    return [fact for fact in facts if fact]


def _problem(problem: Problem) -> dict[str, str]:
    return {"layer": problem.layer, "sentence": problem_sentence(problem)}
