"""The work of GPUs as columns: kernels, copies and memory sets, each with the host call that
launched it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

Int64s = NDArray[np.int64]

COMPUTE, COMMUNICATION, COPY = range(3)
# What each kind is called in tables.
KINDS = ("compute", "communication", "copy")
NO_LAUNCH = -1

# Kernels of NCCL, RCCL and HCCL, where no argument says that they are a collective.
IS_COMMUNICATION = r"""
    coalesce(args.json LIKE '%"Collective name"%', false)
    OR regexp_matches(spans.name::VARCHAR, '^(void )?(nccl|rccl|hccl)', 'i')
    OR contains(spans.name::VARCHAR, 'ncclKernel')"""
# Of work that several host calls claim the first one counts.
WORK = f"""
    WITH launched AS (
        SELECT to_span AS span, min(from_span) AS launch
        FROM links WHERE kind = 'launch_gpu' GROUP BY to_span
    )
    SELECT spans.span, coalesce(processes.rank, 0) AS rank, coalesce(tracks.device, 0) AS device,
           tracks.process, spans.track, tracks.name AS stream,
           spans.start_ns, spans.start_ns + spans.dur_ns AS end_ns, spans.name::VARCHAR AS name,
           CASE WHEN spans.kind IN ('memcpy', 'memset') THEN {COPY}
                WHEN {IS_COMMUNICATION} THEN {COMMUNICATION} ELSE {COMPUTE} END AS kind,
           launched.launch,
           host.start_ns AS launch_ns, host.start_ns + host.dur_ns AS launched_ns,
           spans.args
    FROM spans JOIN tracks USING (track) JOIN processes USING (process)
         LEFT JOIN args USING (args) LEFT JOIN launched USING (span)
         LEFT JOIN spans AS host ON host.span = launched.launch
    WHERE spans.layer = 'gpu'"""


class GpuWork(Struct, frozen=True):
    """One value for each kernel, memcpy and memset, by stream and then in the order of their
    starts.

    `rank`, `device`, `track`: where it ran; `track` is its stream. `start_ns`, `end_ns`: on the
    run's clock. `kind`: COMPUTE, COMMUNICATION or COPY. `launch`: the span of the host call,
    NO_LAUNCH where none has its correlation; `launch_ns`, `launched_ns`: start and end of that.
    """

    span: Int64s
    rank: Int64s
    device: Int64s
    track: Int64s
    start_ns: Int64s
    end_ns: Int64s
    kind: Int64s
    launch: Int64s
    launch_ns: Int64s
    launched_ns: Int64s

    def __len__(self) -> int:
        """How many there are."""
        return len(self.span)

    def chosen(self, which: NDArray[np.bool_] | Int64s | slice) -> GpuWork:
        """Those of a mask, a slice, or with these indices."""
        columns = {name: getattr(self, name)[which] for name in self.__struct_fields__}
        return GpuWork(**columns)

    @property
    def is_launched(self) -> NDArray[np.bool_]:
        """Which have a host call of the same correlation."""
        return np.not_equal(self.launch, NO_LAUNCH)

    def within(self, from_ns: int, until_ns: int) -> GpuWork:
        """Those that began and ended between two moments."""
        is_in = (self.start_ns >= from_ns) & (self.end_ns <= until_ns)
        return self.chosen(is_in)

    def before_ns(self) -> Int64s:
        """When the work before it on its stream had ended, its own start where it is the first."""
        ends = np.empty_like(self.end_ns)
        for part in parts_of(self.track):
            ends[part] = _ends_before(self.start_ns[part], self.end_ns[part])
        return ends


def _ends_before(start_ns: Int64s, end_ns: Int64s) -> Int64s:
    latest_ns = np.maximum.accumulate(end_ns)
    before_ns = np.empty_like(latest_ns)
    before_ns[0] = start_ns[0]
    before_ns[1:] = latest_ns[:-1]
    return before_ns


def parts_of(sorted_keys: Int64s) -> list[slice]:
    """Where each value of a sorted column lies."""
    if not len(sorted_keys):
        return []
    changes = np.flatnonzero(np.diff(sorted_keys)) + 1
    bounds = [0, *changes.tolist(), len(sorted_keys)]
    return [slice(*pair) for pair in pairwise(bounds)]


def read_work(reader: Reader, source: str = f"({WORK})") -> GpuWork:
    """All work of the GPUs of a recording; `source`: a table with the answer to WORK."""
    columns = ", ".join(
        f"coalesce({name}, {NO_LAUNCH})::BIGINT AS {name}" for name in GpuWork.__struct_fields__
    )
    found = reader.query(f"SELECT {columns} FROM {source} ORDER BY track, start_ns, end_ns, span")
    return GpuWork(**{name: found[name].to_numpy() for name in GpuWork.__struct_fields__})


def devices_of(work: GpuWork) -> list[tuple[int, int, GpuWork]]:
    """Rank, device and work of each GPU, in order."""
    pairs = zip(work.rank.tolist(), work.device.tolist(), strict=True)
    found = []
    for rank, device in sorted(set(pairs)):
        is_its = (work.rank == rank) & (work.device == device)
        found.append((rank, device, work.chosen(is_its)))
    return found
