"""What `layerscope findings --prove` measured: kept beside the recording in `proofs.json`, and in
the user's cache for later recordings of the same program on the same machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from layerscope.model import cache
from layerscope.model.stored_json import Int64, decoded
from layerscope.recording.run import Run, RunInfo

PROOFS = "proofs.json"
PROVEN, REFUTED, NO_DIFFERENCE = "proven", "refuted", "no difference measurable"


class Proof(msgspec.Struct):
    """One comparison in pairs of runs of `command` as it is and with `change`. `ratio`: the time
    with the change over that without, `low` and `high`: its 95 % interval. `machine`: see
    `machine_of`.
    """

    rule: str
    verdict: str
    ratio: float
    low: float | None
    high: float | None
    pairs: Int64
    change: str
    command: list[str]
    machine: str
    versions: dict[str, str]
    at_utc: str

    @property
    def words(self) -> str:
        """The verdict as people read it."""
        ratio = f"× {self.ratio:.2f}"  # noqa: RUF001
        if self.low is not None and self.high is not None:
            ratio += f" [{self.low:.2f}, {self.high:.2f}]"
        verdict = f"{self.verdict}:"
        if self.verdict == REFUTED:
            verdict += " slower,"
        return f"{verdict} {ratio}, {self.pairs} pairs"


def machine_of(info: RunInfo) -> str:
    """Which machine a recording was made on: its name and its CPU."""
    name = info.host_fact("name")
    model = info.host_fact("cpu", "model")
    return f"{name}, {model}"


def proofs_of(run: Run) -> list[Proof]:
    """Those of the program of `run` on its machine, the oldest first."""
    found = []
    for file in (*_kept_elsewhere(run.info), run.path / PROOFS):
        found += _read(file)
    return sorted(found, key=lambda proof: proof.at_utc)


def keep_proof(run: Run, proof: Proof) -> None:
    """Add it to those that are kept. OSError where it can be kept nowhere."""
    kept = 0
    why = OSError(13, "no folder can be written")
    for file in (run.path / PROOFS, *_kept_elsewhere(run.info)[:1]):
        try:
            if file.name != PROOFS:
                cache.make(file.parent)
            _add(file, proof)
            kept += 1
        except OSError as error:
            why = error
    if not kept:
        raise why


def _kept_elsewhere(info: RunInfo) -> list[Path]:
    """The files of the program of a recording in the user's cache, best first."""
    about = "\0".join([machine_of(info), info.cwd, *info.command])
    digest = hashlib.blake2b(os.fsencode(about), digest_size=8)
    name = f"{digest.hexdigest()}.json"
    folders = cache.caches(cache.PROOFS)
    return [folder / name for folder in folders]


def _read(file: Path) -> list[Proof]:
    """What `file` holds; nothing where it is damaged."""
    with contextlib.suppress(OSError, ValueError):
        return decoded(file.read_bytes(), list[Proof])
    return []


def _add(file: Path, proof: Proof) -> None:
    proofs = [*_read(file), proof]
    text = msgspec.json.encode(proofs)
    lines = msgspec.json.format(text, indent=1)
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(lines + b"\n")
    os.replace(temporary, file)
