"""layout.py is made of native/layout.h, and says what the compiler of C says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import native_layout
from layerscope.capture import agent
from layerscope.model.layers import KINDS, LAYER_OF_KIND, SPAN_LAYERS
from layerscope.rawfile import dtypes, layout
from tests.native.building import build

STRUCTS = {
    "lf_record": dtypes.RECORD,
    "lf_open": dtypes.OPEN,
    "lf_ring_header": dtypes.RING,
    "lf_page": dtypes.PAGE,
    "lf_names_header": dtypes.NAMES,
}
NUMBERS = {
    "LF_LAYOUT_VERSION": layout.VERSION, "LF_RING_MAGIC": layout.RING_MAGIC, "LF_PAGE_MAGIC": layout.PAGE_MAGIC,
    "LF_NAMES_MAGIC": layout.NAMES_MAGIC, "LF_MESSAGE_MAGIC": layout.MESSAGE_MAGIC,
    "LF_THREAD_BEGIN": layout.THREAD_BEGIN, "LF_THREAD_END": layout.THREAD_END, "LF_LOST": layout.LOST,
    "LF_MARK_PROBLEM": layout.MARK_PROBLEM, "LF_MARK_NAMED": layout.MARK_NAMED,
    "LF_MARK_BEGINS": layout.MARK_BEGINS, "LF_MARK_ENDS": layout.MARK_ENDS,
    "LF_MARK_RAISED": layout.MARK_RAISED, "LF_EXTRA": layout.EXTRA,
    "LF_EXTRA_FORWARD_THREAD": layout.EXTRA_FORWARD_THREAD,
    "LF_EXTRA_ELSEWHERE": layout.EXTRA_ELSEWHERE, "LF_EXTRA_OPTIMIZER": layout.EXTRA_OPTIMIZER,
    "LF_FLAG_ASYNC": layout.FLAG_ASYNC, "LF_FLAG_ELSEWHERE": layout.FLAG_ELSEWHERE,
    "LF_FLAG_EXTRA": layout.FLAG_EXTRA, "LF_RING_BYTES": layout.RING_BYTES, "LF_RING_HEADER": layout.RING_HEADER,
    "LF_RING_RECORDS": layout.RING_RECORDS, "LF_OPEN_SLOTS": layout.OPEN_SLOTS, "LF_PAGE_BYTES": layout.PAGE_BYTES,
    "LF_ONEDNN_CONVOLUTION_ON": layout.ONEDNN_CONVOLUTION_ON,
    "LF_ONEDNN_CONVOLUTION_OFF": layout.ONEDNN_CONVOLUTION_OFF,
    "LF_ONEDNN_PRODUCT_ON": layout.ONEDNN_PRODUCT_ON, "LF_ONEDNN_PRODUCT_OFF": layout.ONEDNN_PRODUCT_OFF,
    "LF_PROBE_PENDING": layout.PROBE_PENDING, "LF_PROBE_GOOD": layout.PROBE_GOOD,
    "LF_PROBE_REFUSED": layout.PROBE_REFUSED, "LF_NAMES_HEADER": layout.NAMES_HEADER,
    "LF_SEND_PROCESS": layout.SEND_PROCESS, "LF_SEND_RING": layout.SEND_RING, "LF_SEND_NAMES": layout.SEND_NAMES,
    "LF_SEND_RATE": layout.SEND_RATE, "LF_SEND_USED": layout.SEND_USED,
    "sizeof(lf_message)": layout.MESSAGE.size, "sizeof(lf_record)": dtypes.RECORD.itemsize,
    "sizeof(lf_open)": dtypes.OPEN.itemsize, "sizeof(lf_page)": dtypes.PAGE.itemsize,
    "sizeof(lf_names_header)": dtypes.NAMES.itemsize, "offsetof(lf_ring, records)": dtypes.RING.itemsize,
    "offsetof(lf_message, magic)": 0, "offsetof(lf_message, type)": 4, "offsetof(lf_message, pid)": 8,
    "offsetof(lf_message, index)": 12, "offsetof(lf_message, process_start)": 16,
    "LF_FUNCTION": 0, "LF_BACKWARD": 1, "LF_RANGE": 2, "LF_OPTIMIZER": 3, "LF_LOADER": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What the C compiler says: every number above, and offset, size and signedness of every
    field.
    """
    folder = tmp_path_factory.mktemp("layout")
    wanted = list(NUMBERS)
    for struct, kind in STRUCTS.items():
        for field in kind.names or ():
            member = f"(({struct} *)0)->{field}"
            wanted += [f"offsetof({struct}, {field})", f"sizeof({member})"]
            if kind[field].kind in "iu":
                wanted.append(f"(__typeof__({member}))-1 < 0")
    lines = "".join(f'    printf("%lld\\n", (long long)({text}));\n' for text in wanted)
    (folder / "print.c").write_text(
        '#include "layout.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n'
        + lines
        + "    return 0;\n}\n"
    )
    program = build(folder / "print", [folder / "print.c"])
    printed = subprocess.run(
        [str(program)], capture_output=True, text=True, check=True
    ).stdout.split()
    return dict(zip(wanted, map(int, printed), strict=True))


def test_numbers_are_the_same(in_c: dict[str, int]) -> None:
    assert {name: in_c[name] for name in NUMBERS} == NUMBERS


@pytest.mark.parametrize("struct", STRUCTS)
def test_every_field_lies_where_c_puts_it(in_c: dict[str, int], struct: str) -> None:
    kind = STRUCTS[struct]
    for field in kind.names or ():
        part: np.dtype = kind[field]
        offset = (kind.fields or {})[field][1]
        assert in_c[f"offsetof({struct}, {field})"] == offset, field
        assert in_c[f"sizeof((({struct} *)0)->{field})"] == part.itemsize, field
        if part.kind in "iu":
            assert in_c[f"(__typeof__((({struct} *)0)->{field}))-1 < 0"] == (part.kind == "i"), (
                field
            )


def test_the_python_side_is_made_of_the_header() -> None:
    header = native_layout.Header(native_layout.HEADER.read_text())
    for path, text in native_layout.written(header).items():
        assert text == path.read_text(), "run python3 dev.py native"


def test_the_kinds_of_spans_are_those_of_the_tables() -> None:
    layers_of = [
        (kind, SPAN_LAYERS[layer]) for kind, layer in zip(KINDS, LAYER_OF_KIND, strict=True)
    ]
    assert list(layout.SPAN_KINDS) == layers_of[: len(layout.SPAN_KINDS)]


def test_the_counters_of_two_processes_do_not_share_a_cache_line() -> None:
    fields = dtypes.RING.fields or {}
    lines = {name: fields[name][1] // 64 for name in ("published", "consumed", "magic", "open")}
    assert len(set(lines.values())) == len(lines)


def test_the_compiled_agent_has_this_layout(native_agent: Path) -> None:
    assert agent.check() is None
