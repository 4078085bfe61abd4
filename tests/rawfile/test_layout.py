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
    "ls_record": dtypes.RECORD,
    "ls_open": dtypes.OPEN,
    "ls_ring_header": dtypes.RING,
    "ls_page": dtypes.PAGE,
    "ls_names_header": dtypes.NAMES,
}
NUMBERS = {
    "LS_LAYOUT_VERSION": layout.VERSION, "LS_RING_MAGIC": layout.RING_MAGIC, "LS_PAGE_MAGIC": layout.PAGE_MAGIC,
    "LS_NAMES_MAGIC": layout.NAMES_MAGIC, "LS_MESSAGE_MAGIC": layout.MESSAGE_MAGIC,
    "LS_THREAD_BEGIN": layout.THREAD_BEGIN, "LS_THREAD_END": layout.THREAD_END, "LS_LOST": layout.LOST,
    "LS_MARK_PROBLEM": layout.MARK_PROBLEM, "LS_MARK_NAMED": layout.MARK_NAMED,
    "LS_MARK_BEGINS": layout.MARK_BEGINS, "LS_MARK_ENDS": layout.MARK_ENDS,
    "LS_MARK_RAISED": layout.MARK_RAISED, "LS_EXTRA": layout.EXTRA,
    "LS_EXTRA_FORWARD_THREAD": layout.EXTRA_FORWARD_THREAD,
    "LS_EXTRA_ELSEWHERE": layout.EXTRA_ELSEWHERE, "LS_EXTRA_OPTIMIZER": layout.EXTRA_OPTIMIZER,
    "LS_FLAG_ASYNC": layout.FLAG_ASYNC, "LS_FLAG_ELSEWHERE": layout.FLAG_ELSEWHERE,
    "LS_FLAG_EXTRA": layout.FLAG_EXTRA, "LS_RING_BYTES": layout.RING_BYTES, "LS_RING_HEADER": layout.RING_HEADER,
    "LS_RING_RECORDS": layout.RING_RECORDS, "LS_OPEN_SLOTS": layout.OPEN_SLOTS, "LS_PAGE_BYTES": layout.PAGE_BYTES,
    "LS_ONEDNN_CONVOLUTION_ON": layout.ONEDNN_CONVOLUTION_ON,
    "LS_ONEDNN_CONVOLUTION_OFF": layout.ONEDNN_CONVOLUTION_OFF,
    "LS_ONEDNN_PRODUCT_ON": layout.ONEDNN_PRODUCT_ON, "LS_ONEDNN_PRODUCT_OFF": layout.ONEDNN_PRODUCT_OFF,
    "LS_PROBE_PENDING": layout.PROBE_PENDING, "LS_PROBE_GOOD": layout.PROBE_GOOD,
    "LS_PROBE_REFUSED": layout.PROBE_REFUSED, "LS_NAMES_HEADER": layout.NAMES_HEADER,
    "LS_SEND_PROCESS": layout.SEND_PROCESS, "LS_SEND_RING": layout.SEND_RING, "LS_SEND_NAMES": layout.SEND_NAMES,
    "sizeof(ls_message)": layout.MESSAGE.size, "sizeof(ls_record)": dtypes.RECORD.itemsize,
    "sizeof(ls_open)": dtypes.OPEN.itemsize, "sizeof(ls_page)": dtypes.PAGE.itemsize,
    "sizeof(ls_names_header)": dtypes.NAMES.itemsize, "offsetof(ls_ring, records)": dtypes.RING.itemsize,
    "offsetof(ls_message, magic)": 0, "offsetof(ls_message, type)": 4, "offsetof(ls_message, pid)": 8,
    "offsetof(ls_message, index)": 12, "offsetof(ls_message, process_start)": 16,
    "LS_FUNCTION": 0, "LS_BACKWARD": 1, "LS_RANGE": 2, "LS_OPTIMIZER": 3, "LS_LOADER": 4,
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
