"""The raw file of the sampler, read while it grows and cut anywhere; the same numbers in C and in
Python.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.rawfile import raw_file
from layerscope.rawfile import sampler_file as files
from layerscope.sources.raw.stacks import SampledFile
from tests.ingest.sampler_file import SamplerFile
from tests.native.building import NATIVE, build

STRUCTURES = {
    "lt_object": files.OBJECT, "lt_process": files.PROCESS, "lt_thread": files.THREAD, "lt_code": files.CODE,
    "lt_frame": files.FRAME, "lt_stack": files.STACK, "lt_sample": files.SAMPLE, "lt_account": files.ACCOUNT,
    "lt_quality": files.QUALITY_OF,
}  # fmt: skip


def test_the_types_are_those_of_the_sampler(tmp_path: Path) -> None:
    lines = []
    for name, dtype in STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field in dtype.names or ():
            if not field.startswith("pad"):
                lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
    source = (
        '#include "sampler/format.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n'
    )
    (tmp_path / "t.c").write_text(source + "\n".join(lines) + "\nreturn 0;\n}\n")
    program = build(tmp_path / "t", [tmp_path / "t.c"])
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout

    told = dict(line.split() for line in printed.splitlines())
    for name, dtype in STRUCTURES.items():
        assert int(told.pop(name)) == dtype.itemsize
    assert {key: int(value) for key, value in told.items()} == {
        f"{name}.{field}": dtype.fields[field][1]
        for name, dtype in STRUCTURES.items()
        for field in dtype.names or ()
        if dtype.fields is not None and not field.startswith("pad")
    }


def test_the_numbers_are_those_of_the_sampler() -> None:
    text = (NATIVE / "sampler" / "format.h").read_text()
    told = {name: int(number) for name, number in re.findall(r"\b(LT_\w+) = (-?\d+)", text)}

    chunks = ("SETTINGS", "OBJECTS", "PROCESSES", "THREADS", "CODES", "FRAMES", "STACKS", "SAMPLES", "ACCOUNTS",
              "QUALITY", "POLL", "PROBLEMS", "END", "NATIVE", "PYTHON", "JIT", "KERNEL", "CUT", "OFFCPU", "FAULT",
              "EXACT", "PREEMPTED", "NO_SPLICE", "UNFINISHED", "NO_FILE", "PIPE", "SOCKET", "TERMINAL", "EVENT",
              "CPU")  # fmt: skip
    assert {name: told[f"LT_{name}"] for name in chunks} == {
        name: getattr(files, name) for name in chunks
    }
    assert told["LT_FILE"] == files.REGULAR


def known_file(folder: Path) -> Path:
    file = SamplerFile(folder, 7)
    file.thread(0, 7, 10)
    for at_ns in range(0, 500, 10):
        file.cpu(at_ns, 0, file.stack("py:main", f"py:f{at_ns % 50}"), 5)
    file.end(1000)
    return folder / raw_file.SAMPLER_FILE


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    whole = known_file(tmp_path).read_bytes()
    growing = SampledFile(tmp_path / "growing")
    growing.advance()  # it is not there yet
    times: list[int] = []
    for end in range(0, len(whole) + 1, 997):
        (tmp_path / "growing").write_bytes(whole[:end])
        growing.advance()
        times += growing.take(files.SAMPLES)["at_ns"].tolist()
    (tmp_path / "growing").write_bytes(whole)
    growing.advance()
    times += growing.take(files.SAMPLES)["at_ns"].tolist()

    assert times == list(range(0, 500, 10))
    assert growing.ended
    assert (growing.until_ns, growing.settings["hz"]) == (1000, 99)
    assert [code.name for code in growing.codes][:2] == ["main", "f0"]
    assert growing.objects[0].path == "/usr/lib/libnothing.so"
    assert len(growing.take(files.SAMPLES)) == 0


@pytest.mark.parametrize(("is_told", "gap_ns"), [(False, (490, 2000)), (True, None)])
def test_a_sampler_that_dies_leaves_a_gap_and_one_that_is_told_to_end_does_not(
    is_told: bool, gap_ns: tuple[int, int] | None, tmp_path: Path
) -> None:
    """Whoever rests, as long as a window is closed, is told to."""
    first = SamplerFile(tmp_path, 7)
    first.thread(0, 7, 10)
    for at_ns in range(0, 500, 10):
        first.cpu(at_ns, 0, first.stack("py:main"), 5)
    if is_told:
        first.end(1000)
    second = SamplerFile(tmp_path, 7, name=f"{raw_file.SAMPLER_FILE}.1")
    second._write(files.SETTINGS, json.dumps({"hz": 99, "began_ns": 2000}).encode())
    found = SampledFile(tmp_path / f"{raw_file.SAMPLER_FILE}.1")
    found.advance()
    assert found.gap_ns == gap_ns


@pytest.fixture(scope="module")
def known_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return known_file(tmp_path_factory.mktemp("known")).read_bytes()


@given(st.data())
def test_any_cut_opens_up_to_the_cut(known_bytes: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(known_bytes)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stacks"
        path.write_bytes(known_bytes[:cut])
        file = SampledFile(path)
        file.advance()

    samples = file.take(files.SAMPLES)
    assert samples["at_ns"].tolist() == list(range(0, 500, 10))[: len(samples)]
    assert len(samples) == 50 or not file.ended
    stacks, frames = file.take(files.STACKS), file.take(files.FRAMES)
    # What a row names has been written before it.
    assert np.all(samples["stack"] < len(stacks))
    assert np.all(stacks["frame"] < len(frames))
    assert not file.is_damaged
