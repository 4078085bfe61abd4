"""What is in a report: the blocks of its pages, and what the page knows before it reads any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import layerscope
from layerscope.analyse.losses import problems
from layerscope.model.units import duration
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import Block, json_block
from layerscope.show.report.moments import (
    argument_block,
    counter_blocks,
    link_blocks,
    mark_block,
)
from layerscope.show.report.pages import page_blocks, pages
from layerscope.show.report.samples import sample_blocks, stack_blocks
from layerscope.show.report.spans import span_blocks
from layerscope.show.report.tables import table_blocks
from layerscope.show.report.tracks import track_block
from layerscope.show.terminal import problem_sentence

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Contents:
    """`head`: what the page knows from the start; `spans`: how many are in it."""

    head: dict[str, Any]
    blocks: list[Block]
    spans: int


def contents(reader: Reader) -> Contents:
    """Everything of `reader`'s recording. Times count from the start of the run."""
    info = reader.run.info
    spans = span_blocks(reader, info.start_ns)
    about_tables, tables = table_blocks(reader)
    blocks = [
        *[json_block(f"page {name}", page.data(reader)) for name, page in pages().items()],
        *tables,
        track_block(reader, info.start_ns),
        *spans.blocks,
        *link_blocks(reader, spans.keys),
        *counter_blocks(reader, info.start_ns),
        mark_block(reader, info.start_ns),
        argument_block(reader),
        *sample_blocks(reader, info.start_ns),
        *stack_blocks(reader),
        *page_blocks(reader, spans.keys),
    ]
    head = {
        "format": FORMAT,
        "layerscope": layerscope.__version__,
        "run": _about_run(reader),
        "pages": [{"name": name, "title": page.TITLE} for name, page in pages().items()],
        "tables": about_tables,
    }
    return Contents(head, blocks, len(spans.keys))


def _about_run(reader: Reader) -> dict[str, Any]:
    info = reader.run.info
    return {
        "name": reader.run.name,
        "command": info.command,
        "state": info.state,
        "started_utc": info.started_utc,
        "start_ns": info.start_ns,
        "wall_ns": info.program.wall_ns,
        "duration": duration(info.program.wall_ns),
        "has_python": info.has_python,
        "problems": [problem_sentence(problem) for problem in problems(reader)],
    }
