"""Steps read or write files on the thread that makes them: checkpoints, logs, results.

**What it looks for.** Waits of that thread for a file, and its CPU time in the kernel's code of
files, outside of the data loader (that is `loader_reads_files`). The price has all CPU time of the
lines that do this.

**Why it matters.** A disk works by itself: the step could go on meanwhile.

**What to do.** Write less often, or on a thread of your own from a copy. Leave `fsync` and `flush`
to the end, or to every nth record.

**When it is wrong.** Where every record has to be on the disk before the next step begins, the
price cannot be saved. Waits that are shorter than 10 ms are mostly not seen inside of, so the true
cost may be higher.

Source: `fsync(2)`; the states of waits in docs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("steps", "samples")
THRESHOLDS = (
    Threshold("samples", 5.0, "waits and samples", "fewer, in all measured steps, may be chance"),
)
REMEDIES = (
    Remedy("write less often, or a copy on a thread of its own; flush and fsync at the end"),
)
# How the kernel's code that copies into and out of files is called, whatever the file system.
_NAMES = (
    r"^(generic_perform_write|iomap_file_buffered_write|filemap_read|vfs_fsync(_range)?|"
    r"__x64_sys_(fsync|fdatasync|sync_file_range))$|_file_(write|read)_iter$"
)

FILES = f"""
    is_critical AND NOT idle AND phase IS DISTINCT FROM 'loading'
    AND ((kind = 'offcpu' AND state = 'file') OR (kind = 'cpu' AND state = 'kernel'
        AND stack IN (SELECT stack FROM stack_frames JOIN frames USING (frame)
            WHERE layer = 'kernel' AND regexp_matches(name, '{_NAMES}'))))"""
_ON_THEIR_LINES = f"""
    is_critical AND kind = 'cpu' AND phase IS DISTINCT FROM 'loading' AND line <> ''
    AND line IN (SELECT line FROM step_samples WHERE {FILES})"""
_PRICE = f"""
    SELECT step, sum(weight_ns)::BIGINT AS ns
    FROM step_samples WHERE ({FILES}) OR ({_ON_THEIR_LINES}) GROUP BY step"""
EVIDENCE = f"""
    SELECT line, CASE WHEN kind = 'cpu' THEN 'on a CPU' ELSE state END AS doing,
        sum(weight_ns)::BIGINT AS total_ns, count(*) AS samples, count(DISTINCT step) AS steps
    FROM step_samples WHERE {FILES}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time that steps spend on files."""
    rows = workload.rows(f"SELECT count(*) AS n FROM step_samples WHERE {FILES}")
    if rows[0]["n"] < limits["samples"]:
        return
    price = workload.price(_PRICE)
    yield Finding(
        rule="files_in_steps",
        title=f"{percent(price.cost_share)} of a step reads or writes files",
        price=price,
        where=place_of_samples(workload, FILES),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
    )
