"""Small files of every format of others, damaged, opened in a process that may crash: each opens or
is refused in one sentence, soon, and in little memory.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerscope.ingest.open import open_run
from layerscope.model.errors import LayerscopeError
from layerscope.recording.reader import Reader
from tests.sources import test_nsys, test_nvprof, test_rocprof, test_speedscope
from tests.stress.mutating import MUTATIONS, bounded

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# Of the corpus, by format: what lies in folders of these names.
_FORMATS = {
    "kineto": ("kineto", "kineto_ranks"),
    "chrome": ("chrome",),
    "mxnet": ("mxnet",),
    "nsys": ("nsys",),
    "xplane": ("xplane",),
    "memory": ("memory",),
    "verbose": ("onednn",),
    "perf.data": ("perf",),
    "perf script": ("perf_script",),
}
_MOST_BYTES = 400_000
# What is beyond that is cut, as a file may be.
_KEPT_BYTES = 250_000
_MOST_MORE_BYTES = 600 << 20
_BATCH = 250
_ONNX = [
    {"cat": "Session", "pid": 7, "tid": 7, "dur": 30, "ts": 1, "ph": "X", "name": "model_run"},
    {
        "cat": "Node",
        "pid": 7,
        "tid": 7,
        "dur": 3,
        "ts": 4,
        "ph": "X",
        "name": "conv_kernel_time",
        "args": {"op_name": "Conv", "provider": "CPUExecutionProvider", "node_index": "0"},
    },
]


@dataclass(frozen=True)
class Fault:
    """What went wrong in a round."""

    seed: int
    what: str


Seeds = dict[str, list[tuple[str, bytes]]]


def seeds(folder: Path) -> Seeds:
    """By format the names and contents of small files: made ones, golden ones, and those of the
    corpus.
    """
    whole = test_rocprof.whole()
    made = {
        "nsys": test_nsys.small(folder / "small.sqlite").read_bytes(),
        "nvprof": test_nvprof.small(folder / "small.nvvp").read_bytes(),
        "rocprof": json.dumps(whole, indent=1).encode(),
        "speedscope": _speedscope(folder / "profile.json").read_bytes(),
        "perf calls": test_speedscope.CALLS.encode(),
        "onnxruntime": json.dumps(_ONNX).encode(),
    }
    found: Seeds = {name: [(f"made.{name}", content)] for name, content in made.items()}
    golden = {"kineto": "gpu/kineto*.gz", "xplane": "gpu/*.pb", "mxnet": "mxnet_trace/*/*.gz"}
    golden |= {"perf.data": "perf/*.data", "perf script": "perf/*.txt"}
    for name, pattern in golden.items():
        found.setdefault(name, []).extend(map(_seed, sorted(GOLDEN.glob(pattern))))
    corpus = os.environ.get("LAYERSCOPE_CORPUS")
    for name, folders in _FORMATS.items() if corpus else ():
        for one in folders:
            paths = sorted((Path(str(corpus)) / one).rglob("*"))
            small = [path for path in paths if path.is_file() and 0 < _size(path) < _MOST_BYTES]
            found.setdefault(name, []).extend(map(_seed, small))
    return {name: files for name, files in found.items() if files}


def _size(path: Path) -> int:
    return path.stat().st_size


def _seed(path: Path) -> tuple[str, bytes]:
    """A file, unpacked."""
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    return path.name.removesuffix(".gz"), content[:_KEPT_BYTES]


def _speedscope(path: Path) -> Path:
    events = ("O", 0, 1.0), ("O", 1, 2.0), ("C", 1, 5.5), ("C", 0, 9.0)
    return test_speedscope.profile(path, test_speedscope.evented("microseconds", *events, end=9))


def _swap_word(content: bytearray, chance: random.Random) -> None:
    """Another value in the place of one."""
    words = (b"NaN", b"-5", b"1e999", b"99999999999999999999", b'"x"', b"null", b"[[[[", b"{")
    words = (*words, b'"\xff\xfe"', b'"\\ud800"', b'"a\x00b"', b"-0.0000001", b'",\n"pid": 7')
    for mark in chance.sample((b": ", b":", b"=", b",", b" "), 5):
        places = content.count(mark)
        if places:
            at = -1
            for _ in range(chance.randrange(min(places, 500)) + 1):
                at = content.index(mark, at + 1)
            end = at + len(mark)
            content[end : end + chance.randrange(8)] = chance.choice(words)
            return


def _nest(content: bytearray, chance: random.Random) -> None:
    """Deep, in the middle."""
    at = chance.randrange(len(content) + 1)
    content[at:at] = chance.choice((b"[", b"{", b'{"a":', b"(")) * chance.choice((50, 300, 5000))


def _double(content: bytearray, _: random.Random) -> None:
    """Every number twice: as in two files one behind the other."""
    content.extend(bytes(content[: len(content) // 2]))


def _lengthen(content: bytearray, chance: random.Random) -> None:
    """One very long word."""
    at = chance.randrange(len(content) + 1)
    content[at:at] = chance.choice((b"x", b"9", b" ", b"\n", b"\0")) * 200_000


Mutation = Callable[[bytearray, random.Random], None]
_ALL: Sequence[Mutation] = (*MUTATIONS, _swap_word, _swap_word, _swap_word, _nest, _double)


def damaged(known: Seeds, seed: int, folder: Path) -> tuple[Path, str]:
    """The file of a round, and what was done to it."""
    chance = random.Random(seed)
    name = chance.choice(sorted(known))
    called, content = chance.choice(known[name])
    changed = bytearray(content)
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        mutation = _lengthen if chance.random() < 0.01 else chance.choice(_ALL)
        changed = changed or bytearray(b"0")
        mutation(changed, chance)
        done.append(mutation.__name__)
    written = bytes(changed)
    if chance.random() < 0.15:
        called += ".gz"
        written = gzip.compress(written, 1)
        if chance.random() < 0.3:
            written = written[: chance.randrange(len(written))]
    path = folder / called
    path.write_bytes(written)
    return path, f"{name}: {called} {' '.join(done)}"


def fault_of(path: Path) -> str:
    """What is wrong with how the file opens, empty if nothing is."""
    try:
        with bounded(), Reader(open_run(path)) as reader:
            reader.rows("spans")
            reader.rows("samples")
    except LayerscopeError as error:
        sentence = str(error)
        return "" if sentence and "\n" not in sentence else f"no sentence: {sentence!r}"
    except BaseException:
        return traceback.format_exc()
    return ""


def _rounds(known: Seeds, first: int, count: int, told: Path) -> None:
    """So many rounds in this process, which ends then; `told`: where it says what it found."""
    folder = Path(tempfile.mkdtemp(prefix="layerscope-damaged-"))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    peak_bytes = _peak_bytes()
    limit = peak_bytes + (8 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        for seed in range(first, first + count):
            path, done = damaged(known, seed, folder)
            what = fault_of(path)
            more_bytes = _peak_bytes() - peak_bytes
            if more_bytes > _MOST_MORE_BYTES:
                what = what or f"took {more_bytes / 1e6:,.0f} MB"
                peak_bytes += more_bytes
            if what:
                with told.open("a") as file:
                    file.write(json.dumps([seed, f"{done}: {what}"]) + "\n")
            path.unlink()
            shutil.rmtree(folder / "cache", ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def faults(first: int, count: int, folder: Path) -> Iterator[Fault]:
    """What went wrong in so many rounds, from that seed on."""
    known = seeds(folder)
    context = multiprocessing.get_context("fork")
    for begin in range(first, first + count, _BATCH):
        told = folder / f"faults-{begin}"
        number = min(_BATCH, first + count - begin)
        process = context.Process(target=_rounds, args=(known, begin, number, told))
        process.start()
        process.join()
        for line in told.read_text().splitlines() if told.exists() else ():
            yield Fault(*json.loads(line))
        if process.exitcode:
            yield Fault(begin, f"the process of {number} rounds ended with {process.exitcode}")


def run(first: int, count: int) -> list[Fault]:
    """All rounds."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return list(faults(first, count, folder))
