"""One hostile case: a real program in a setting, with and without the recorder, and what the
recording says of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.differential import Differential, Outcome, Recorded, program

STEPS = 20
HYPOT = "aten::hypot"
Result = tuple[int, bytes, dict[str, bytes]]
# By command, of the programs that were run outside of any setting.
_ANYWHERE: dict[tuple[str, ...], Result] = {}


def result(outcome: Outcome) -> Result:
    """What is the same both ways."""
    return outcome.status, outcome.stdout, outcome.files


class Case(Differential):
    """Runs trains.py, or another program, both ways in the same setting."""

    def __init__(self, folder: Path, python: str, options: Sequence[str] = ()) -> None:
        self.everybody_writes = False
        super().__init__(folder, options)
        self.python = python
        self.stderr = ""

    def _fresh(self) -> None:
        super()._fresh()
        if self.everybody_writes:
            for path in (self.work, self.work.parent):
                path.chmod(0o777)

    def both(
        self,
        around: Sequence[str] = (),
        within: Sequence[str] = (),
        command: Sequence[str] = (),
        **more: Any,
    ) -> Outcome:
        """The program's result, which is the same both ways.

        `around`: the setting of layerscope and the program; `within`: of the program alone.
        """
        command = command or program(self.python, "trains.py", str(STEPS))
        with_us = self.run([*around, *self.recorder(quiet=False), *within, *command], **more)
        self.stderr = with_us.stderr.decode(errors="replace")
        # Mostly the setting changes nothing for the program itself. Where it does, how much may go
        # wrong for it, and how it says so, is not ours; its result is the same.
        if result(with_us) != self._anywhere(command):
            without = self.run([*around, *within, *command], **more)
            assert result(with_us) == result(without), self.stderr
        assert "Traceback" not in self.stderr
        assert "layerscope itself failed" not in self.stderr
        return with_us

    def _anywhere(self, command: Sequence[str]) -> Result:
        """What the program comes to without us and outside of any setting."""
        if tuple(command) not in _ANYWHERE:
            _ANYWHERE[tuple(command)] = result(self.run(command))
        return _ANYWHERE[tuple(command)]

    def trained(self, outcome: Outcome) -> None:
        """The program did what it does anywhere."""
        assert outcome.status == 3, outcome.stderr.decode(errors="replace")
        assert re.fullmatch(rb"0x1\.[0-9a-f]+p[+-]\d+\n", outcome.stdout)

    def complete(self, outcome: Outcome, but: frozenset[str] = frozenset()) -> Recorded:
        """The program trained, all of it is in the tables, and nothing is said to be lost `but`
        with these codes.
        """
        self.trained(outcome)
        recorded = self.recorded()
        assert set(recorded.problems()) <= but, recorded.problems()
        assert recorded.gaps() == {}
        assert recorded.count(HYPOT) == STEPS
        assert recorded.rows("SELECT count(*) AS n FROM steps") == [{"n": STEPS}]
        assert recorded.rows("SELECT count(*) AS n FROM spans WHERE dur_ns < 0 OR self_ns < 0") == [
            {"n": 0}
        ]
        return recorded

    def told(self, code: str, *words: str) -> None:
        """The recording says it in one sentence, and so does what was printed: what, why, and the
        remedy.
        """
        rows = self.recorded().rows(
            f"SELECT what, remedy, lost FROM problems WHERE code = '{code}'"
        )
        assert len(rows) == 1, self.recorded().problems()
        assert all(rows[0].values()), rows
        sentence = f"{rows[0]['what']} {rows[0]['remedy']}"
        printed = " ".join(self.stderr.split())
        for word in words:
            assert word in sentence, sentence
        assert " ".join(str(rows[0]["what"]).split()) in printed, self.stderr
