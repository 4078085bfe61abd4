"""Random threads for the laws of the store and the converter: spans that nest, end out of order, or
get lost.
"""

from __future__ import annotations

from hypothesis import strategies as st


class Span:
    def __init__(self, start: int, depth: int, parent: Span | None) -> None:
        self.start, self.depth, self.parent = start, depth, parent
        self.end = 0
        self.elsewhere = self.lost = False
        self.key = self.told = self.self_ns = -1
        self.children: list[Span] = []

    def __repr__(self) -> str:
        marks = "elsewhere " * self.elsewhere + "lost " * self.lost
        return f"<{self.depth}: {self.start}..{self.end} {marks}in {self.parent.start if self.parent else None}>"


class Thread:
    """A thread as the agent sees it: open spans have places; one that is over keeps its place while
    another lies above it, or, ended by another thread, until the next span begins.
    """

    def __init__(self) -> None:
        self.now = 0
        self.spans: list[Span] = []
        self.places: list[Span] = []

    def begin(self) -> None:
        self._pop()
        self.now += 1
        above = self.places[-1] if self.places else None
        span = Span(self.now, len(self.places), above)
        if above:
            above.children.append(span)
        self.places.append(span)
        self.spans.append(span)

    def end(self, back: int, elsewhere: bool) -> None:
        """End the span that is `back` from the innermost open one."""
        still = [span for span in self.places if not span.end]
        if not still:
            return
        self.now += 1
        span = still[-1 - back % len(still)]
        span.end, span.elsewhere = self.now, elsewhere
        if not elsewhere and span is self.places[-1]:
            self._pop()

    def _pop(self) -> None:
        while self.places and self.places[-1].end:
            self.places.pop()

    def wait(self, ns: int) -> None:
        self.now += ns

    def finish(self) -> None:
        while any(not span.end for span in self.places):
            self.end(0, False)


def nested(rows: list[tuple[int, int, int]]) -> list[Span]:
    """The spans of a thread that nest, from (depth, start, end) in the order of their starts."""
    spans: list[Span] = []
    around: list[Span] = []
    for depth, start, end in rows:
        around = around[:depth]
        span = Span(start, depth, around[-1] if around else None)
        span.end = end
        if around:
            around[-1].children.append(span)
        around.append(span)
        spans.append(span)
    return spans


@st.composite
def threads(
    draw: st.DrawFn, disorder: bool = False, losses: bool = False
) -> tuple[list[Span], list[int]]:
    """The spans of a thread, and the moments at which its batches end."""
    thread = Thread()
    for _ in range(draw(st.integers(1, 60))):
        action = draw(st.integers(0, 9))
        if action < 5:
            thread.begin()
        elif action < 9 or not disorder:
            thread.end(0, False)
        else:
            thread.end(draw(st.integers(0, 3)), draw(st.booleans()))
        if draw(st.booleans()):
            thread.wait(draw(st.integers(1, 20)))
    thread.finish()
    if losses:
        for span in thread.spans:
            span.lost = draw(st.integers(0, 3)) == 0
    borders = draw(st.lists(st.integers(0, thread.now), max_size=8))
    return thread.spans, sorted({*borders, thread.now})
