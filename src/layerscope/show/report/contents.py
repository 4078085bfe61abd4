"""What is in a report: the blocks of its pages, and what the page knows before it reads any.

Blocks that come of the same tables are made together, when the first of them is asked for:
`layerscope report` asks for all, the server of `layerscope view` for those that somebody looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from layerscope.analyse import findings
from layerscope.analyse.kept_spans import PartReader
from layerscope.analyse.losses import problems
from layerscope.analyse.thinned import what_was_kept
from layerscope.model.units import duration
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import Block, BlockGroup, json_block
from layerscope.show.report.live_timeline import is_large
from layerscope.show.report.moments import (
    argument_block,
    counter_blocks,
    link_blocks,
    mark_block,
)
from layerscope.show.report.pages import PageModule, pages
from layerscope.show.report.samples import sample_blocks, stack_blocks
from layerscope.show.report.spans import SpanBlocks, span_blocks
from layerscope.show.report.tables import ReportTable, report_tables
from layerscope.show.report.tracks import track_block
from layerscope.show.terminal import problem_sentence

FORMAT = 1
# Before the names of the blocks of the recording that came before (web/src/data/recording.ts).
_OTHER = "other "
# How the names of blocks begin that are made of all spans.
_LARGE = ("table ", "about ", "page ", "flame ", _OTHER)


class ReportContents:
    """The report of a recording. Times count from the start of the run.

    `part`: what the page has of the spans and samples, where that is not all. `other`: the earlier
    recording that it is compared with. `is_live`: what takes long and may not be looked at is only
    named in `head`. `has_many_spans`: more than a page holds, so that it asks about them.
    """

    def __init__(
        self,
        reader: Reader,
        part: PartReader | None = None,
        other: Reader | None = None,
        is_live: bool = False,
        has_many_spans: bool = False,
    ) -> None:
        self._reader = reader
        self._is_live = is_live
        # Of these the server answers questions; a page could not hold them.
        self._has_many_spans = has_many_spans
        self._part = part or reader
        self._other = other
        self._pages = pages(is_compared=other is not None)
        self.notes = [*_of_thinned_run(reader), *([part.note] if part else [])]
        self._origin_ns = reader.run.info.start_ns
        self._spans: SpanBlocks | None = None
        self._tables = report_tables(reader)
        if not is_live:
            self._tables = [one for one in self._tables if one.by is None or one.has_rows]
        self._groups: dict[str, BlockGroup] = {}
        for group in self._all_groups():
            for name in group.names:
                self._groups[name] = group

    @property
    def names(self) -> list[str]:
        """The names of all blocks."""
        return list(self._groups)

    @property
    def spans(self) -> int:
        """How many spans are in the report."""
        return len(self._span_blocks().keys)

    def head(self) -> dict[str, Any]:
        """What the page knows from the start."""
        return {
            "format": FORMAT,
            "run": _about_run(self._reader),
            "pages": [{"name": name, "title": page.TITLE} for name, page in self._pages.items()],
            "tables": [self._about_table(table) for table in self._tables],
            "notes": self.notes,
            "has_many_spans": self._has_many_spans,
        }

    def blocks(self) -> Iterator[Block]:
        """All blocks."""
        for name, group in self._groups.items():
            if name == group.names[0]:
                yield from group.make()

    def made_with(self, name: str) -> list[Block]:
        """The block of this name, with those that are made with it."""
        return list(self._groups[name].make())

    def _all_groups(self) -> Iterator[BlockGroup]:
        reader, part, origin_ns = self._reader, self._part, self._origin_ns
        for name, page in self._pages.items():
            yield BlockGroup(
                (f"page {name}",), partial(_page_block, reader, self._other, name, page)
            )
            if hasattr(page, "groups"):
                yield from page.groups(reader, part, self._keys, self._other)
        for table in self._tables:
            if self._is_later(table):
                names = (table.block_name, table.about_name)
                yield BlockGroup(names, partial(_table_blocks, table))
            else:
                yield BlockGroup((table.block_name,), partial(_table_block, table))
        yield BlockGroup(("tracks",), lambda: [track_block(reader, origin_ns)])
        if not self._has_many_spans:
            yield from self._groups_of_spans()
        yield BlockGroup(("counter_names", "counters"), lambda: counter_blocks(reader, origin_ns))
        yield BlockGroup(("marks",), lambda: [mark_block(reader, origin_ns)])
        yield BlockGroup(("args",), lambda: [argument_block(reader)])
        yield BlockGroup(("sample_names", "samples"), lambda: sample_blocks(part, origin_ns))
        yield BlockGroup(("stacks", "frames"), lambda: stack_blocks(reader))
        if self._other is not None:
            has_spans = not (self._is_live and is_large(self._other))
            yield from _groups_of_other(self._other, has_spans)

    def is_small(self, name: str) -> bool:
        """Whether little has to be read for a block, however many spans there are."""
        if name == "page findings" and findings.are_found(self._reader):
            return True  # the overview has looked for them
        if name == "page overview":
            return True
        return not name.startswith(_LARGE)

    def _groups_of_spans(self) -> Iterator[BlockGroup]:
        yield BlockGroup(
            ("span_classes", "spans", "span_details"), lambda: self._span_blocks().blocks
        )
        yield BlockGroup(
            ("link_kinds", "links"), lambda: link_blocks(self._part, self._span_blocks().keys)
        )

    def _is_later(self, table: ReportTable) -> bool:
        return self._is_live and (table.by is not None or self._has_many_spans)

    def _about_table(self, table: ReportTable) -> dict[str, Any]:
        if self._is_later(table):
            return table.in_short()
        return table.about()

    @property
    def _keys(self) -> Callable[[], np.ndarray] | None:
        """What gives the span of each row in the page; None: it has no spans."""
        return None if self._has_many_spans else lambda: self._span_blocks().keys

    def _span_blocks(self) -> SpanBlocks:
        if self._spans is None:
            self._spans = span_blocks(self._part, self._origin_ns)
        return self._spans


def _of_thinned_run(reader: Reader) -> list[str]:
    """What is to be said of a run of which some spans were kept while it was recorded."""
    kept = what_was_kept(reader)
    if kept is None:
        return []
    steps = f" of {kept.kept_steps:,} of {kept.steps:,} steps" if kept.steps else ""
    return [
        f"The run was long: {kept.kept_spans:,} of its {kept.spans:,} spans{steps} were kept, each "
        "with its weight: for how many it stands."
    ]


def _page_block(
    reader: Reader,
    other: Reader | None,
    name: str,
    page: PageModule,
) -> list[Block]:
    if other is not None and hasattr(page, "compared"):
        data = page.compared(reader, other)
    else:
        data = page.data(reader)
    return [json_block(f"page {name}", data)]


def _groups_of_other(other: Reader, has_spans: bool) -> Iterator[BlockGroup]:
    """What the page has of the recording that came before, under names of its own."""
    origin_ns = other.run.info.start_ns
    yield BlockGroup((f"{_OTHER}tracks",), lambda: _of_other([track_block(other, origin_ns)]))
    if not has_spans:
        return
    names = ("span_classes", "spans", "span_details")
    of_other = [_OTHER + name for name in names]
    yield BlockGroup(
        tuple(of_other),
        lambda: _of_other(span_blocks(other, origin_ns).blocks),
    )


def _of_other(blocks: list[Block]) -> list[Block]:
    found = []
    for block in blocks:
        name = f"{_OTHER}{block.name}"
        found.append(replace(block, name=name))
    return found


def _table_block(table: ReportTable) -> list[Block]:
    """All that the page has of a table."""
    return [table.block()]


def _table_blocks(table: ReportTable) -> list[Block]:
    return [table.block(), json_block(table.about_name, table.about())]


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
