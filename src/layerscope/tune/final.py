"""The final comparison: the best candidate and the defaults in pairs, and nothing but those pairs
decides.

There are at least PAIRS of them where the budget allows. Where it leaves time for half as many
again or more, the comparison may go on after that, and the pairs are looked at twice; each look
then has half of the 5 % of error, so the interval that is told holds with 95 % whichever look ends
it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from msgspec import Struct

from layerscope.tune.elimination import SMALLEST
from layerscope.tune.paired import Interval, interval
from layerscope.tune.setting import DEFAULT, Setting
from layerscope.tune.track import FINAL, RaceState

PAIRS, MOST_PAIRS, FEWEST_PAIRS = 10, 30, 5
# With fewer there is no interval. So few are made only where the budget has no room for more.
LEAST_PAIRS = 2
_ERROR = 0.05
_TWO_LOOKS = 1.5


class Final(Struct, frozen=True):
    """How `setting` compares with the defaults: over so many `pairs`; `value`: its median, as it is
    compared.

    `found` has the interval that decides.
    """

    setting: Setting
    pairs: int
    value: float
    found: Interval

    @property
    def is_faster(self) -> bool:
        """By more than the noise, and by more than the smallest difference that is worth a
        setting.
        """
        return (
            self.found.high is not None and self.found.high < 1 and self.found.ratio <= 1 - SMALLEST
        )

    @property
    def is_not_better(self) -> bool:
        """By less than the smallest difference, surely."""
        low = self.found.low
        if low is None:
            return False
        return low > 1 - SMALLEST


def reserve_s(track: RaceState, pairs: int = PAIRS) -> float:
    """What the budget has to leave for the final."""
    runs = 2 * pairs
    return runs * track.cost_s(DEFAULT)


def is_clear(final: Final) -> bool:
    """Whether more pairs would not change what is said of a setting."""
    return final.is_faster or final.is_not_better


def run(
    track: RaceState, setting: Setting, is_decided: Callable[[Final], bool] = is_clear
) -> Final | None:
    """Compare until `is_decided`; None where the setting was disqualified on the way."""
    track.racing = [DEFAULT, setting]
    pair_s = track.cost_s(DEFAULT) + track.cost_s(setting)
    affordable = int(track.left_s / pair_s) if pair_s > 0 else MOST_PAIRS
    fewest = FEWEST_PAIRS if track.measurements else LEAST_PAIRS
    most = min(MOST_PAIRS, max(fewest, affordable))
    looks = [PAIRS, most] if most >= PAIRS * _TWO_LOOKS else [most]
    ratios: list[float] = []
    values: list[float] = []
    for pair in range(most):
        made = _pair(track, setting, (most - pair) * pair_s)
        if made is None:
            return None
        values.append(made[0])
        ratios.append(made[0] / made[1])
        is_out_of_time = pair + 1 >= fewest and track.left_s < pair_s
        if len(ratios) in looks or is_out_of_time:
            found = interval(ratios, 1 - _ERROR / len(looks))
            decided = Final(setting, len(ratios), statistics.median(values), found)
            if is_decided(decided) or is_out_of_time:
                break
    if decided.pairs < PAIRS:
        track.notes.append(
            f"the budget left {decided.pairs} pairs for the final comparison; {PAIRS} are better"
        )
    return decided


def _pair(track: RaceState, setting: Setting, left_s: float) -> tuple[float, float] | None:
    """(value of the setting, of the defaults), run in random order."""
    track.round += 1
    made: dict[str, float] = {}
    for one in track.shuffled([DEFAULT, setting]):
        value = track.measure(
            one, FINAL, left_s - sum(map(track.cost_s, [DEFAULT] if made else []))
        )
        if value is None:
            return None
        made[one.name] = value
    return made[setting.name], made[DEFAULT.name]
