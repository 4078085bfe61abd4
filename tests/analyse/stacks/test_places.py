"""What tables say of where a sample was: the program's own line, and nothing where no function was
seen.
"""

from __future__ import annotations

from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.stacks.sample_reader import is_inside
from tests.analyse.stacks.made import opened
from tests.recordings import Recording

PATHS = ["Net", "Net.blocks.0", "Net.blocks.0.attention", "Net.blocks.1.attention"]
LIBRARY = "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py"


def rows(recording: Recording, table: str, by: str | None, *names: str) -> list[tuple[Any, ...]]:
    with opened(recording) as reader:
        found = tables.build(reader, table, by).data
        data = (
            found.to_pylist() if hasattr(found, "to_pylist") else found.to_arrow_table().to_pylist()
        )
    return [tuple(row[name] for name in names) for row in data]


def test_a_wait_in_a_library_is_charged_to_the_line_of_the_program_that_called_it() -> None:
    recording = Recording()
    own = ("python <module> /srv/me/train.py:9", "python train /srv/me/train.py:5")
    waits = recording.add_stack(*own, f"python next {LIBRARY}:80", "native read libc.so")
    thread = recording.add_stack(
        "python run /usr/lib/python3.11/threading.py:12", "native futex libc.so"
    )
    native = recording.add_stack("native start libc.so", "native futex libc.so")
    for stack, weight, state in ((waits, 70, "pipe"), (thread, 60, "lock"), (native, 50, "lock")):
        recording.add_sample(stack, weight, kind="offcpu", state=state)

    assert rows(recording, "waits", "line", "line", "total_ns") == [
        ("/srv/me/train.py:5", 70), ("/usr/lib/python3.11/threading.py:12", 60), ("outside Python", 50),
    ]  # fmt: skip


def test_what_no_function_is_known_of_is_not_outside_python() -> None:
    recording = Recording()
    opened_only = recording.add_stack("modules Net", "operators aten::mm")
    worker = recording.add_stack("native start libc.so", "native gemm libmkl.so")
    kernel = recording.add_stack("kernel [kernel]")
    recording.add_sample(None, 100)
    recording.add_sample(opened_only, 20)
    recording.add_sample(worker, 300)
    recording.add_sample(kernel, 40, state="kernel")
    recording.add_sample(opened_only, 70, kind="offcpu", state="preempted", exact=False)
    recording.add_sample(None, 7, kind="offcpu", state="preempted", exact=False)

    assert rows(recording, "functions", None, "name", "self_ns", "wait_ns", "samples") == [
        ("outside Python", 300, 0, 1), ("not known", 160, 77, 3),
    ]  # fmt: skip
    assert rows(recording, "symbols", None, "name", "self_ns", "wait_ns") == [
        ("gemm", 300, 0), ("not known", 120, 77), ("[kernel]", 40, 0), ("start", 0, 0),
    ]  # fmt: skip
    assert rows(recording, "symbols", "object", "object", "self_ns") == [
        ("libmkl.so", 300), ("not known", 120), ("kernel", 40), ("libc.so", 0),
    ]  # fmt: skip
    assert rows(recording, "waits", "line", "line", "total_ns") == [("not known", 77)]
    by_operator = rows(recording, "functions", "operator", "operator", "name", "self_ns", "wait_ns")
    assert ("aten::mm", "not known", 20, 70) in by_operator


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("Net.blocks.0", PATHS[1:3]), ("blocks.0", PATHS[1:3]),
        ("blocks.*.attention", ["Net.blocks.0.attention", "Net.blocks.1.attention"]), ("Net", PATHS), ("*", PATHS),
        ("attention", []), ("blocks.0.att", []), ("Net.blocks.0.attention.merge", []),
    ],
)  # fmt: skip
def test_a_module_is_called_as_tables_or_as_the_summary_call_it(
    module: str, expected: list[str]
) -> None:
    assert [path for path in PATHS if is_inside(path, module)] == expected
