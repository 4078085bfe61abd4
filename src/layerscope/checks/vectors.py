"""How wide the vectors are that a library says it uses, from its own word."""

from __future__ import annotations

import re

# First that fits. Words of ATen, oneDNN, MKL and NumPy, and core types of OpenBLAS (cpuid_*.c,
# driver/others/dynamic*.c of its sources) and BLIS (config names). Zen in OpenBLAS and BLIS is Zen
# 1 to 3; a wider one has a number.
_WIDTHS = (
    (r"sve\D*(\d+)", None),
    (r"neoversev1", 256),
    (r"a64fx", 512),
    (r"armv8sve|sve", 0),
    (r"avx10\.\d+/256", 256),
    (r"avx-?512|avx10|x86_v4|skylakex|skx|cooperlake|sapphirerapids|knl|zen[456]|amx", 512),
    (r"avx|x86_v3|haswell|zen|excavator|sandybridge|bulldozer|piledriver|steamroller|fma3", 256),
    (
        r"sse|x86_v[12]|nehalem|prescott|core2|penryn|dunnington|atom|katmai|coppermine|northwood|banias|opteron",
        128,
    ),
    (r"barcelona|bobcat|nano|athlon|generic|default", 128),
    (
        r"neon|asimd|advanced "
        r"simd|armv8|cortexa|neoverse|thunderx|tsv110|emag|vortex|firestorm|falkor",
        128,
    ),
    (r"vsx|power\d|vxe|z1[345]", 128),
    (r"lsx", 128),
    (r"lasx", 256),
)


def width_bits(word: str) -> int | None:
    """Of the vectors in `word`, such as 256 of "AVX2" and of "Haswell"; None where it does not
    tell.
    """
    for pattern, bits in _WIDTHS:
        if found := re.search(pattern, word, re.IGNORECASE):
            return int(found[1]) if bits is None else bits or None
    return None
