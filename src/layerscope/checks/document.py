"""All facts and judgements as JSON has them, and back: what `--json` writes and `--compare`
reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from layerscope.checks import judge
from layerscope.checks.check import Check, Seen
from layerscope.checks.compare import Side
from layerscope.host import machine
from layerscope.model.errors import ReadError
from layerscope.model.measured import Measured

COLUMNS = ("code", "subject", "state", "evidence", "consequence", "remedy")


def row(check: Check) -> tuple[str, ...]:
    """The values of `check` in the order of COLUMNS."""
    return tuple(getattr(check, name) for name in COLUMNS)


def facts(seen: Seen) -> dict[str, Any]:
    """What the checks judged."""
    watched, measured = msgspec.to_builtins((seen.watched, seen.measured))
    here = machine.as_json(seen.machine)
    return {
        "machine": here,
        "watched": watched,
        "measured": measured,
        "variables": dict(seen.variables),
    }


def side(data: Mapping[str, Any], name: str) -> Side:
    """What such facts, from `name`, say of a machine; those without checks are judged now. Raises
    ReadError.
    """
    try:
        here = machine.of_json(data["machine"])
        rates = data.get("measured")
        measured = msgspec.convert(rates, Measured | None)
        variables = msgspec.convert(data.get("variables", {}), dict[str, str])
        checks = _checks(data.get("columns", ()), data.get("rows", ()))
    except (KeyError, ValueError, TypeError, ReadError) as error:
        what = str(error)
        if isinstance(error, KeyError):
            what = f"it has no {error}"
        raise ReadError(
            f"{name} has no facts about a machine that can be read ({what}). Make them there by "
            "this version: layerscope platform --json > there.json"
        ) from error
    if not checks:
        seen = Seen(here, None, measured, variables)
        checks = tuple(judge.judged(seen))
    return Side(here, checks, measured)


def _checks(
    columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[str]]
) -> tuple[Check, ...]:
    names = [column["name"] for column in columns]
    if set(names) != {*COLUMNS}:
        return ()
    checks = []
    for values in rows:
        fields = dict(zip(names, values, strict=True))
        checks.append(Check(**fields))
    return tuple(checks)
