"""The samples of one file of a sampler that grows, summed up by function, symbol, thread and
wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from layerscope.ingest import waiting
from layerscope.ingest.file_frames import FileFrames
from layerscope.ingest.live.buckets import Spread, oldest_bucket
from layerscope.ingest.live.paths import FilePaths, PathTable
from layerscope.ingest.live.rows import RowNumbers
from layerscope.ingest.sampler_files import whole_waits
from layerscope.ingest.team_waits import at_barriers
from layerscope.model.layers import WAITS
from layerscope.model.live import IDLE, KeyedSums, ProcessLevel, counted
from layerscope.rawfile import sampler_file
from layerscope.sources.raw.folder import SamplerFile
from layerscope.sources.raw.stacks import SampledFile

# In the place of the state of a wait: the thread has no work.
_NO_WORK = -1


class SampleSums(Struct):
    """Sums of some samples, by table."""

    functions: KeyedSums
    symbols: KeyedSums
    threads: KeyedSums
    waits: KeyedSums


class _Samples(NamedTuple):
    """Columns of samples, of which each bucket has a piece. `kernel_ns`: the part of CPU time in
    the kernel; `state`: index into WAITS; `counts`: 1 in the last piece of a sample, of a wait if
    it does not go on; `is_user`: the sample has time outside of the kernel.
    """

    bucket: np.ndarray
    thread: np.ndarray
    path: np.ndarray
    weight_ns: np.ndarray
    kernel_ns: np.ndarray
    is_cpu: np.ndarray
    state: np.ndarray
    idle: np.ndarray
    counts: np.ndarray
    is_user: np.ndarray


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
        self._ready: dict[int, tuple[int, int]] = {}  # by thread when what was last read

    @property
    def until_ns(self) -> int:
        """All samples that began before this time of the run are read."""
        return self.file.until_ns + self._shift_ns

    def advance(self, keep_ns: int) -> Iterator[SampleSums]:
        """The sums of what is new; what was before the window of `keep_ns` is in one bucket."""
        self.file.advance()
        self._paths.advance()
        self._name_threads()
        rows = self.file.take(sampler_file.SAMPLES)
        rows = rows[rows["thread"] < len(self.file.threads)]
        rows = rows[rows["kind"] != sampler_file.FAULT]
        oldest = oldest_bucket(self.until_ns, keep_ns)
        if len(rows):
            yield self._sums(whole_waits(rows), oldest)

    def accounts(self, keep_ns: int) -> KeyedSums | None:
        """How long threads had no CPU though they could run, by the system's accounts since the
        last call; None: nothing has come.
        """
        rows = self.file.take(sampler_file.ACCOUNTS)
        rows = rows[rows["thread"] < len(self.row_of_thread)]
        if not len(rows):
            return None
        threads = rows["thread"].tolist()
        grown, since = [], []
        for thread, at_ns, ready_ns in zip(
            threads, rows["at_ns"].tolist(), rows["delay_ns"].tolist(), strict=True
        ):
            read_ns, before_ns = self._ready.get(thread, (-1, 0))
            grown_ns = max(ready_ns - before_ns, 0)
            grown.append(grown_ns)
            since.append(read_ns if 0 <= read_ns < at_ns else max(at_ns - grown_ns, 0))
            self._ready[thread] = (at_ns, max(ready_ns, before_ns))
        begin_ns = np.array(since, np.int64) + self._shift_ns
        end_ns = rows["at_ns"].astype(np.int64) + self._shift_ns
        spread = Spread(begin_ns, end_ns, oldest_bucket(self.until_ns, keep_ns))
        key = np.array([self.row_of_thread[thread] for thread in threads], np.int64)
        ready = spread.parts(np.array(grown, np.int64))
        nothing = np.zeros(len(ready), np.int64)
        return counted(spread.bucket, key[spread.row], nothing, ready, nothing, nothing)

    def levels(self) -> Iterator[ProcessLevel]:
        """What the sampler has read of processes since the last call."""
        rows = self.file.take(sampler_file.PROCESS_ACCOUNTS)
        places = {number: at for at, number in enumerate(rows["process"].tolist())}
        newest = self._newest()
        for number, at in places.items():
            row: np.void = rows[at]
            process = self.file.processes.get(number)
            if process is None or newest[int(process["pid"])] != number:
                continue  # it runs another program by now
            is_over = bool(row["flags"] & sampler_file.ENDED or process["end_ns"])
            yield ProcessLevel(
                int(process["pid"]),
                int(row["rss_bytes"]) or None,
                int(row["rss_peak_bytes"]) or None,
                int(row["threads"]),
                is_over,
            )

    def ended(self) -> list[int]:
        """The pids of processes that have ended."""
        known = self.file.processes
        return [pid for pid, number in self._newest().items() if known[number]["end_ns"]]

    def _newest(self) -> dict[int, int]:
        """By pid the process that has it: one that runs another program is another process."""
        return {int(row["pid"]): number for number, row in sorted(self.file.processes.items())}

    def _name_threads(self) -> None:
        """Give new threads rows, and those that have got another name that name."""
        labels = self._rows.labels
        for number, row in self.file.threads.items():
            name = self.file.names.get(number) or row["name"].decode("utf-8", "replace")
            process = self.file.processes.get(int(row["process"]))
            pid = str(int(process["pid"])) if process is not None else ""
            label = (f"{name} {int(row['tid'])}".strip(), pid)
            place = self.row_of_thread.setdefault(number, len(labels))
            if place == len(labels):
                labels.append(label)
            else:
                labels[place] = label

    # -- sums --------------------------------------------------------------------------------------

    def _sums(self, rows: np.ndarray, oldest: int) -> SampleSums:
        taken = self._columns(rows, oldest)
        bucket, path, sums = self._of_paths(taken)
        known = self._table.paths
        paths = [known[one] for one in path.tolist()]
        function = [one.function for one in paths]
        functions = [one.functions for one in paths]
        symbol = [one.symbol for one in paths]
        symbols = [one.symbols for one in paths]
        return SampleSums(
            _by_row(bucket, function, functions, sums),
            _by_row(bucket, symbol, symbols, sums),
            self._of_threads(taken),
            self._of_waits(taken),
        )

    def _columns(self, rows: np.ndarray, oldest: int) -> _Samples:
        """What counts of these samples."""
        is_cpu = rows["kind"] == sampler_file.CPU
        weight_ns = rows["weight_ns"].astype(np.int64)
        kernel_ns = np.minimum(rows["kernel_ns"].astype(np.int64), weight_ns)
        # A wait begins at its time; a sample on a CPU stands for the time before it.
        begin_ns = rows["at_ns"].astype(np.int64) + self._shift_ns
        begin_ns[is_cpu] -= weight_ns[is_cpu]
        spread = Spread(begin_ns, begin_ns + weight_ns, oldest)
        path = self._paths.of(rows["stack"])
        state = self._states(rows, path, is_cpu)
        # Parts of a wait that goes on are none that has ended.
        counts = is_cpu | (rows["flags"] & sampler_file.UNFINISHED == 0)
        kernel_ns = np.where(is_cpu, kernel_ns, 0)
        user_ns = weight_ns - kernel_ns
        of_kernel = spread.parts(kernel_ns)
        row = spread.row
        return _Samples(
            spread.bucket,
            rows["thread"][row],
            path[row],
            spread.parts(user_ns) + of_kernel,
            of_kernel,
            is_cpu[row],
            state[row],
            (~is_cpu & (state == waiting.POOL_STATE))[row],
            counts[row] & spread.is_last,
            (user_ns > 0)[row],
        )

    def _states(self, rows: np.ndarray, path: np.ndarray, is_cpu: np.ndarray) -> np.ndarray:
        """What each wait was for (index into WAITS)."""
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
        return state

    def _evidence(self, path: np.ndarray) -> np.ndarray:
        """What each path tells of a wait: bits of `waiting`."""
        found, inverse = np.unique(path, return_inverse=True)
        known = self._table.paths
        bits = [known[one].evidence for one in found.tolist()]
        of_found = np.array(bits, np.int64)
        return of_found[inverse]

    def _process_of(self, threads: np.ndarray) -> np.ndarray:
        """The number of the process of each thread."""
        found, inverse = np.unique(threads, return_inverse=True)
        known = self.file.threads
        owners = [int(known[one]["process"]) for one in found.tolist()]
        of_found = np.array(owners, np.int64)
        return of_found[inverse]

    def _of_threads(self, taken: _Samples) -> KeyedSums:
        row_of = self.row_of_thread
        rows = [row_of[thread] for thread in taken.thread.tolist()]
        weight_ns = taken.weight_ns
        columns = (
            np.where(taken.is_cpu, weight_ns, 0),
            np.zeros_like(weight_ns),
            np.where(taken.is_cpu | taken.idle, 0, weight_ns),
            np.where(taken.idle, weight_ns, 0),
        )
        return counted(taken.bucket, np.array(rows, np.int64), *columns)

    def _of_waits(self, taken: _Samples) -> KeyedSums:
        """By state and function; those that are idle are one row."""
        waits = np.flatnonzero(~taken.is_cpu)
        state = np.where(taken.idle, _NO_WORK, taken.state)
        states, paths = state[waits].tolist(), taken.path[waits].tolist()
        rows = list(map(self._wait_row, states, paths))
        count = taken.counts[waits].astype(np.int64)
        weight_ns = taken.weight_ns[waits]
        return counted(taken.bucket[waits], np.array(rows, np.int64), count, weight_ns)

    def _wait_row(self, state: int, path: int) -> int:
        """The row of waits in this state by a thread with this path."""
        row = self._wait_of.get((state, path))
        if row is not None:
            return row
        if state == _NO_WORK:
            row = self._wait_rows.of(IDLE, "")
        else:
            row = self._wait_rows.of(WAITS[state], self._table.waits_in(path))
        self._wait_of[state, path] = row
        return row

    def _of_paths(self, taken: _Samples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Buckets and paths, each pair once, with their sums of CPU time, of waits that are not
        idle, and of samples. The part of a sample in the kernel is of another path.
        """
        kernel_ns = taken.kernel_ns
        is_of_kernel = taken.is_cpu & taken.counts & ~taken.is_user
        in_kernel = np.flatnonzero((kernel_ns > 0) | is_of_kernel)
        of_kernel = [self._table.in_kernel(one) for one in taken.path[in_kernel].tolist()]
        user_ns = taken.weight_ns - kernel_ns
        user = np.column_stack(
            [
                np.where(taken.is_cpu, user_ns, 0),
                np.where(taken.is_cpu | taken.idle, 0, taken.weight_ns),
                taken.is_cpu & taken.is_user & taken.counts,
            ]
        )
        kernel = np.zeros((len(in_kernel), user.shape[1]), np.int64)
        kernel[:, 0] = kernel_ns[in_kernel]
        kernel[:, -1] = is_of_kernel[in_kernel]
        bucket = np.append(taken.bucket, taken.bucket[in_kernel])
        path = np.append(taken.path, np.array(of_kernel, np.int64))
        first = int(bucket.min())
        pair = (bucket - first) << 32 | path
        pairs, inverse = np.unique(pair, return_inverse=True)
        sums = np.zeros((len(pairs), user.shape[1]), np.int64)
        np.add.at(sums, inverse, np.concatenate([user, kernel]))
        return first + (pairs >> 32), pairs & 0xFFFFFFFF, sums


def _by_row(
    bucket: np.ndarray, own: list[int], whole: list[tuple[int, ...]], sums: np.ndarray
) -> KeyedSums:
    """Sums of paths as sums of the functions on them: `own`, the innermost one of each path, has
    what is its own; every one of `whole` has the CPU time in total.
    """
    lengths = np.array([len(rows) for rows in whole], np.int64)
    every = np.array([row for rows in whole for row in rows], np.int64)
    own_key = np.array(own, np.int64)
    first = int(bucket.min())
    stride = int(every.max(initial=0)) + 1
    begin = (bucket - first) * stride
    code = np.append(begin + own_key, np.repeat(begin, lengths) + every)
    codes, inverse = np.unique(code, return_inverse=True)
    of_own, of_every = np.split(inverse, [len(own)])
    size = len(codes)
    cpu_ns, wait_ns, samples = sums.T
    # Sums of integers below 2**53 are exact as floating-point numbers.
    columns = (
        np.bincount(of_own, cpu_ns, size),
        np.bincount(of_every, np.repeat(cpu_ns, lengths), size),
        np.bincount(of_own, wait_ns, size),
        np.bincount(of_own, samples, size),
    )
    return counted(first + codes // stride, codes % stride, *columns)
