"""The findings that the summary names, where the prompt need not wait long for them. `diff`
does not wait longer either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.step_times import StepTimes
from layerscope.recording.reader import Reader

if TYPE_CHECKING:
    from layerscope.analyse.findings import RunFindings

# With fewer steps, and in more spans, `layerscope findings` alone looks for them: a million spans
# take some 0.3 s.
FEWEST_STEPS, MOST_SPANS = 5, 5_000_000


def worth_a_try(reader: Reader, times: StepTimes | None) -> RunFindings | None:
    """None where they are not looked for."""
    if times is None or times.measured < FEWEST_STEPS:
        return None
    if reader.rows("spans") > MOST_SPANS:
        return None
    from layerscope.analyse import findings

    return findings.found_once(reader)
