"""Hard programs end as they do without us; `python3 dev.py stress` runs them longer and more
often.
"""

from __future__ import annotations

import pytest

from tests.stress.stressing import CASES, FEW, Compared, NotHere, Stress

SECONDS = 0.5


@pytest.fixture(scope="module")
def stress(
    program_python: str, perf_events: None, tmp_path_factory: pytest.TempPathFactory
) -> Stress:
    return Stress(tmp_path_factory.mktemp("stress"), program_python)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case if case in FEW else pytest.param(case, marks=pytest.mark.stress) for case in CASES],
)
def test_a_hard_program_ends_as_it_does_without_us(case: str, stress: Stress) -> None:
    compared = Compared()
    try:
        stress.compare(case, seed=1, seconds=SECONDS, into=compared)
    except NotHere as missing:
        pytest.skip(str(missing))

    assert [(one.seed, one.what) for one in compared.differences] == []
