"""How often the limit of CPU time of the control group held threads back."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import ERROR, NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import counted, percent, threads_granted
from layerscope.model import units

ORDER = 20

# Of the periods in which a limit was looked at: what is held back in half of them gets no more CPUs
# than the limit.
_OFTEN, _SOMETIMES = 0.5, 0.02
_BACK = (
    "All threads stand still until the period (usually 0.1 s) ends, those that hold locks too: "
    "times vary and grow."
)


def check(seen: Seen) -> Iterator[Check]:
    """One judgement: of what was watched, else of the time since the group was made."""
    group, watched = seen.machine.cgroup, seen.watched
    if not group.version or (group.cpus is None and group.is_hidden):
        what = (
            "the files of its control group are not visible here"
            if group.is_hidden
            else "there is no control group"
        )
        yield Check("throttling", "throttling", UNSEEN, what)
        return
    if group.cpus is None:
        yield Check("throttling", "throttling", OK, "the control group has no limit of CPU time")
        return
    limit = f"a limit of {counted(group.cpus, 'CPU')}"
    before = _times(group.throttled, group.periods, group.throttled_ns)
    if watched is not None and watched.throttled is not None:
        share = _share(watched.throttled, watched.periods)
        what = (
            f"{limit}: {_times(watched.throttled, watched.periods, watched.throttled_ns)} in "
            f"{watched.seconds:.3g} s"
        )
        what += (
            f" ({percent(_share(group.throttled, group.periods))} since the group was made)"
            * bool(group.periods)
        )
        if not watched.throttled:
            what = (
                f"{limit}: not once in {watched.seconds:.3g} s; since the group was made {before}"
            )
    elif group.throttled is None:
        yield Check(
            "throttling",
            "throttling",
            UNSEEN,
            f"{limit}; the kernel does not count how often it held back",
        )
        return
    else:
        share = _share(group.throttled, group.periods)
        what = f"{limit}: {before} since the group was made"
    yield _judged(seen, what, share)


def _judged(seen: Seen, what: str, share: float) -> Check:
    """What it means that the limit held the program up in this share of the periods."""
    if share < _SOMETIMES:
        if not share:
            return Check("throttling", "throttling", OK, what, "")
        return Check("throttling", "throttling", NOTE, what, _BACK)
    state = WARNING
    if share >= _OFTEN:
        state = ERROR
    threads = threads_granted(seen.machine.cpu)
    remedy = f"export OMP_NUM_THREADS={threads}"
    if seen.variables.get("OMP_NUM_THREADS") == str(threads):
        remedy = "docker update --cpus=N CONTAINER, or in Kubernetes a larger resources.limits.cpu"
    return Check("throttling", "throttling", state, what, _BACK, remedy)


def _share(throttled: int | None, periods: int | None) -> float:
    if not throttled:
        return 0.0
    if not periods:
        return 1.0
    return throttled / periods


def _times(throttled: int | None, periods: int | None, held_ns: int | None) -> str:
    """How often, and for how long."""
    if not throttled:
        return "never throttled"
    words = f"throttled in {throttled:,}"
    if periods:
        words += f" of {periods:,}"
    words += " periods"
    if held_ns is not None:
        words += f", {units.duration(held_ns)} of CPU time held back"
    return words
