"""oneDNN in the summary: its version and instruction set, and what it was used for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from layerscope.analyse.onednn import NOT_ONEDNN, ONEDNN, OneDnn

# Intel AVX-512 with Intel DL Boost and bfloat16 support; what is narrower is part of what is wider.
_VECTORS = re.compile(r"SSE4\.1|AVX10\.\d|AVX-?512|AVX2|AVX")
_EXTENSIONS = (("AMX", "AMX"), ("float16,", "FP16"), ("bfloat16", "BF16"), ("DL Boost", "VNNI"))


def version_of(onednn: OneDnn) -> str:
    """Its version, its instruction set in short, and the cap that the program set it: "oneDNN
    3.12.0 AVX2".
    """
    if onednn.is_missing:
        return "no oneDNN"
    cap = f"(ONEDNN_MAX_CPU_ISA={onednn.cap})" if onednn.cap else ""
    return " ".join(filter(None, ["oneDNN", onednn.version, _short(onednn.isa), cap]))


def _short(isa: str) -> str:
    """The widest vectors in oneDNN's own words, and the foremost of their extensions."""
    vectors = _VECTORS.search(isa)
    if vectors is None:
        return ""
    extension = next((short for word, short in _EXTENSIONS if word in isa), "")
    return f"{vectors[0].replace('AVX512', 'AVX-512')} {extension}".rstrip()


def use_of(onednn: OneDnn) -> str:
    """What it was used for, and whether it was switched off; empty where nothing is known."""
    used = "; ".join(_used(onednn))
    if onednn.is_missing:
        return (
            f"oneDNN is not in this build of {_title(onednn)}: other code does convolutions and "
            "matrix products."
        )
    off = ""
    if onednn.off:
        when = "when" if all(onednn.off.values()) else "some of the times that"
        work = "they" if set(onednn.off) == set(onednn.done_by) else " and ".join(onednn.off)
        switch = onednn.framework.backends.onednn_switch if onednn.framework else ""
        off = f"{switch or 'its switch'} was False {when} {work} were first called"
    return f"oneDNN: {'; '.join(filter(None, [used, off]))}." if used or off else ""


def _title(onednn: OneDnn) -> str:
    framework = onednn.framework
    return framework.title if framework else "the framework"


def _used(onednn: OneDnn) -> Iterator[str]:
    """What it did, and what it did not do with who did it instead, as far as that is known."""
    did = [_partly(work, by) for work, by in onednn.done_by.items() if ONEDNN in by]
    others = {work: _others(by) for work, by in onednn.done_by.items() if ONEDNN not in by}
    if did:
        yield f"used for {' and '.join(did)}"
    if others:
        yield (
            "not used for "
            f"{' and '.join(work + f' ({by} was)' * bool(by) for work, by in others.items())}"
        )


def _partly(work: str, by: list[str]) -> str:
    """A kind of work that oneDNN did in part, and what did the rest."""
    others = _others(by)
    if not others:
        return work
    return f"some {work} ({others} for the rest)"


def _others(by: list[str]) -> str:
    """The libraries beside oneDNN."""
    others = [one for one in by if one not in (ONEDNN, NOT_ONEDNN)]
    return " and ".join(others)
