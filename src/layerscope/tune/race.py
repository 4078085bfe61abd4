"""Which setting is faster, and how sure that is: shuffled rounds, paired ratios, elimination, a
final comparison.

A round runs every setting still in the race once, the defaults among them, in shuffled order.
Settings leave by the rule of elimination.py. They come in stages: those of a later stage are tried
on top of what has surely won before. In the end the best one and the defaults run in pairs, in
random order within each (final.py): only that decides, because whoever leads a race of many was
also lucky in it.

Under contention the comparison stays fair, since all run beside the same others, but it holds for a
machine as busy as that: so it is told, and so is a busy machine that may be why nothing was found:
see `_busy`. A budget that is too short for rounds goes into pairs of the first setting and the
defaults: the interval is wide, and says so.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from layerscope.tune import contention, final
from layerscope.tune.elimination import FEWEST_ROUNDS, MOST_ROUNDS, SMALLEST, RaceTable
from layerscope.tune.final import Final
from layerscope.tune.journal import Journal
from layerscope.tune.measurement import Measurement
from layerscope.tune.objective import Objective, disagreement
from layerscope.tune.paired import interval
from layerscope.tune.setting import DEFAULT, Setting
from layerscope.tune.track import (
    DEFAULT_ROW,
    DISQUALIFIED,
    FINAL,
    IN_RACE,
    LEADS,
    OUT,
    RACE,
    Means,
    Progress,
    RaceState,
    Refused,
    Runner,
)

__all__ = [
    "DEFAULT_ROW",
    "DISQUALIFIED",
    "FASTER",
    "FINAL",
    "IN_RACE",
    "LEADS",
    "NO_DIFFERENCE",
    "OUT",
    "RACE",
    "REFUSED",
    "Outcome",
    "Progress",
    "Runner",
    "Standing",
    "needed",
    "race",
]

FASTER, NO_DIFFERENCE, REFUSED = "faster", "no difference", "refused"
# A comparison that could not have shown a gain as large as this has shown nothing.
_BLIND = 0.25


class Standing(Struct, frozen=True):
    """One setting after the race. `ratio`: of its value and the default's in the same round, over
    all rounds, with its 95 % interval (paired.py); below 1 is better. None where it has none.
    `value`: median, as it was measured. `why`: of what is out or disqualified.
    """

    setting: Setting
    state: str
    rounds: int
    value: float | None
    ratio: float | None
    low: float | None
    high: float | None
    why: str = ""


class Outcome(Struct, frozen=True):
    """`verdict`: FASTER (then `winner`, and the final comparison has its interval below 1),
    NO_DIFFERENCE, or REFUSED.

    `standings`: the defaults first, then the best first. `final`: the standing of the best
    candidate in the final A/B alone. `notes`: what qualifies it, in sentences (a contended machine,
    a budget that ended early); of a refusal the last one is the reason. `measurements`: all, in the
    order in which they were made.
    """

    verdict: str
    winner: Setting | None
    standings: tuple[Standing, ...]
    final: Standing | None
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()


def race(
    stages: Sequence[Sequence[Setting]],
    runner: Runner,
    objective: Objective,
    budget_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    seed: int = 0,
    journal: Journal | None = None,
    tell: Callable[[Progress], None] | None = None,
    run_s: float = 0.0,
    cpus: float = 1.0,
) -> Outcome:
    """Find the best setting of all `stages` within `budget_s`.

    `clock` in seconds; `journal`: what is kept there is not run again; `tell` is called after each
    run. `run_s`: how long a run under the defaults takes, 0 where that is not known. `cpus`: those
    that the program may use.
    """
    track = RaceState(
        Means(runner, objective, budget_s, clock, journal, tell, run_s), seed, len(stages)
    )
    try:
        chosen = _stages(track, stages)
        decided = final.run(track, chosen) if chosen else None
        while chosen and decided is None:
            # It was disqualified in the final: the next one has its chance, if there is time for
            # it.
            chosen = _most_promising(track)
            if chosen and track.left_s < final.reserve_s(track, final.FEWEST_PAIRS):
                track.notes.append(
                    f"there was no time to compare the next best setting, {chosen.name}"
                )
                break
            decided = final.run(track, chosen) if chosen else None
    except Refused as refusal:
        return _made(track, REFUSED, None, [*_notes(track), str(refusal)])
    return _outcome(track, decided, cpus)


def _stages(track: RaceState, stages: Sequence[Sequence[Setting]]) -> Setting | None:
    """Race all stages; who goes to the final, None where nobody has a chance."""
    base = DEFAULT
    for number, choices in enumerate(stages):
        track.stage = number + 1
        is_first = number == 0
        fresh = _new_settings(track, choices, base)
        carried = [] if base == DEFAULT else [base]
        affordable = _affordable(track, fresh, len(carried), is_first=is_first)
        if affordable:
            entered = [*carried, *affordable]
            later = sum(len(settings) + 1 for settings in stages[number + 1 :])
            now = len(entered) + 1
            base = _stage(track, entered, base, now / (now + later))
        elif is_first and fresh:
            return _first_alone(track, fresh)
    return base if base != DEFAULT else _most_promising(track)


def _new_settings(track: RaceState, choices: Sequence[Setting], base: Setting) -> list[Setting]:
    """The choices on top of the base, without those that were tried before; each name once."""
    fresh: dict[str, Setting] = {}
    for choice in choices:
        setting = choice if base == DEFAULT else base.together(choice)
        if setting.name not in track.settings:
            fresh[setting.name] = setting
    return list(fresh.values())


def _affordable(
    track: RaceState, fresh: list[Setting], carried: int, *, is_first: bool
) -> list[Setting]:
    """The first of the settings, as many as there is time for with the fewest rounds."""
    run_s = track.cost_s(DEFAULT)
    if not run_s or not fresh:
        return fresh
    pairs = final.FEWEST_PAIRS if is_first else final.PAIRS
    left_s = track.left_s - final.reserve_s(track, pairs)
    runs_each = int(left_s / (run_s * FEWEST_ROUNDS))
    fit = max(0, runs_each - 1 - carried)
    untried = fresh[max(fit, is_first) :]
    track.untried += [setting.name for setting in untried]
    return fresh[:fit]


def _first_alone(track: RaceState, fresh: list[Setting]) -> Setting:
    """There is no time for a race: the first of the settings goes to the final. Refused where not
    even that fits.
    """
    run_s = track.cost_s(DEFAULT)
    if track.left_s < 2 * final.LEAST_PAIRS * run_s:
        raise Refused(
            f"a run takes {run_s:.3g} s, so a budget of {track.budget_s / 60:.3g} min is too "
            f"short: {needed(run_s, len(fresh))}"
        )
    track.enter(fresh[:1])
    return fresh[0]


def needed(run_s: float, settings: int) -> str:
    """What budget a first stage of so many settings needs, in words: for one of them, and for
    all.
    """
    least_s, all_s = (
        2 * final.LEAST_PAIRS * run_s,
        run_s * (FEWEST_ROUNDS * (settings + 1) + 2 * final.PAIRS),
    )
    return (
        f"to try one setting takes {least_s / 60:.3g} min, all {settings} of the first stage "
        f"{all_s / 60:.3g} min"
    )


def _stage(track: RaceState, entered: list[Setting], base: Setting, share: float) -> Setting:
    """Race `entered` against each other and the defaults; on top of which the next stage is
    tried.
    """
    track.enter(entered)
    began_s = track.spent_s
    rounds: list[int] = []
    while True:
        track.round += 1
        made: dict[str, float] = {}
        for setting in track.shuffled(track.racing):
            value = track.measure(setting, RACE, track.left_s)
            if value is not None:
                made[setting.name] = value
        for name, value in made.items():
            track.values[name][track.round] = value
        rounds.append(track.round)
        _leave(track, _table(track, rounds, entered), base)
        table = _table(track, rounds, entered)
        # What the final needs is known better with each round.
        end_s = began_s + share * (track.budget_s - began_s - final.reserve_s(track))
        cost_s = sum(map(track.cost_s, track.racing))
        if _is_decided(track, table, base) or (
            len(rounds) >= FEWEST_ROUNDS
            and (track.spent_s + cost_s > end_s or len(rounds) == MOST_ROUNDS)
        ):
            return _next_base(track, table, base)


def _table(track: RaceState, rounds: Sequence[int], entered: Sequence[Setting]) -> RaceTable:
    racing = [_row(track, setting, rounds) for setting in track.racing]
    gone = []
    for setting in entered:
        if setting in track.racing:
            continue
        row = _row(track, setting, rounds)
        if not all(map(math.isnan, row)):
            gone.append(row)
    return RaceTable(racing, len(entered), gone)


def _row(track: RaceState, setting: Setting, rounds: Sequence[int]) -> list[float]:
    """NaN where a round has no value."""
    values = track.values[setting.name]
    row = (values.get(number, math.nan) for number in rounds)
    return list(row)


def _challengers(track: RaceState, base: Setting) -> list[int]:
    """The rows of those who may leave: all but the defaults and the base."""
    return [
        row
        for row, setting in enumerate(track.racing)
        if setting.name not in (DEFAULT.name, base.name)
    ]


def _leave(track: RaceState, table: RaceTable, base: Setting) -> None:
    """Send away who surely is not better than the leader, the base or the defaults."""
    challengers, leader = _challengers(track, base), table.best()
    above = [row for row in range(len(track.racing)) if row not in challengers]
    gone = set()
    for row in challengers:
        better = next(
            (at for at in [leader, *above] if at != row and table.is_not_better(row, at)), None
        )
        if better is not None:
            name = "the defaults" if better == 0 else track.racing[better].name
            track.gone[track.racing[row].name] = (
                OUT,
                f"surely less than {SMALLEST:.0%} better than {name}",
            )
            gone.add(row)
    track.racing = [setting for row, setting in enumerate(track.racing) if row not in gone]


def _is_decided(track: RaceState, table: RaceTable, base: Setting) -> bool:
    """No challenger is left, or one that surely is better than the base and the defaults."""
    challengers = _challengers(track, base)
    if len(challengers) != 1:
        return not challengers
    (challenger,) = challengers
    others = [row for row in range(len(track.racing)) if row != challenger]
    return all(table.is_better(challenger, row) for row in others)


def _next_base(track: RaceState, table: RaceTable, base: Setting) -> Setting:
    """The leader, where it surely is better than the base: what does not help stays out of the line
    to paste.
    """
    leader = table.best()
    names = [setting.name for setting in track.racing]
    if base.name not in names:  # disqualified
        return track.racing[leader] if table.is_ahead(leader, 0) else DEFAULT
    return track.racing[leader] if table.is_ahead(leader, names.index(base.name)) else base


def _most_promising(track: RaceState) -> Setting | None:
    """Of those who did not leave and have a ratio below 1, the one whose interval ends lowest: a
    small ratio of three rounds is luck more often than one of ten.
    """
    rows = [
        row
        for row in _standings(track)
        if row.state == IN_RACE and row.ratio is not None and row.ratio < 1
    ]
    return (
        min(rows, key=lambda row: math.inf if row.high is None else row.high).setting
        if rows
        else None
    )


def _outcome(track: RaceState, decided: Final | None, cpus: float) -> Outcome:
    """What it all means, with what qualifies it."""
    notes = [*_notes(track), *_busy_notes(track, decided, cpus)]
    opposite = disagreement(track.measurements, track.settings)
    if opposite:
        notes.append(opposite)
    if decided is None or not decided.is_faster:
        notes.append(_busy(track, decided, cpus) or _nothing_found(track, decided))
        return _made(track, NO_DIFFERENCE, decided, notes)
    ties = _ties(track, decided)
    if ties:
        name, others = decided.setting.name, ", ".join(ties)
        notes.append(f"not distinguishable from {name} in the race: {others}")
    return _made(track, FASTER, decided, notes)


def _notes(track: RaceState) -> list[str]:
    notes = list(track.notes)
    if not track.untried:
        return notes
    names = ", ".join(track.untried)
    too_short = f"the budget was too short to try {names}"
    return [too_short, *notes]


def _busy_notes(track: RaceState, decided: Final | None, cpus: float) -> list[str]:
    busy, rounds = contention.rounds(track.measurements, cpus)
    if not busy:
        return []
    note = f"contended: other programs used the CPUs in {busy} of {rounds} rounds"
    is_nearly_always = busy >= contention.NEARLY_ALL * rounds
    if decided is None or not track.objective.is_time or not is_nearly_always:
        return [note]
    return [
        f"{note}, so this holds for a machine as busy as that: on a quiet one another setting may "
        "be the best"
    ]


def _busy(track: RaceState, decided: Final | None, cpus: float) -> str:
    """That a busy machine is why nothing was found, empty where it is not: nearly all rounds were
    contended, times were compared, and the final could not have shown a gain of a quarter.
    """
    busy, rounds = contention.rounds(track.measurements, cpus)
    is_busy = track.objective.is_time and rounds > 0 and busy >= contention.NEARLY_ALL * rounds
    if not is_busy or decided is None or decided.is_faster or _sight(decided) < _BLIND:
        return ""
    return (
        "the machine is too busy for an answer: the final comparison could not have shown a gain "
        "of less than "
        f"{_sight(decided):.0%}; try again when it is quiet, or compare CPU time (--objective cpu)"
    )


def _ties(track: RaceState, decided: Final) -> list[str]:
    """Who was in the race to its end beside the winner, with an interval that holds the winner's
    ratio there.
    """
    rows = {row.setting.name: row for row in _standings(track)}
    winner = rows[decided.setting.name]
    if winner.ratio is None:
        return []
    return [
        name
        for name, row in rows.items()
        if row is not winner
        and row.state == IN_RACE
        and row.low is not None
        and row.high is not None
        and row.low <= winner.ratio <= row.high
    ]


def _sight(decided: Final) -> float:
    """The smallest gain that the final could have shown, as a share: half of the width of its
    interval.
    """
    return 1.0 if decided.found.low is None else 1 - decided.found.low / decided.found.ratio


def _nothing_found(track: RaceState, decided: Final | None) -> str:
    if decided is None:
        is_sure = all(name in track.gone for name in track.settings if name != DEFAULT.name)
        said = (
            f"every setting surely is less than {SMALLEST:.0%} better than"
            if is_sure
            else "no setting was ahead of"
        )
        return f"{said} the defaults in the race, so there was no final comparison"
    if decided.is_not_better:
        return (
            f"the final comparison is sure that {decided.setting.name} is less than "
            f"{SMALLEST:.0%} better"
        )
    return (
        f"the final comparison could have shown a gain of about {_sight(decided):.0%} or more, "
        "and did not"
    )


def _made(track: RaceState, verdict: str, decided: Final | None, notes: list[str]) -> Outcome:
    rows, row = _standings(track), None
    if decided is not None:
        row = Standing(
            decided.setting,
            LEADS,
            decided.pairs,
            track.objective.shown(decided.value),
            *decided.found,
        )
        rows = [
            replace(one, state=LEADS) if one.setting == decided.setting else one for one in rows
        ]
    winner = decided.setting if decided is not None and verdict == FASTER else None
    return Outcome(verdict, winner, tuple(rows), row, tuple(track.measurements), tuple(notes))


def _standings(track: RaceState) -> list[Standing]:
    """The defaults, then all others: best first, disqualified ones last."""
    group = {DEFAULT_ROW: 0, DISQUALIFIED: 2}

    def order(row: Standing) -> tuple[int, bool, float]:
        place = group.get(row.state, 1)
        is_unknown = row.ratio is None
        return place, is_unknown, row.ratio or 0.0

    rows = []
    for setting in track.settings.values():
        rows.append(_standing(track, setting))
    rows.sort(key=order)
    return rows


def _standing(track: RaceState, setting: Setting) -> Standing:
    state, why = track.gone.get(setting.name, (DEFAULT_ROW if setting == DEFAULT else IN_RACE, ""))
    values, ratios = track.values[setting.name].values(), track.ratios(setting.name)
    if not ratios:
        return Standing(setting, state, len(values), None, None, None, None, why)
    return Standing(
        setting,
        state,
        len(values),
        track.objective.shown(statistics.median(values)),
        *interval(ratios),
        why,
    )
