"""The table `histograms` of a rank that was not thinned, where another rank was: a question to its
spans, which all are there.
"""

from __future__ import annotations

from layerscope.model.schema import BIN
from layerscope.recording.rank_keys import RankKeys

# As `ingest/totals.py` counts them: 0 ns and 1 ns share the first bin, and a bin begins at a whole
# number of ns.
_BINS = f"""
    SELECT total + {{first}} AS total, ceil(power({BIN}, bin) - 1e-6)::BIGINT AS from_ns, count
    FROM (
        SELECT total, floor(ln(greatest(dur_ns, 1)) / ln({BIN}) + 1e-9)::BIGINT AS bin,
               count(*) AS count
        FROM {{spans}} AS spans JOIN {{tracks}} AS tracks USING (track)
        JOIN {{totals}} AS totals ON totals.process = tracks.process
            AND totals.layer = spans.layer AND totals.kind = spans.kind
            AND totals.name = spans.name AND totals.module IS NOT DISTINCT FROM spans.module
            AND totals.step_class = CASE WHEN step IS NULL THEN 'outside' ELSE 'step' END
        WHERE NOT unfinished GROUP BY ALL
    )"""


def histograms_of_spans(keys: RankKeys, spans: str, tracks: str, totals: str) -> str:
    """The rows as SQL, from what reads three tables of the rank."""
    first = keys.first.get("total", 0)
    return _BINS.format(first=first, spans=spans, tracks=tracks, totals=totals)
