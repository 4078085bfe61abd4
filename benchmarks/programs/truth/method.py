"""A key function that `sorted` calls, a closure below a method."""

# also: kernel

from __future__ import annotations

import planted


class Source:
    """Has a method."""

    def read(self) -> None:
        """Work through a closure."""

        def key(_: int) -> int:
            planted.work()  # line: work
            return 1

        sorted(range(planted.BATCH), key=key)  # line: turn


def after() -> None:
    """Comes next, and may not be given what was before."""
    for _ in range(planted.BATCH // 2):
        planted.compute()


def main() -> None:
    """All of it in turns."""
    while planted.going():
        with planted.Cpu(line="work", line_total="turn", function_total="Source.read"):
            Source().read()
        with planted.Cpu(function="after"):
            after()
    planted.finish()


main()
