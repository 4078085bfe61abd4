"""/proc/cpuinfo, read once for all who ask about the processor."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from layerscope.host import files

_OF_EACH = re.compile(
    r"^(processor|flags|Features|physical id|core id)[ \t]*:[ \t]*(.*)$", re.MULTILINE
)
# CPU implementer and part of ARM's MIDR_EL1, as arch/arm64/include/asm/cputype.h names them.
_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x51: "Qualcomm",
    0x61: "Apple",
    0xC0: "Ampere",
}
_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "Kunpeng-920",
    (0x51, 0x001): "Oryon",
    (0xC0, 0xAC3): "AmpereOne",
    (0xC0, 0xAC4): "AmpereOne-A",
}


class Cpuinfo(msgspec.Struct, frozen=True):
    """`first`: the fields of the first processor. `flags`: those that all have, sorted; of ARM its
    "Features".

    `processors`: their numbers. `sockets`, `cores`: how many there are by their ids; None where
    none are told.
    """

    first: dict[str, str]
    flags: tuple[str, ...]
    processors: tuple[int, ...]
    sockets: int | None
    cores: int | None

    @property
    def vendor(self) -> str:
        """As the processor calls its maker; of ARM the implementer's name, or his number."""
        implementer = self.first.get("CPU implementer", "")
        return self.first.get("vendor_id", "") or _IMPLEMENTERS.get(
            _hexadecimal(implementer), implementer
        )

    @property
    def model(self) -> str:
        """The name of the processor; ARM has one by its part number only."""
        if name := self.first.get("model name", "") or self.first.get("cpu", ""):
            return name
        if not (part := self.first.get("CPU part", "")):
            return self.first.get("uarch", "")
        known = _PARTS.get(
            (_hexadecimal(self.first.get("CPU implementer", "")), _hexadecimal(part))
        )
        return f"{self.vendor} {known or f'part {part}'}"

    @property
    def machine(self) -> str:
        """The architecture, by what only it says of its processors; empty where that does not
        tell.
        """
        first = self.first
        if "vendor_id" in first and first.get("flags"):
            return "x86_64" if "lm" in self.flags else "i686"
        if "CPU implementer" in first:
            return (
                "aarch64"
                if "asimd" in self.flags or first.get("CPU architecture") == "AArch64"
                else "armv7l"
            )
        if isa := first.get("isa", ""):
            return isa[:4].replace("rv", "riscv") if re.match(r"rv(32|64)", isa) else ""
        return "ppc64le" if "POWER" in first.get("cpu", "") else ""


def read(root: Path = Path("/")) -> Cpuinfo:
    """What the file below `root` says; all is empty where there is none."""
    text = files.text(root / "proc/cpuinfo")
    values: dict[str, list[str]] = {}
    for name, value in _OF_EACH.findall(text):
        values.setdefault(name, []).append(value)
    lines_of_flags = [*values.get("flags", ()), *values.get("Features", ())]
    sockets = values.get("physical id", [])
    cores = set(zip(sockets, values.get("core id", []), strict=False))
    first_block, _, _ = text.partition("\n\n")
    return Cpuinfo(
        _fields(first_block),
        _common_flags(lines_of_flags),
        _numbers(values.get("processor", [])),
        len(set(sockets)) or None,
        len(cores) or None,
    )


def _common_flags(lines: list[str]) -> tuple[str, ...]:
    """Those that every CPU has."""
    flags = [set(line.split()) for line in set(lines)]
    if not flags:
        return ()
    common = set.intersection(*flags)
    return tuple(sorted(common))


def _numbers(words: list[str]) -> tuple[int, ...]:
    found = []
    for word in words:
        number = files.whole(word.strip())
        if number is not None:
            found.append(number)
    found.sort()
    return tuple(found)


def _fields(block: str) -> dict[str, str]:
    fields = {}
    for line in block.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    return fields


def _hexadecimal(word: str) -> int:
    try:
        return int(word, 16)
    except ValueError:
        return -1
