"""The samples of one file of a sampler that grows, summed up by function, symbol, thread and
wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from layerscope.ingest import waiting
from layerscope.ingest.file_frames import FileFrames
from layerscope.ingest.live.paths import FilePaths, PathTable
from layerscope.ingest.live.rows import RowNumbers
from layerscope.ingest.sampler_files import whole_waits
from layerscope.ingest.team_waits import at_barriers
from layerscope.model.layers import WAITS
from layerscope.model.live import BUCKET_NS, IDLE, Counted, ProcessLevel, counted
from layerscope.rawfile import sampler_file
from layerscope.sources.raw.folder import SamplerFile
from layerscope.sources.raw.stacks import SampledFile

# Of a path in a bucket: its CPU time, its waits that are not idle, its samples.
_OF_PATH = 3


class SampleSums(Struct):
    """Sums of some samples, by table."""

    functions: Counted
    symbols: Counted
    threads: Counted
    waits: Counted


class LiveSamples:
    """Reads what is new of the file of a sampler and adds it up."""

    def __init__(
        self, source: SamplerFile, paths: PathTable, threads: RowNumbers, waits: RowNumbers
    ) -> None:
        self.file = SampledFile(source.path)
        self._shift_ns = source.shift_ns
        frames = FileFrames(paths.frames, self.file, source.path.parent)
        self._paths = FilePaths(self.file, frames, paths)
        self._table = paths
        self._rows = threads
        self._wait_rows = waits
        self._wait_of: dict[tuple[int, int], int] = {}  # by state and path
        self.row_of_thread: dict[int, int] = {}
        self._ready: dict[int, int] = {}  # by thread what was last read

    @property
    def until_ns(self) -> int:
        """All samples that began before this time of the run are read."""
        return self.file.until_ns + self._shift_ns

    def advance(self, keep_ns: int) -> Iterator[SampleSums]:
        """The sums of what is new; what ended `keep_ns` before the newest is in one bucket."""
        self.file.advance()
        self._paths.advance()
        self._name_threads()
        rows = self.file.take(sampler_file.SAMPLES)
        rows = rows[np.isin(rows["thread"], list(self.file.threads))]
        rows = rows[rows["kind"] != sampler_file.FAULT]
        oldest = max(self.until_ns - keep_ns, 0) // BUCKET_NS
        if len(rows):
            yield self._sums(whole_waits(rows), oldest)

    def accounts(self, keep_ns: int) -> Counted | None:
        """How long threads had no CPU though they could run, by the system's accounts since the
        last call; None: nothing has come.
        """
        rows = self.file.take(sampler_file.ACCOUNTS)
        rows = rows[np.isin(rows["thread"], list(self.row_of_thread))]
        if not len(rows):
            return None
        oldest = max(self.until_ns - keep_ns, 0) // BUCKET_NS
        grown = []
        for thread, ready_ns in zip(
            rows["thread"].tolist(), rows["delay_ns"].tolist(), strict=True
        ):
            before_ns = self._ready.get(thread, 0)
            grown.append(max(ready_ns - before_ns, 0))
            self._ready[thread] = max(ready_ns, before_ns)
        key = [self.row_of_thread[thread] for thread in rows["thread"].tolist()]
        bucket = np.maximum(rows["at_ns"].astype(np.int64) // BUCKET_NS, oldest)
        nothing = np.zeros(len(rows), np.int64)
        ready = np.array(grown, np.int64)
        return counted(bucket, np.array(key, np.int64), nothing, ready, nothing, nothing)

    def levels(self) -> Iterator[ProcessLevel]:
        """What the sampler has read of processes since the last call."""
        rows = self.file.take(sampler_file.PROCESS_ACCOUNTS)
        places = {number: at for at, number in enumerate(rows["process"].tolist())}
        for number, at in places.items():
            row: np.void = rows[at]
            process = self.file.processes.get(number)
            if process is None:
                continue
            is_over = bool(row["flags"] & sampler_file.ENDED)
            yield ProcessLevel(
                int(process["pid"]),
                int(row["rss_bytes"]) or None,
                int(row["rss_peak_bytes"]) or None,
                int(row["threads"]),
                is_over,
            )

    def _name_threads(self) -> None:
        """Give new threads rows, and those that have got another name that name."""
        for number, row in self.file.threads.items():
            name = self.file.names.get(number) or row["name"].decode("utf-8", "replace")
            process = self.file.processes.get(int(row["process"]))
            pid = str(int(process["pid"])) if process is not None else ""
            label = (f"{name} {int(row['tid'])}".strip(), pid)
            place = self.row_of_thread.get(number)
            if place is None:
                self._rows.labels.append(label)
                self.row_of_thread[number] = len(self._rows.labels) - 1
            else:
                self._rows.labels[place] = label

    # -- sums --------------------------------------------------------------------------------------

    def _sums(self, rows: np.ndarray, oldest: int) -> SampleSums:
        is_cpu = rows["kind"] == sampler_file.CPU
        weight_ns = rows["weight_ns"].astype(np.int64)
        at_ns = rows["at_ns"].astype(np.int64) + self._shift_ns
        # A wait counts where it ends, or where the part of it ends that is written.
        ends_ns = np.where(is_cpu, at_ns, at_ns + weight_ns)
        bucket = np.maximum(ends_ns // BUCKET_NS, oldest)
        path = self._paths.of(rows["stack"])
        state, idle = self._states(rows, path, is_cpu)
        threads = self._of_threads(rows, bucket, weight_ns, is_cpu, idle)
        waits = self._of_waits(rows[~is_cpu], bucket[~is_cpu], path[~is_cpu], state[~is_cpu],
                               idle[~is_cpu])  # fmt: skip
        buckets, paths, sums = self._of_paths(rows, bucket, path, weight_ns, is_cpu, idle)
        known = self._table.paths
        chosen = [known[one] for one in paths.tolist()]
        functions = _by_row(buckets, [one.function for one in chosen],
                            [one.functions for one in chosen], sums)  # fmt: skip
        symbols = _by_row(buckets, [one.symbol for one in chosen],
                          [one.symbols for one in chosen], sums)  # fmt: skip
        return SampleSums(functions, symbols, threads, waits)

    def _states(
        self, rows: np.ndarray, path: np.ndarray, is_cpu: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What each wait was for (index into WAITS), and whether it is idle."""
        evidence = self._evidence(path)
        is_preempted = rows["flags"] & sampler_file.PREEMPTED > 0
        file = np.where(is_cpu, sampler_file.NO_FILE, rows["file"])
        state, _ = waiting.states(rows["system_call"], file, is_preempted, evidence)
        columns: dict[str, np.ndarray] = {
            "kind": rows["kind"].astype(np.int32),
            "track": rows["thread"].astype(np.int64),
            "at_ns": rows["at_ns"].astype(np.int64),
            "weight_ns": rows["weight_ns"].astype(np.int64),
            "exact": rows["flags"] & sampler_file.EXACT > 0,
        }
        process = self._process_of(rows["thread"])
        for number in np.unique(process).tolist():
            mine = np.flatnonzero(process == number)
            of_process = {name: values[mine] for name, values in columns.items()}
            state[mine] = at_barriers(of_process, state[mine], evidence[mine])
        return state, ~is_cpu & (state == waiting.POOL_STATE)

    def _evidence(self, path: np.ndarray) -> np.ndarray:
        found, inverse = np.unique(path, return_inverse=True)
        bits = [self._table.paths[one].evidence for one in found.tolist()]
        return np.array(bits, np.int64)[inverse]

    def _process_of(self, threads: np.ndarray) -> np.ndarray:
        found, inverse = np.unique(threads, return_inverse=True)
        owners = [int(self.file.threads[one]["process"]) for one in found.tolist()]
        return np.array(owners, np.int64)[inverse]

    def _of_threads(
        self,
        rows: np.ndarray,
        bucket: np.ndarray,
        weight_ns: np.ndarray,
        is_cpu: np.ndarray,
        idle: np.ndarray,
    ) -> Counted:
        found, inverse = np.unique(rows["thread"], return_inverse=True)
        row_of = np.array([self.row_of_thread[one] for one in found.tolist()], np.int64)
        nothing = np.zeros(len(rows), np.int64)
        columns = (
            np.where(is_cpu, weight_ns, 0),
            nothing,
            np.where(is_cpu | idle, 0, weight_ns),
            np.where(idle, weight_ns, 0),
        )
        return counted(bucket, row_of[inverse], *columns)

    def _of_waits(
        self,
        rows: np.ndarray,
        bucket: np.ndarray,
        path: np.ndarray,
        state: np.ndarray,
        idle: np.ndarray,
    ) -> Counted:
        """By state and function; those that are idle are one row."""
        code = np.where(idle, -1, state).astype(np.int64)
        pairs = zip(code.tolist(), path.tolist(), strict=True)
        key = np.array([self._wait_row(*pair) for pair in pairs], np.int64)
        # Parts of a wait that goes on are none that has ended.
        count = (rows["flags"] & sampler_file.UNFINISHED == 0).astype(np.int64)
        return counted(bucket, key, count, rows["weight_ns"].astype(np.int64))

    def _wait_row(self, state: int, path: int) -> int:
        row = self._wait_of.get((state, path))
        if row is None:
            where = "" if state < 0 else self._table.waits_in(path)
            label = (IDLE if state < 0 else WAITS[state], where)
            row = self._wait_of[state, path] = self._wait_rows.of(*label)
        return row

    def _of_paths(
        self,
        rows: np.ndarray,
        bucket: np.ndarray,
        path: np.ndarray,
        weight_ns: np.ndarray,
        is_cpu: np.ndarray,
        idle: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Buckets and paths, each pair once, with their sums. The part of a sample in the kernel is
        of another path.
        """
        kernel_ns = np.where(is_cpu, np.minimum(rows["kernel_ns"].astype(np.int64), weight_ns), 0)
        in_kernel = np.flatnonzero(kernel_ns)
        of_kernel = [self._table.in_kernel(one) for one in path[in_kernel].tolist()]
        every_path = np.append(path, np.array(of_kernel, np.int64))
        every_bucket = np.append(bucket, bucket[in_kernel])
        cpu_ns = np.append(np.where(is_cpu, weight_ns - kernel_ns, 0), kernel_ns[in_kernel])
        more = len(in_kernel)
        wait_ns = np.append(np.where(is_cpu | idle, 0, weight_ns), np.zeros(more, np.int64))
        samples = np.append(is_cpu & (kernel_ns < weight_ns), np.zeros(more, np.bool_))
        samples[len(path) :] = kernel_ns[in_kernel] == weight_ns[in_kernel]
        first = int(every_bucket.min())
        pair = (every_bucket - first) << 32 | every_path
        pairs, inverse = np.unique(pair, return_inverse=True)
        sums = np.zeros((len(pairs), _OF_PATH), np.int64)
        np.add.at(sums, inverse, np.column_stack([cpu_ns, wait_ns, samples]).astype(np.int64))
        return first + (pairs >> 32), pairs & 0xFFFFFFFF, sums


def _by_row(
    bucket: np.ndarray, own: list[int], whole: list[tuple[int, ...]], sums: np.ndarray
) -> Counted:
    """Sums of paths as sums of the functions on them: `own`, the innermost one of each path, has
    what is its own; every one of `whole` has the CPU time in total.
    """
    lengths = np.array([len(rows) for rows in whole], np.int64)
    every = np.fromiter((row for rows in whole for row in rows), np.int64, int(lengths.sum()))
    own_key = np.array(own, np.int64)
    first = int(bucket.min())
    stride = int(max(every.max(initial=0), own_key.max(initial=0))) + 1
    code = np.append(
        (bucket - first) * stride + own_key,
        np.repeat((bucket - first) * stride, lengths) + every,
    )
    codes, inverse = np.unique(code, return_inverse=True)
    of_own, of_all = inverse[: len(own)], inverse[len(own) :]
    size = len(codes)
    cpu_ns, wait_ns, samples = sums.T
    # Sums of integers below 2**53 are exact as floating-point numbers.
    columns = (
        np.bincount(of_own, cpu_ns, size),
        np.bincount(of_all, np.repeat(cpu_ns, lengths), size),
        np.bincount(of_own, wait_ns, size),
        np.bincount(of_own, samples, size),
    )
    return counted(first + codes // stride, codes % stride, *columns)
