"""A way to start the program that does not change what it computes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerscope.host.machine import Machine


@dataclass(frozen=True)
class Setting:
    """`name` is shown and unique: "threads=1 wait=passive"; the default has none of what follows.

    `variables` are set for the program, `preload` are libraries in front of its LD_PRELOAD,
    `prefix` words in front of its command (numactl, taskset), `arguments` options of its own that
    are given another value ({"--batch-size": "16"}, written as one word with `=` where its command
    does so). `because` says in half a sentence why it may help.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    because: str = ""

    def together(self, other: Setting) -> Setting:
        """Both; where they set the same, `other` wins."""
        return Setting(
            f"{self.name} {other.name}".strip() if self != DEFAULT else other.name,
            {**self.variables, **other.variables},
            (*self.preload, *(library for library in other.preload if library not in self.preload)),
            (*self.prefix, *other.prefix),
            {**self.arguments, **other.arguments},
            other.because or self.because,
        )

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of the program: `base` with what this sets."""
        made = {**base, **self.variables}
        if self.preload:
            made["LD_PRELOAD"] = ":".join(filter(None, [*self.preload, base.get("LD_PRELOAD", "")]))
        return made

    def command(self, program: Sequence[str]) -> list[str]:
        """The words that start it; an option that `program` does not have yet is added at its
        end.
        """
        words = list(program)
        for option, value in self.arguments.items():
            _replace(words, option, value)
        return [*self.prefix, *words]

    def words(self, program: Sequence[str]) -> list[str]:
        """The words of one command that starts `program` this way, whatever else its environment
        has.
        """
        told = [f"{name}={value}" for name, value in self._told().items()]
        return [*(["env", *told] if told else []), *self.command(program)]

    def line(self, program: Sequence[str]) -> str:
        """The same for a shell."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self._told().items()]
        if words:
            words.insert(0, "env")
        words.append(shlex.join(self.command(program)))
        return " ".join(words)

    def _told(self) -> dict[str, str]:
        """What our own environment has not."""
        made = self.environment(
            {name: os.environ[name] for name in ("LD_PRELOAD",) if name in os.environ}
        )
        return {name: value for name, value in made.items() if os.environ.get(name) != value}


DEFAULT = Setting("default")


@dataclass(frozen=True)
class TuneContext:
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
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            words[place + 1] = value
            return
        if word.startswith(f"{option}="):
            words[place] = f"{option}={value}"
            return
    words += [f"{option}={value}"] if option.startswith("--") else [option, value]
