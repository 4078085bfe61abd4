"""Waits of one stream for an event on another, by the host: which stream had to wait for which, for
what was launched before when.

Profilers tell them as events `Stream Wait Event`, where they are asked to record synchronisation
(`enable_cuda_sync_events`): the stream that waits, the one that it waits for, and the call of
cudaEventRecord whose event it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.analyse.gpu import arguments

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_WAITS = f"""
    WITH calls AS (
        SELECT tracks.process, spans.correlation, min(spans.start_ns) AS start_ns
        FROM spans JOIN tracks USING (track)
        WHERE spans.layer = 'runtime' AND tracks.kind <> 'stream' AND correlation IS NOT NULL
        GROUP BY ALL
    ), waits AS (
        SELECT spans.track, tracks.process, tracks.device, spans.correlation,
               {arguments.number("wait_on_stream")} AS stream,
               {arguments.number("wait_on_cuda_event_record_corr_id")} AS record
        FROM spans JOIN tracks USING (track) JOIN args USING (args)
        WHERE spans.layer = 'runtime' AND spans.name::VARCHAR = 'Stream Wait Event'
          AND tracks.process = ?
    )
    SELECT waits.track, other.track AS awaited, asked.start_ns AS asked_ns,
           recorded.start_ns AS recorded_ns
    FROM waits
         JOIN tracks AS other ON other.process = waits.process AND other.kind = 'stream'
          AND other.device IS NOT DISTINCT FROM waits.device
          AND other.name = 'stream ' || waits.stream
         JOIN calls AS asked
           ON asked.process = waits.process AND asked.correlation = waits.correlation
         JOIN calls AS recorded
           ON recorded.process = waits.process AND recorded.correlation = waits.record
    WHERE other.track <> waits.track
    ORDER BY asked_ns, waits.track, awaited"""


class StreamWait(Struct, frozen=True):
    """That what is launched on `track` after `asked_ns` waits for what was launched on `awaited`
    before `recorded_ns`; times are those of the host.
    """

    track: int
    awaited: int
    asked_ns: int
    recorded_ns: int


def read_stream_waits(reader: Reader, process: int) -> list[StreamWait]:
    """Those of a process, in the order in which they were asked for."""
    found = reader.query(_WAITS, [process])
    return [StreamWait(**row) for row in found.to_pylist()]
