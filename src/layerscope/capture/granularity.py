"""Has frameworks execute each operator alone that execute several as one: `run --granularity
operator`. It changes how the program runs, so the recording says it.
"""

from __future__ import annotations

from collections.abc import Mapping

from layerscope.capture.frameworks import named_adapters
from layerscope.model.events import Problem
from layerscope.model.frameworks import frameworks
from layerscope.model.layers import OPERATORS

OPERATOR = "operator"
_OPTION = f"--granularity {OPERATOR}"


class SplitOperators:
    """The variables that this program gets, and what is said of them at its end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: of the program; what the user has set in it stays."""
        wanted: dict[str, str] = {}
        for adapter in named_adapters().values():
            wanted |= adapter.per_operator
        self.variables = {name: wanted[name] for name in wanted if name not in environment}
        self._others = {
            name: environment[name]
            for name, value in wanted.items()
            if environment.get(name, value) != value
        }

    def problems(self, used: Mapping[str, str]) -> list[Problem]:
        """What it has changed in a program that has used these frameworks, by name."""
        adapters = named_adapters()
        found = [
            self._problem(framework.title, adapters[framework.name].per_operator)
            for framework in frameworks()
            if framework.name in used
            and framework.name in adapters
            and adapters[framework.name].per_operator
        ]
        if found:
            return found
        what = (
            f"{_OPTION} changed nothing: the program has used no framework that executes several "
            "operators as one"
        )
        return [Problem(OPERATORS, "nothing_to_split", what, "leave the option out")]

    def _problem(self, title: str, variables: Mapping[str, str]) -> Problem:
        others = [f"{name}={value}" for name, value in self._others.items() if name in variables]
        if others:
            names = " ".join(others)
            what = f"{names} was set, so {title} may have executed several operators as one"
            remedy = f"unset it to have {_OPTION} split them"
            return Problem(OPERATORS, "split_refused", what, remedy)
        what = (
            f"{title} executed each operator alone, as {_OPTION} asks: the program ran in another "
            "way than it does by itself, and slower"
        )
        remedy = "record without the option to see how long a step takes"
        return Problem(OPERATORS, "operators_split", what, remedy)
