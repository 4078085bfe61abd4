"""What a check is given and what it gives."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from layerscope.host.machine import Machine
from layerscope.host.watch import Watched
from layerscope.model.measured import Measured

# From good to bad; UNSEEN is neither: the machine does not say.
OK, NOTE, WARNING, ERROR, UNSEEN = "ok", "note", "warning", "error", "unseen"
STATES = (OK, NOTE, WARNING, ERROR, UNSEEN)


class Seen(Struct, frozen=True):
    """All that checks judge. `watched`: what changed while we looked; `measured`: what was tried
    out. None: not asked.

    `variables`: those of `host.process.VARIABLES` that are set: of the process, and of this shell
    without one.
    """

    machine: Machine
    watched: Watched | None = None
    measured: Measured | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


class Check(Struct, frozen=True):
    """One judgement: what it is about, how it stands, the facts, what follows from them, and what
    to do.

    `code` is a stable name for machines, `subject` the word for people (several checks may share
    one). `consequence` and `remedy` may be empty where all is well; a remedy is a command or a line
    to paste wherever there is one.
    """

    code: str
    subject: str
    state: str
    evidence: str
    consequence: str = ""
    remedy: str = ""
