"""A way to start the program that does not change what it computes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from layerscope.host.machine import Machine


class Setting(Struct, frozen=True):
    """`name` is shown and unique: "threads=1 wait=passive"; the default has none of what follows.

    `variables` are set for the program, `preload` are libraries in front of its LD_PRELOAD,
    `prefix` words in front of its command (numactl, taskset), `arguments` options of its own that
    are given another value ({"--batch-size": "16"}, written as one word with `=` where its command
    does so). `because` says in half a sentence why it may help. `program`: the words of another
    command, which takes the place of the program's.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    because: str = ""
    program: tuple[str, ...] = ()

    def together(self, other: Setting) -> Setting:
        """Both; where they set the same, `other` wins."""
        return Setting(
            f"{self.name} {other.name}".strip() if self != DEFAULT else other.name,
            {**self.variables, **other.variables},
            (*self.preload, *(library for library in other.preload if library not in self.preload)),
            (*self.prefix, *other.prefix),
            {**self.arguments, **other.arguments},
            other.because or self.because,
            other.program or self.program,
        )

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of the program: `base` with what this sets."""
        environment = {**base, **self.variables}
        if self.preload:
            preloaded_before = base.get("LD_PRELOAD", "")
            libraries = filter(None, [*self.preload, preloaded_before])
            environment["LD_PRELOAD"] = ":".join(libraries)
        return environment

    def command(self, program: Sequence[str]) -> list[str]:
        """The words that start it; an option that `program` does not have yet is added at its
        end.
        """
        words = list(self.program or program)
        for option, value in self.arguments.items():
            _replace(words, option, value)
        return [*self.prefix, *words]

    def words(self, program: Sequence[str]) -> list[str]:
        """The words of one command that starts `program` this way, whatever else its environment
        has.
        """
        command = list(self.command(program))
        variables = self._changed_variables()
        if not variables:
            return command
        assignments = [f"{name}={value}" for name, value in variables.items()]
        return ["env", *assignments, *command]

    def line(self, program: Sequence[str]) -> str:
        """The same for a shell."""
        variables = self._changed_variables()
        words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        if words:
            words.insert(0, "env")
        words.append(shlex.join(self.command(program)))
        return " ".join(words)

    def _changed_variables(self) -> dict[str, str]:
        """What our own environment has not."""
        ours = {}
        if "LD_PRELOAD" in os.environ:
            ours["LD_PRELOAD"] = os.environ["LD_PRELOAD"]
        changed = {}
        for name, value in self.environment(ours).items():
            if os.environ.get(name) != value:
                changed[name] = value
        return changed


DEFAULT = Setting("default")


class TuneContext(Struct, frozen=True):
    """What decides which settings are worth a try: the machine, and the program's environment and
    command.

    `libraries`: paths of what the program had mapped in a first run under the defaults;
    `has_steps`: whether its steps are known; `presets`: only the article's.
    """

    machine: Machine
    environment: Mapping[str, str]
    program: Sequence[str]
    libraries: tuple[str, ...] = ()
    has_steps: bool = False
    presets: bool = False


def _replace(words: list[str], option: str, value: str) -> None:
    joined = f"{option}={value}"
    for place, word in enumerate(words):
        following = place + 1
        if word == option and following < len(words):
            words[following] = value
            return
        if word.startswith(f"{option}="):
            words[place] = joined
            return
    if option.startswith("--"):
        words.append(joined)
    else:
        words += [option, value]
