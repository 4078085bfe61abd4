"""What the summary says of the cost of the recording."""

from __future__ import annotations

from layerscope.analyse.recording_cost import Cost
from layerscope.model import units

_SHARE_OF_A_LONG_RUN = 1.0
# Of the steps, a share of at least this, and so many times that of the run, is worth saying.
_COSTLY_STEPS, _COSTLIER = 0.02, 1.5


def cost_sentence(cost: Cost) -> str:
    """What the recording cost in the program and beside it."""
    inside = "not measured in the program"
    if cost.inside is not None:
        inside = f"{_cost_percent(cost.inside)} in the program{_of_steps(cost)} (estimated)"
    if not cost.beside_ns:
        return inside
    # A short program costs less than starting our processes: a percentage would only alarm.
    if cost.beside and sum(cost.beside.values()) <= _SHARE_OF_A_LONG_RUN:
        total = _cost_percent(sum(cost.beside.values()))
        parts = {name: _cost_percent(share) for name, share in cost.beside.items()}
    else:
        total = f"{units.duration(sum(cost.beside_ns.values()))} of CPU"
        parts = {name: units.duration(cpu_ns) for name, cpu_ns in cost.beside_ns.items()}
    return (
        f"{inside}, {total} in layerscope's processes "
        f"({', '.join(f'{name} {spent}' for name, spent in parts.items())})"
    )


def _of_steps(cost: Cost) -> str:
    """What it was of the steps, where these pay much more than start and end of the program:
    those that do little but launch work of a GPU.
    """
    of_steps = cost.of_steps or 0.0
    least = max(_COSTLY_STEPS, _COSTLIER * (cost.inside or 0.0))
    return f", at least {_cost_percent(of_steps)} of its steps" if of_steps >= least else ""


def _cost_percent(share: float) -> str:
    return "<0.1 %" if share < 0.0005 else f"{100 * share:.1f} %"
