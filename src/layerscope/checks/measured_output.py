"""What a process that measures has printed: our lines, and in between those of oneDNN and MKL about
themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.checks.vectors import width_bits
from layerscope.model.measured import MKL, ONEDNN, Bandwidth, Library, Rate

_OURS = "layerscope "
# The lines of oneDNN began with mkldnn_verbose, dnnl_verbose and onednn_verbose in turn.
_ONEDNN = re.compile(r"(?:one|mkl)?dnnl?_verbose,")
_VERSION = re.compile(r",info,(?:oneDNN|DNNL|Intel MKL-DNN) v([\w.]+)")
_ISA, _RUNTIME, _THREADS = (
    re.compile(text) for text in (r",info,cpu,isa:(.*)", r"runtime:(\w+)", r"nthr:(\d+)")
)
# A timestamp may stand before the word, or behind it.
_EXECUTED = re.compile(r",exec(?:,[\d.]+)?,cpu,(\w+),([^,]*),")
_MKL = re.compile(r"MKL_VERBOSE (.*)")
# ... Intel(R) 64 architecture Intel(R) Advanced Vector Extensions 2 (Intel(R) AVX2)..., Lnx 2.60GHz
# lp64 gnu_thread
_MKL_HEADER = re.compile(
    r"(?:oneMKL|MKL) ([\d.]+(?: Update \d+)?).*?architecture (.*?), Lnx .* (\w+)$"
)


class Findings(Struct):
    """What is known so far. `doing`: what had begun when the output ended; empty at the end of
    everything.
    """

    libraries: dict[str, Library] = field(default_factory=dict)
    rates: dict[tuple[str, str, int], Rate] = field(default_factory=dict)
    bandwidths: dict[int, Bandwidth] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    doing: str = ""
    has_ended: bool = False
    _lines: list[str] = field(default_factory=list)  # of others, since something of ours began
    _by: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # name of a product: library and kernel

    def read(self, output: str) -> None:
        """Take in what one process printed, cut off or not."""
        self.doing, self.has_ended = "", False
        self._lines.clear()
        for line in output.splitlines():
            if not line.startswith(_OURS):
                self._lines.append(line)
                continue
            try:
                told = json.loads(line[len(_OURS) :])
            except ValueError:  # cut off
                continue
            for kind, about in told.items():
                self._take(kind, about)
        self._headers()

    def _take(self, kind: str, about: Any) -> None:
        if kind == "begin":
            self._headers()
            self._lines.clear()
            self.doing = str(about)
        elif kind == "listened":
            self._by[str(about)] = executed(self._lines)
        elif kind == "rate":
            self._rate(dict(about))
        elif kind == "bandwidth":
            self.bandwidths[int(about["threads"])] = Bandwidth(**about)
        elif kind == "library":
            self.libraries[str(about["name"])] = Library(
                **about, width_bits=width_bits(str(about["chose"]))
            )
        elif kind == "problem":
            self.problems.append(str(about))
        elif kind == "end":
            self.doing, self.has_ended = "", True

    def _rate(self, about: dict[str, Any]) -> None:
        """The later one of the same is that of all rounds. Two ways to one library: the faster one
        counts.
        """
        library, kernel = self._by.get(about.pop("case"), ("", ""))
        rounds = tuple(map(float, about.get("rounds", ())))
        found = Rate(
            **{**about, "library": library or about["library"], "by": kernel, "rounds": rounds}
        )
        key = found.library, found.dtype, found.threads
        if key not in self.rates or self.rates[key].gflop_per_s <= found.gflop_per_s:
            self.rates[key] = found

    def _headers(self) -> None:
        """oneDNN and MKL say once who they are, before their first line."""
        known = self.libraries
        for line in self._lines:
            if _ONEDNN.match(line):
                before = known.get(ONEDNN, Library(ONEDNN, "", ""))
                known[ONEDNN] = _with_header(before, line)
            elif (header := _MKL.match(line)) and (told := _MKL_HEADER.search(header[1])):
                version, chosen, runtime = told.groups()
                before = known.get(MKL, Library(MKL, "", ""))
                known[MKL] = replace(
                    before,
                    version=before.version or version,
                    chose=_plain(chosen),
                    width_bits=width_bits(chosen),
                    runtime=runtime,
                )


def executed(lines: Iterable[str]) -> tuple[str, str]:
    """Which library did a product, and by which kernel in its word; empty where none told."""
    found = "", ""
    for line in lines:
        primitive = None
        if _ONEDNN.match(line):
            primitive = _EXECUTED.search(line)
        if primitive and primitive[1] != "reorder":
            found = ONEDNN, primitive[2] or primitive[1]
            continue
        call = _MKL.match(line)
        routine = None
        if call:
            routine = re.match(r"(\w+)\(", call[1])
        if routine:
            found = MKL, routine[1]
    return found


def _with_header(library: Library, line: str) -> Library:
    version = _VERSION.search(line)
    if version:
        return replace(library, version=version[1])
    isa = _ISA.search(line)
    if isa:
        bits = width_bits(isa[1])
        return replace(library, chose=isa[1], width_bits=bits)
    if ",info,cpu,runtime" not in line:
        return library
    runtime = _RUNTIME.search(line)
    if not runtime:
        return library
    threads = _THREADS.search(line)
    count = int(threads[1]) if threads else None
    return replace(library, runtime=runtime[1], threads=count)


def _plain(words: str) -> str:
    """Without marks of trade."""
    for mark in ("(R)", "(TM)"):
        words = words.replace(mark, "")
    return " ".join(words.split())
