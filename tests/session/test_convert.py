"""The summary that the converter makes for the prompt is the one that is made later."""

from __future__ import annotations

from pathlib import Path

import msgspec

from layerscope.analyse.summary import summarise
from layerscope.recording.reader import Reader
from layerscope.recording.run import LayerState
from layerscope.session import convert
from layerscope.show.summary import text
from tests.recordings import MS, Recording


def test_the_overhead_at_the_prompt_is_that_of_the_steps_too(tmp_path: Path) -> None:
    recording = Recording()
    for number in range(12):
        recording.add_step(number, number * 10 * MS, (0, 5 * MS, 5 * MS, 0, 0))
        recording.add_span("aten::mm", number * 10 * MS, MS, step=number)
    run = recording.write(
        tmp_path / "x.layerscope",
        layers=[LayerState("operators", records=12, cpu_ns=12 * MS, state="recorded")],
    )
    request = {"tables": str(run.path), "info": msgspec.to_builtins(run.info)}

    answer = convert._summary(run.path, request)

    assert "at least 10.0 % of its steps (estimated)" in answer["text"]
    with Reader(run) as reader:
        later = text(summarise(reader))
    assert later.partition("Overhead")[0] == answer["text"].partition("Overhead")[0]
