"""Laws of the one clock: order is kept, moments come back, and readings are hit exactly."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.model.clocks import Conversion, Identity

# A foreign clock between 20 MHz and 5 GHz, its readings up to ten minutes apart.
steps_ns = st.lists(st.integers(1_000, 600_000_000_000), min_size=1, max_size=12)
rates = st.floats(0.02, 5.0)


@st.composite
def conversions(draw: st.DrawFn) -> Conversion:
    conversion = Conversion()
    its, run_ns = draw(st.integers(0, 2**62)), draw(st.integers(0, 2**61))
    rate = draw(rates)
    conversion.add(its, run_ns)
    for step_ns in draw(steps_ns):
        # No clock keeps its rate to more than some ten parts in a million.
        wander = draw(st.floats(-1e-5, 1e-5))
        its += max(1, round(step_ns * rate * (1 + wander)))
        run_ns += step_ns
        conversion.add(its, run_ns)
    return conversion


def around(conversion: Conversion) -> st.SearchStrategy[int]:
    """Moments of the foreign clock: on the readings, beside them, between them, and beyond both
    ends.
    """
    its = [reading[0] for reading in conversion.readings]
    beside = [max(0, value + shift) for value in its for shift in (-2, -1, 0, 1, 2)]
    return st.one_of(
        st.sampled_from(beside), st.integers(max(0, its[0] - 10**10), its[-1] + 10**10)
    )


def to_run(conversion: Conversion, ticks: list[int]) -> list[int]:
    found: list[int] = conversion.to_run(np.array(ticks, np.uint64)).tolist()
    return found


@given(conversions(), st.data())
def test_order_is_kept_within_and_across_the_readings(
    conversion: Conversion, data: st.DataObject
) -> None:
    ticks = sorted(data.draw(st.lists(around(conversion), min_size=2, max_size=60)))
    found = to_run(conversion, ticks)

    assert found == sorted(found)


@given(conversions())
def test_a_reading_is_converted_to_itself(conversion: Conversion) -> None:
    its, run_ns = (list(column) for column in zip(*conversion.readings, strict=True))

    assert to_run(conversion, its) == run_ns
    assert conversion.last == its[-1]


@given(conversions(), st.data())
def test_there_and_back_is_off_by_no_more_than_a_nanosecond_and_a_tick(
    conversion: Conversion, data: st.DataObject
) -> None:
    back = Conversion()
    for its, run_ns in conversion.readings:
        back.add(run_ns, its)
    readings = conversion.readings
    ticks = data.draw(
        st.lists(st.integers(readings[0][0], readings[-1][0]), min_size=1, max_size=20)
    )
    for tick, again in zip(ticks, to_run(back, to_run(conversion, ticks)), strict=True):
        # Going there rounds down to a nanosecond, which is so many ticks; coming back to a tick.
        ticks_per_ns = max((b[0] - a[0]) / (b[1] - a[1]) for a, b in itertools.pairwise(readings))
        assert -1 <= tick - again <= ticks_per_ns + 2


@given(conversions(), st.data())
def test_what_is_converted_before_the_last_reading_stays_when_more_come(
    conversion: Conversion, data: st.DataObject
) -> None:
    if len(conversion.readings) < 3:
        return
    early = Conversion()
    for reading in conversion.readings[: data.draw(st.integers(2, len(conversion.readings) - 1))]:
        early.add(*reading)
    first = conversion.readings[0][0]
    ticks = data.draw(
        st.lists(st.integers(max(0, first - 10**9), early.last), min_size=1, max_size=20)
    )

    assert to_run(early, ticks) == to_run(conversion, ticks)


@given(conversions(), st.integers(0, 2**62), st.integers(0, 2**61))
def test_a_reading_that_goes_backwards_is_left_out(
    conversion: Conversion, its: int, run_ns: int
) -> None:
    before = conversion.readings
    conversion.add(its, run_ns)

    forward = its > before[-1][0] and run_ns > before[-1][1]
    assert conversion.readings == before + [(its, run_ns)] * forward


def test_ticks_beyond_what_a_float_holds_are_not_rounded() -> None:
    conversion = Conversion()
    base = 2**60 + 1
    conversion.add(base, 5)
    conversion.add(base + 3_000_000_000, 1_000_000_005)

    assert to_run(conversion, [base + 3 * i for i in range(1000)]) == list(range(5, 1005))


def test_without_a_second_reading_only_the_distance_is_known() -> None:
    conversion = Conversion()
    assert to_run(conversion, [7]) == [7]
    conversion.add(1000, 50)
    assert to_run(conversion, [1000, 1010, 990]) == [50, 60, 40]
    assert Conversion().last == -1


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_a_source_on_the_run_s_clock_is_left_alone(ticks: list[int]) -> None:
    identity = Identity()
    identity.add(3, 4)

    assert to_run(identity, ticks) == ticks
