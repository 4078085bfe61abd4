"""The text of `perf script`, in all its usual shapes, packed or not.

    COMM  [PID/]TID [CPU] TIME: PERIOD EVENT: what a tracepoint tells, or ADDRESS SYMBOL (OBJECT)
            ADDRESS SYMBOL+OFFSET (OBJECT)
      FILE:LINE

Each field may be missing (`-F`). A sample with a stack ends with an empty line. Heads of samples
are taken apart column by column; each distinct stack becomes an object once.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import SAMPLE_STATES, STACKS
from layerscope.sources import perf_waits
from layerscope.sources.imported import Imported, ImportedProcess, ImportedStacks, ImportedTrack
from layerscope.sources.perf_script_fields import CPU, FAULT, FIELDS, OFFCPU, OTHER_RECORD
from layerscope.sources.perf_script_lines import coded, cpu_event, head_fields, kind, numbers
from layerscope.sources.perf_threads import Threads
from layerscope.sources.perf_weights import weights
from layerscope.sources.stack_tree import JIT, UNKNOWN, FrameColumns, StackTree, unnamed
from layerscope.sources.text_chunks import chunks, lines_of, taken, with_short_lines

MEANING = "what perf script prints"
_RECOGNISED = re.compile(
    rb"^[ ]*(?:\S[^\n]*?\s+)?(?:-?\d+/)?-?\d+\s+(?:\[\d+\]\s+)?(?:\S{1,8}\s+)?\d+\.\d{6,9}:\s+"
    rb"(?:(?:\d+\s+)?[^\s:]\S*:\s|[0-9a-f]{4,16} )|^\t *[0-9a-f]{4,16} \S[^\n]* \([^\n]*\)\r?$|"
    rb"^\t *[0-9a-f]{4,16} \S[^\n]*\n\t *[0-9a-f]{4,16} \S",
    re.MULTILINE,
)
_FRAME = re.compile(
    rb"^\s*([0-9a-f]+)\s+(.*?)(?:\+0x([0-9a-f]+))?(?:\s+\(((?:/|\[)[^\n]*|[^()\s][^()]*)\))?\s*$"
)
_LINE = re.compile(rb"^\s+(\S.*):(\d{1,9})\s*$")
_VERSION = re.compile(r"@@?[A-Za-z]\w*_[\w.]+$")
_INLINED = b"inlined"
_MODULE = re.compile(
    r"^\[(kernel\b.*|guest\.kernel.*|k|[a-z0-9_]+)\]$|/lib/modules/|\.ko(\.\w+)?$|vmlinux"
)
_NO_MODULE = ("[unknown]", "[vdso]", "[vsyscall]", "[heap]", "[stack]", "[anon]", "[vvar]")
_MAP = re.compile(r"/perf-\d+\.map$|^//anon|^\[anon|^/memfd:|^/dev/zero")
_ADDRESSES_OF_KERNEL = 0xFFFF800000000000
_FREQUENCY = re.compile(
    rb"sample_freq \} = (\d{1,9})|sample_freq = (\d{1,9})|perf record [^\n]*?-F\s*(\d{1,9})"
)
# As the kernel prints them, and as the plugins of libtraceevent do: NAME:PID [PRIORITY].
_SWITCH = re.compile(
    rb"prev_pid=(\d{1,9}) .*?prev_state=(\S+) ==> .*?next_pid=(\d{1,9})(?!\d)|"
    rb":(\d{1,9}) \[-?\d+\] (\S+) ==> .*:(\d{1,9}) \[-?\d+\]"
)
_WOKEN = re.compile(rb"\bpid=(\d{1,9})(?!\d)|:(\d{1,9}) \[-?\d+\]")
_TAB, _HASH, _SPACE = (ord(character) for character in "\t# ")
_USER, _KERNEL, _PREEMPTED, _OTHER = map(
    SAMPLE_STATES.index, ("user", "kernel", "preempted", "other")
)
# More nanoseconds than a number of 64 bits has.
_NO_SECONDS = (1 << 63) // 1_000_000_000


def recognises(head: bytes) -> bool:
    """Whether a file that begins so (packed or not) is what `perf script` prints."""
    return b"\0" not in head and _RECOGNISED.search(with_short_lines(head)) is not None


def read(path: Path) -> Imported:
    """The samples in the text `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    text = _Text()
    for chunk, _ in chunks(path, b"\n\n"):
        text.add(chunk)
    return text.imported()


class _Text(Struct):
    """What was read so far. Columns have one array for each part of the file."""

    frames: FrameColumns = field(default_factory=FrameColumns)
    tree: StackTree = field(default_factory=StackTree)
    columns: dict[str, list[np.ndarray]] = field(
        default_factory=lambda: {
            name: [] for name in ("time", "track", "tid", "event", "period", "stack", "tail")
        }
    )
    events: dict[bytes, int] = field(default_factory=dict)
    tails: dict[bytes, int] = field(default_factory=dict)
    tracks: dict[tuple[bytes, bytes, bytes], int] = field(default_factory=dict)
    comms: list[bytes] = field(default_factory=list)
    rejected: int = 0
    example: str = ""
    frequency: float = 0.0
    untimed: int = 0
    untold: int = 0
    _lines: dict[bytes, int] = field(default_factory=dict)
    _in_kernel: list[bool] = field(default_factory=list)

    def add(self, chunk: bytes) -> None:
        """Take in whole samples."""
        told = _FREQUENCY.search(chunk) if not self.frequency and chunk.startswith(b"#") else None
        if told:
            self.frequency = float(next(word for word in told.groups() if word))
        heads, begin, end = self._heads(chunk)
        if len(begin):
            self._add(chunk, heads, begin, end)

    def _heads(self, chunk: bytes) -> tuple[pa.StructArray, np.ndarray, np.ndarray]:
        """The fields of the samples in `chunk`, and where the stack of each begins and ends."""
        octets = np.frombuffer(chunk, np.uint8)
        length = len(octets)
        start, stop = lines_of(octets)
        first = octets[np.minimum(start, length - 1)]
        is_empty = start == stop
        is_deep = (first == _TAB) & ~is_empty
        is_candidate = ~is_empty & ~is_deep & (first != _HASH)
        candidate = np.flatnonzero(is_candidate)
        followed = np.append(is_deep[1:], False)[candidate]
        texts = taken(chunk, start[candidate], stop[candidate])
        fields, fits = head_fields(texts, followed)
        self._reject(chunk, start, stop, candidate[~fits], first)
        # Without any field asked for, a stack follows an empty line.
        is_behind_empty = np.append(True, is_empty[:-1])
        alone = np.flatnonzero(is_deep & is_behind_empty)
        headed = candidate[fits]
        line = np.concatenate([headed, alone])
        rows = np.append(np.arange(len(headed)), np.full(len(alone), -1))
        order = np.argsort(line, kind="stable")
        line, rows = line[order], rows[order]
        has_head = rows >= 0
        behind_head = np.minimum(stop[line] + 1, length)
        begin = np.where(has_head, behind_head, start[line])
        empty = np.flatnonzero(is_empty)
        next_empty = np.append(start[empty], length)[np.searchsorted(empty, line)]
        next_sample = np.append(start[line[1:]], length)
        end = np.minimum(next_empty, next_sample)
        end = np.minimum(end, length)
        chosen = pa.array(rows, mask=~has_head)
        return fields.take(chosen), begin, np.maximum(end, begin)

    def _reject(
        self, chunk: bytes, start: np.ndarray, stop: np.ndarray, rows: np.ndarray, first: np.ndarray
    ) -> None:
        """Count lines that are no head of a sample; lines of source code below a frame begin with
        two spaces.
        """
        wrong = [
            row
            for row in rows[first[rows] != _SPACE].tolist()
            if OTHER_RECORD not in (line := chunk[start[row] : stop[row]]) and not line.isspace()
        ]
        if wrong and not self.example:
            self.example = chunk[start[wrong[0]] : stop[wrong[0]]].decode("utf-8", "replace")
        self.rejected += len(wrong)

    def _add(self, chunk: bytes, heads: pa.StructArray, begin: np.ndarray, end: np.ndarray) -> None:
        fields = {}
        for name in FIELDS:
            column = pc.struct_field(heads, name)
            fields[name] = pc.fill_null(column, b"")
        has_time = pc.binary_length(fields["second"]).to_numpy() > 0
        self.untimed += int(np.count_nonzero(~has_time))
        event, event_texts = coded(fields["event"])
        tail, tail_texts = coded(fields["tail"])
        has_period = pc.binary_length(fields["period"]).to_numpy() > 0
        period = np.where(has_period, numbers(fields["period"]), -1)
        columns = self.columns
        columns["time"].append(_times_ns(fields))
        columns["tid"].append(numbers(fields["tid"]))
        columns["track"].append(self._tracks(fields))
        columns["event"].append(_numbered(self.events, event_texts)[event])
        columns["tail"].append(_numbered(self.tails, tail_texts)[tail])
        columns["period"].append(period)
        columns["stack"].append(self._stacks(chunk, begin, end, tail, tail_texts))

    def _tracks(self, fields: dict[str, pa.Array]) -> np.ndarray:
        """The thread of each sample, by its name, process and number."""
        whole = pc.binary_join_element_wise(fields["pid"], fields["tid"], fields["comm"], b"\n")
        codes, texts = coded(whole)
        known = []
        for text in texts:
            pid, tid, comm = text.split(b"\n", 2)
            comm = comm.strip()
            # Without a number threads are told apart by their name, else it may change.
            key = (pid, tid, b"" if tid else comm)
            track = self.tracks.setdefault(key, len(self.tracks))
            self.comms[track : track + 1] = [comm]
            known.append(track)
        found: np.ndarray = np.array(known, np.int32)[codes]
        return found

    def _stacks(
        self, chunk: bytes, begin: np.ndarray, end: np.ndarray, tail: np.ndarray, tails: list[bytes]
    ) -> np.ndarray:
        """The stack of each sample: what lies between these places, else the one address in its
        head.
        """
        codes, texts = coded(taken(chunk, begin, end))
        found: np.ndarray = self._added(texts)[codes]
        is_blank = np.array([not text.strip() for text in texts], np.bool_)
        alone = np.flatnonzero(is_blank[codes])
        if len(alone):
            of_tail = self._added(tails)
            found[alone] = of_tail[tail[alone]]
        return found

    def _added(self, texts: list[bytes]) -> np.ndarray:
        """The numbers of the stacks in these texts."""
        stacks = [self._parsed(text) for text in texts]
        length = np.fromiter(map(len, stacks), np.int64, len(stacks))
        all_frames = chain.from_iterable(stacks)
        frames = np.fromiter(all_frames, np.int64, int(length.sum()))
        first = np.cumsum(length) - length
        return self.tree.add(frames, first, length)

    def _parsed(self, text: bytes) -> list[int]:
        """The frames of a stack, from the outermost on."""
        found: list[int] = []
        lines = text.split(b"\n")
        for line, following in zip(lines, [*lines[1:], b""], strict=True):
            source = following if following.startswith(b"  ") else b""
            if source and _FRAME.match(source):
                source = b""
            key = line + b"\n" + source
            number = self._lines.get(key)
            if number is None:
                number = self._frame(line, source)
                self._lines[key] = number
            if number >= 0:
                found.append(number)
        return found[::-1]

    def _frame(self, line: bytes, source: bytes) -> int:
        """The frame that a line tells of, with the line of source code below it; -1: none."""
        told, where = _FRAME.match(line), _LINE.match(source)
        if told is None:
            return -1
        name, object_ = (
            (told[number] or b"").decode("utf-8", "replace").strip() for number in (2, 4)
        )
        more = {"file": where[1].decode("utf-8", "replace"), "line": int(where[2])} if where else {}
        is_kernel = int(told[1], 16) >= _ADDRESSES_OF_KERNEL if len(told[1]) <= 16 else False
        is_kernel |= bool(_MODULE.search(object_)) and object_ not in _NO_MODULE
        place: str | None = object_
        if _MAP.search(object_):
            place = JIT
        elif object_.encode() == _INLINED or not object_:
            place = None
        name = _VERSION.sub("", name)
        if name in ("", UNKNOWN):
            name = unnamed(place) if place else UNKNOWN
        number = self.frames.add("kernel" if is_kernel else "native", name, object=place, **more)
        self._in_kernel += [False] * (number + 1 - len(self._in_kernel))
        self._in_kernel[number] = is_kernel
        return number

    # -- the end -----------------------------------------------------------------------------------

    def imported(self) -> Imported:
        """Everything that was read."""
        none = np.zeros(0, np.int64)
        columns = {name: np.concatenate(parts or [none]) for name, parts in self.columns.items()}
        columns["time"], untimed = perf_waits.with_times(columns["time"])
        stacks = self.tree.columns()
        names = [text.decode("utf-8", "replace") for text in self.events]
        kinds = [kind(name) for name in names]
        chosen = cpu_event(names, kinds, np.bincount(columns["event"], minlength=len(names)))
        samples = self._samples(columns, stacks, names, kinds, chosen)
        processes, of_track = self._processes()
        tracks = [
            ImportedTrack(process, comm.decode("utf-8", "replace"), int(tid) if tid else None)
            for process, (_, tid, _), comm in zip(of_track, self.tracks, self.comms, strict=True)
        ]
        return Imported(
            tracks=tracks,
            processes=processes,
            stacks=ImportedStacks(self.frames.columns, stacks, samples),
            problems=self._problems(columns, names, kinds, chosen) + untimed,
        )

    def _processes(self) -> tuple[list[ImportedProcess], list[int]]:
        """The processes, by their number or where none is told by name, and that of each track."""
        known: dict[bytes, int] = {}
        found: list[ImportedProcess] = []
        of_track = []
        for (pid, tid, _), comm in zip(self.tracks, self.comms, strict=True):
            process = known.setdefault(pid or b"\n" + comm, len(known))
            if process == len(found):
                found.append(
                    ImportedProcess(comm.decode("utf-8", "replace"), pid=int(pid or (tid or 0)))
                )
            of_track.append(process)
        return found, of_track

    def _samples(
        self,
        columns: dict[str, np.ndarray],
        stacks: dict[str, np.ndarray],
        names: list[str],
        kinds: list[int],
        chosen: int,
    ) -> dict[str, np.ndarray]:
        """Columns of the table `samples`: CPU time, faults and waits with a length of their own,
        then other waits.
        """
        kind = np.array(kinds, np.int8)[columns["event"]] if kinds else np.zeros(0, np.int8)
        own = [number for number, name in enumerate(names) if perf_waits.is_off_cpu(name)]
        shown = np.flatnonzero(
            (columns["event"] == chosen) | (kind == FAULT) | np.isin(columns["event"], own)
        )
        kind, event = kind[shown], columns["event"][shown]
        period = columns["period"][shown]
        is_wait = kind == OFFCPU
        weight = np.where(is_wait, np.maximum(period, 0), 0)
        mine = np.flatnonzero(event == chosen)
        told = period[mine] if len(mine) and (period[mine] >= 0).all() else None
        is_clock = (
            bool(names) and chosen >= 0 and names[chosen].startswith(("cpu-clock", "task-clock"))
        )
        time, tid = columns["time"][shown], columns["tid"][shown]
        weight[mine] = weights(told, time[mine], tid[mine], is_clock, self.frequency)
        stack = columns["stack"][shown]
        inner = np.append(stacks["frame"], -1)[stack]
        in_kernel = np.append(np.array(self._in_kernel, np.bool_), False)[inner] & (kind == CPU)
        began = perf_waits.off_cpu_began(time, weight, columns["time"])
        rows = {
            "at_ns": np.where(is_wait, began, time),
            "track": columns["track"][shown].astype(np.int64),
            "stack": stack,
            "weight_ns": weight,
            "count": np.where(kind == FAULT, np.maximum(period, 1), 1),
            "kind": kind,
            "state": np.where(is_wait, _OTHER, np.where(in_kernel, _KERNEL, _USER)).astype(np.int8),
            "idle": (tid == 0) & (kind == CPU),
            "exact": is_wait & (period >= 0),
            "waker": np.full(len(shown), -1, np.int64),
        }
        waiting = self._waits(columns, names, kinds)
        rows = {name: np.concatenate([values, waiting[name]]) for name, values in rows.items()}
        order = np.argsort(rows["at_ns"], kind="stable")
        return {name: values[order] for name, values in rows.items()}

    def _waits(
        self, columns: dict[str, np.ndarray], names: list[str], kinds: list[int]
    ) -> dict[str, np.ndarray]:
        """Waits: from each switch to when the thread is seen again."""
        found, is_complete = perf_waits.Moments(), False
        wakes = []
        for number, name in enumerate(names):
            rows = np.flatnonzero(columns["event"] == number)
            time, tid, tail = columns["time"][rows], columns["tid"][rows], columns["tail"][rows]
            bare = name.rpartition(":")[2]
            if bare == "sched_switch":
                told = self._told(_SWITCH, tail)
                before, after = (
                    np.array([int(one[place]) if one else -1 for one in told])[tail]
                    for place in (0, 2)
                )
                runnable = np.array([bool(one) and one[1].startswith(b"R") for one in told])[tail]
                found.add(before, time, perf_waits.OUT, rows, runnable)
                found.add(after, time, perf_waits.IN)
                is_complete |= bool((before == 0).any())
            elif bare in perf_waits.WAKES:
                woken = [int(one[0]) if one else -1 for one in self._told(_WOKEN, tail)]
                wakes.append((np.array(woken)[tail], time, tid))
            elif perf_waits.is_off_cpu(name):
                continue
            elif kinds[number] == OFFCPU:
                found.add(tid, time, perf_waits.OUT, rows)
            else:
                found.add(tid, time, perf_waits.SEEN)
        waits = perf_waits.paired(found, is_complete, Threads())
        waits.waker = perf_waits.wakers(waits, wakes)
        track_of = {int(tid or 0): track for track, (_, tid, _) in enumerate(self.tracks)}
        track = np.array([track_of.get(tid, -1) for tid in waits.tid.tolist()], np.int64)
        waker = np.array([track_of.get(tid, -1) for tid in waits.waker.tolist()], np.int64)
        own = waits.sample >= 0
        track = np.where(own, np.append(columns["track"], -1)[waits.sample], track)
        kept = track >= 0
        count = int(kept.sum())
        return {
            "at_ns": waits.start_ns[kept],
            "track": track[kept],
            "stack": np.where(own, np.append(columns["stack"], -1)[waits.sample], -1)[kept],
            "weight_ns": waits.dur_ns[kept],
            "count": np.ones(count, np.int64),
            "kind": np.full(count, OFFCPU, np.int8),
            "state": np.where(waits.preempted, _PREEMPTED, _OTHER).astype(np.int8)[kept],
            "idle": np.zeros(count, np.bool_),
            "exact": waits.exact[kept],
            "waker": np.where(waits.waker > 0, waker, -1)[kept],
        }

    def _told(self, pattern: re.Pattern[bytes], tail: np.ndarray) -> list[list[bytes]]:
        """What each tail says in this form; nothing where it says something else, of which those of
        `tail` count.
        """
        words: list[list[bytes]] = []
        for text in self.tails:
            found = pattern.search(text)
            groups = found.groups() if found else ()
            words.append([group for group in groups if group is not None])
        is_other = np.array([not groups for groups in words], np.bool_)
        self.untold += int(np.count_nonzero(is_other[tail]))
        return words

    def _problems(
        self, columns: dict[str, np.ndarray], names: list[str], kinds: list[int], chosen: int
    ) -> list[Problem]:
        """What could not be understood, and what is not shown."""
        found = []
        if self.rejected:
            lines = "1 line is" if self.rejected == 1 else f"{self.rejected:,} lines are"
            what = f"{lines} no sample that can be understood, first: {self.example[:200]}"
            found.append(
                Problem(
                    STACKS, "lines_rejected", what, "look whether the text was cut", "these lines"
                )
            )
        counts = np.bincount(columns["event"], minlength=len(names)).tolist()
        left_out = [
            f"{name} ({count:,})"
            for number, (name, count) in enumerate(zip(names, counts, strict=True))
            if kinds[number] == CPU and number != chosen and ":sched_" not in f":{name}"
        ]
        if left_out:
            what = (
                "samples of other events than CPU time, faults and waits are not shown: "
                f"{', '.join(left_out)}"
            )
            remedy = "print them alone: perf script, with --filter or another file"
            found.append(Problem(STACKS, "perf_events", what, remedy, "these samples"))
        if self.untold:
            what = f"of {self.untold:,} switches and wakes without a thread"
            remedy = "let perf script print it: -F +trace"
            found.append(
                Problem(STACKS, "perf_switches", what, remedy, "these waits, and who ended them")
            )
        if self.untimed:
            what = f"{self.untimed:,} samples have no time"
            found.append(
                Problem(
                    STACKS,
                    "no_times",
                    what,
                    "let perf script print them: -F +time",
                    "when they were",
                )
            )
        return found


def _times_ns(fields: dict[str, pa.Array]) -> np.ndarray:
    """-1 where a number of 64 bits has no room for it."""
    seconds = numbers(fields["second"])
    fraction = fields["fraction"].cast(pa.string())
    nanoseconds = numbers(pc.utf8_rpad(fraction, 9, "0").cast(pa.binary()))
    time_ns: np.ndarray = seconds * 1_000_000_000 + nanoseconds
    time_ns[seconds >= _NO_SECONDS] = -1
    return time_ns


def _numbered(known: dict[bytes, int], texts: list[bytes]) -> np.ndarray:
    """The number of each of these texts; new ones get the next numbers."""
    found = []
    for text in texts:
        number = known.setdefault(text, len(known))
        found.append(number)
    return np.array(found, np.int32)
