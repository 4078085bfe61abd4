"""How much a recording may keep: what the user asked for, and what this machine gives us."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from layerscope.rawfile.raw_file import FULL, MAX_SIZE_BYTES, most_bytes

# Full detail up to this many spans.
MOST_SPANS = 20_000_000
# What is looked at in one go: 100 MB of memory.
EPOCH_SPANS = 250000
LEAST_EPOCH_SPANS = 20_000
# A row of `spans` takes 7 to 12 bytes (benchmarks/size.py), its share of the other tables included.
SPAN_BYTES = 12
# Of all that may be kept, what the tables may take; the rest is for raw files.
TABLES_SHARE = 0.5
NEVER = 1 << 62
# For a process that does nothing but convert. Columns come and go, and glibc would give the memory
# of each back at once: pages that the kernel fills with zeros again took a fifth of the CPU time.
# So it keeps what was freed until the end of an epoch (`parts`), in huge pages, of which there are
# few to fault in. Arrow takes its memory from there too, else both would keep some for themselves.
CONVERTER_VARIABLES = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # Nothing here multiplies matrices: OpenBLAS starts threads for it when NumPy is imported, and
    # they spin for a while, 50 ms of CPU time.
    "OPENBLAS_NUM_THREADS": "1",
}
# Memory that a conversion takes for each span of an epoch: its columns, sorted and encoded.
BYTES_IN_MEMORY = 600


class IngestLimits(Struct, frozen=True):
    """Spans: kept at most, never thinned at both ends of the run, looked at in one go. Bytes: of
    tables, of all.
    """

    most_spans: int = MOST_SPANS
    window_spans: int = 2_000_000
    epoch_spans: int = EPOCH_SPANS
    most_table_bytes: int = round(MAX_SIZE_BYTES * TABLES_SHARE)
    most_bytes: int = MAX_SIZE_BYTES


def limits_of(options: dict[str, Any], memory_bytes: int | None = None) -> IngestLimits:
    """The limits of a recording made with these options, in a process that may have so much
    memory.
    """
    memory_spans = EPOCH_SPANS if memory_bytes is None else memory_bytes // 4 // BYTES_IN_MEMORY
    epoch_spans = max(LEAST_EPOCH_SPANS, min(EPOCH_SPANS, memory_spans))
    if options.get(FULL):
        return IngestLimits(NEVER, NEVER, epoch_spans, NEVER, NEVER)
    whole_bytes = round(most_bytes(options))
    table_bytes = round(whole_bytes * TABLES_SHARE)
    most_spans = min(MOST_SPANS, table_bytes // SPAN_BYTES)
    epoch_spans = max(LEAST_EPOCH_SPANS, min(epoch_spans, most_spans // 20))
    return IngestLimits(most_spans, most_spans // 10, epoch_spans, table_bytes, whole_bytes)
