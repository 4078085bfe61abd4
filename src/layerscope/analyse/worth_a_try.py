"""The findings that the summary names, where the prompt need not wait long for them. `diff`
does not wait longer either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.step_times import StepTimes
from layerscope.recording.reader import Reader

if TYPE_CHECKING:
    from layerscope.analyse.findings import RunFindings
    from layerscope.analyse.findings.span_pass import SpanPass

# With fewer steps, and in more spans, `layerscope findings` alone looks for them: a million spans
# take some 0.3 s.
FEWEST_STEPS, MOST_SPANS = 5, 5_000_000


def worth_a_try(
    reader: Reader, times: StepTimes | None, spans: SpanPass | None = None
) -> RunFindings | None:
    """None where they are not looked for. `spans`: what `pass_for_findings` gave, with the spans
    that it asks for.
    """
    if not _are_looked_for(reader, times):
        return None
    from layerscope.analyse import findings

    return findings.found_once(reader, spans)


def pass_for_findings(reader: Reader, times: StepTimes | None) -> SpanPass | None:
    """What looks at the spans for the findings, for those who read all of them anyway. None where
    no findings will be looked for.
    """
    if not _are_looked_for(reader, times):
        return None
    from layerscope.analyse import findings
    from layerscope.analyse.findings.span_pass import SpanPass

    return None if findings.are_found(reader) else SpanPass(reader)


def _are_looked_for(reader: Reader, times: StepTimes | None) -> bool:
    if times is None or times.measured < FEWEST_STEPS:
        return False
    spans = reader.rows("spans")
    return spans <= MOST_SPANS
