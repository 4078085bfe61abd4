"""Draw a flame graph of functions, modules, operators, primitives, native code and memory.

RUN is a recording made by `layerscope run`; left out, it is the newest one here. Without -o a tree
of the heaviest branches is printed; the extension of FILE chooses another format.

--kind chooses the metric: cpu (samples of CPU time), offcpu (waits), wall (both), pagefaults, or
the measured durations of operators, of primitives, or (gpu) of what GPUs executed, below the
operators that asked for it. The width of a frame is its share of the total; the frames in it are
what it called. Waits of idle pool threads are hidden unless --idle is given. Of a recording with
memory (run --layers=+memory) alloc has the bytes of all blocks, live those that were there at the
highest moment (--step and --time: within these), and leak those that outlived their step.

    layerscope flame                                  the newest recording, in the terminal
    layerscope flame train -o train.svg               a picture for the browser
    layerscope flame train --kind offcpu --thread python -o waits.html
    layerscope flame train --kind live                why the peak of memory is what it is
    layerscope flame after --diff before -o diff.svg  what grew and what shrank
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from layerscope.cli._place import check_place
from layerscope.model.errors import UsageError, did_you_mean
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.analyse.result import Result
    from layerscope.analyse.stacks.graphs import Graph, Look
    from layerscope.analyse.stacks.sample_reader import Choice
    from layerscope.recording.reader import Reader
    from layerscope.show.flame import Picture

_KINDS = (
    *("cpu", "offcpu", "wall", "operators", "primitives", "gpu", "pagefaults"),
    *("alloc", "live", "leak"),
)
_LINE, _NOTHING = "line", "none"
_LAYERS = "python, modules, operators, ranges, primitives, native, kernel, waits or all"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `flame`."""
    parser.usage = f"{parser.prog} [RUN] [-o FILE] [options]"
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="a recording")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write FILE: .svg, .html, .folded or .speedscope.json",
    )
    parser.add_argument(
        "--kind", metavar="KIND", default="cpu", help=f"{', '.join(_KINDS)} (%(default)s)"
    )
    parser.add_argument(
        "--layers",
        metavar="LIST",
        help=f"show only frames of {_LAYERS} (all, but native code only inside of the innermost "
        "other frame)",
    )
    parser.add_argument(
        "--thread", metavar="NAME|TID", help="only this thread, or all threads of this name"
    )
    parser.add_argument(
        "--step", metavar="A[:B]", help="only step A, or the steps from A up to, not including, B"
    )
    parser.add_argument(
        "--module", metavar="PATH", help="only what ran in this module, or in those that it holds"
    )
    parser.add_argument(
        "--phase", metavar="NAME", help="only loading, forward, backward, optimizer or other"
    )
    parser.add_argument(
        "--time",
        metavar="A:B",
        help="only from A to B, in seconds since the start of the run; a wait counts with the part "
        "of it that lies there",
    )
    parser.add_argument(
        "--idle", action="store_true", help="with the waits of threads of pools that have no work"
    )
    parser.add_argument(
        "--imports",
        action="store_true",
        help="with what imports of libraries ran; else each is one frame",
    )
    parser.add_argument(
        "--invert",
        action="store_true",
        help="the innermost frames first, and in them what called them",
    )
    parser.add_argument(
        "--flip",
        action="store_true",
        help="the outermost frames at the bottom of the picture, not at its top",
    )
    parser.add_argument(
        "--diff", metavar="OTHER", help="compare with an earlier recording: red grew, blue shrank"
    )
    parser.add_argument(
        "--per",
        metavar="WHAT",
        help="with --diff: compare a run, a second or a step of each (a step where both have "
        "steps, else the run)",
    )
    parser.add_argument(
        "--by",
        metavar="WHAT",
        help="a frame around all for each thread, process, rank, step, state (running, spinning, "
        "waiting) or category (of memory); line: frames are lines of Python; none (thread where "
        "several threads had 10 %% of the CPU time or more each, else none)",
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the picture")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object: the tree, or what was written to FILE",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing beside the tree")


def run(arguments: argparse.Namespace) -> int:
    """Draw the flame graph that `arguments` ask for."""
    from layerscope.ingest.heap import let_arrow_give_back

    let_arrow_give_back()
    from layerscope.analyse.losses import problems
    from layerscope.cli import _output
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run
    from layerscope.show.flame import Picture, format_of

    look = _look(arguments)
    format_ = format_of(arguments.output) if arguments.output else None
    if arguments.output:
        check_place(arguments.output, arguments.force)
    if arguments.flip and not (format_ and format_.IS_CUT):
        raise UsageError("--flip turns a picture over. Add -o FILE.svg or -o FILE.html")
    path = find_run(arguments.run_name)
    if not (arguments.json if format_ is None else not format_.IS_CUT):
        from layerscope.analyse.stacks.flame_layout import THINNEST

        look = replace(look, least=THINNEST)
    with Reader(open_run(path)) as reader:
        graph = _graph(reader, look, arguments.diff)
        picture = Picture(
            graph,
            _title(reader, look, arguments),
            shlex.join(reader.run.info.command),
            _chosen(arguments),
            graph.notes,
            arguments.flip,
        )
        if arguments.output:
            _write_file(reader, picture, path, arguments)
        elif arguments.json:
            _print_json(_rows(graph), reader, path)
        else:
            _output.say_problems(problems(reader), arguments)
            _print_tree(picture)
        if not (arguments.quiet or arguments.json):
            screen.tell(f"Next: {_next_command(arguments, look)}")
    return 0


def _look(arguments: argparse.Namespace) -> Look:
    """What the options ask for; UsageError for what there is not."""
    from layerscope.analyse.stacks.frame_filter import layers_called
    from layerscope.analyse.stacks.graphs import Look
    from layerscope.analyse.stacks.groups import AUTO, BY

    if arguments.kind not in _KINDS:
        meant = did_you_mean(arguments.kind, _KINDS)
        raise UsageError(
            f"there is no kind {arguments.kind!r}.{meant} The kinds are {', '.join(_KINDS)}"
        )
    possible_by = (*BY, _LINE, _NOTHING)
    if arguments.by not in (None, *possible_by):
        possible = ", ".join(possible_by)
        raise UsageError(
            f"a flame graph cannot be shown by {arguments.by!r}. Possible here: {possible}"
        )
    _check_per(arguments)
    return Look(
        arguments.kind,
        _choice(arguments),
        layers_called(arguments.layers),
        arguments.by == _LINE,
        arguments.invert,
        by=AUTO if arguments.by is None else arguments.by if arguments.by in BY else None,
        per=arguments.per,
        has_imports=arguments.imports,
    )


def _check_per(arguments: argparse.Namespace) -> None:
    from layerscope.analyse.stacks.compared import PER

    if arguments.per is None:
        return
    if arguments.diff is None:
        raise UsageError("--per says how two recordings are compared. Add --diff OTHER")
    if arguments.per not in PER:
        raise UsageError(f"nothing is compared per {arguments.per!r}. Possible: {', '.join(PER)}")


def _choice(arguments: argparse.Namespace) -> Choice:
    from layerscope.analyse.stacks.sample_reader import Choice

    steps = seconds = None
    if arguments.step is not None:
        steps = _steps(arguments.step)
    if arguments.time is not None:
        number = r"\d+(?:\.\d*)?|\.\d+"
        found = re.fullmatch(f"({number})?:({number})?", arguments.time)
        seconds = (float(found[1] or 0), float(found[2] or "inf")) if found else (1.0, 0.0)
        if seconds[0] >= seconds[1]:
            raise UsageError(
                f"--time {arguments.time} is no stretch of time: 1.5:4 are the seconds from 1.5 to "
                "4"
            )
    return Choice(
        arguments.thread, steps, arguments.module, arguments.phase, seconds, arguments.idle
    )


def _graph(reader: Reader, look: Look, other: str | None) -> Graph:
    from layerscope.analyse.stacks import graphs
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run

    if other is None:
        return graphs.build(reader, look)
    with Reader(open_run(find_run(other))) as before:
        return graphs.compare(reader, before, look)


def _title(reader: Reader, look: Look, arguments: argparse.Namespace) -> str:
    from layerscope.analyse.stacks.graphs import KINDS

    if arguments.title is not None:
        return str(arguments.title)
    against = f" against {arguments.diff}" if arguments.diff else ""
    inverted = ", innermost first" if look.is_inverted else ""
    return f"{KINDS[look.kind]}: {reader.run.name}{against}{inverted}"


def _steps(words: str) -> range:
    """The steps that `10` or `10:20` names."""
    found = re.fullmatch(r"(\d+)(?::(\d+))?", words)
    steps = range(0)
    if found:
        first = int(found[1])
        steps = range(first, int(found[2]) if found[2] else first + 1)
    if not steps:
        raise UsageError(f"--step {words} is no step: 10 is one, 10:20 are the steps 10 to 19")
    return steps


def _chosen(arguments: argparse.Namespace) -> str:
    """What was chosen, as the user wrote it."""
    names = ("thread", "step", "module", "phase", "time", "layers")
    values = {name: getattr(arguments, name) for name in names}
    chosen = [f"{name} {value}" for name, value in values.items() if value is not None]
    return ", ".join(chosen)


def _write_file(
    reader: Reader, picture: Picture, path: Path, arguments: argparse.Namespace
) -> None:
    from layerscope.analyse.losses import problems
    from layerscope.analyse.result import BYTES, COUNT, ResultColumn, of_rows
    from layerscope.cli import _output
    from layerscope.model.units import size
    from layerscope.show.exports import whole_or_nothing
    from layerscope.show.flame import format_of

    with whole_or_nothing(arguments.output) as stream:
        written = format_of(arguments.output).write(picture, stream)
    taken = arguments.output.stat().st_size
    if arguments.json:
        columns = (
            ResultColumn("file", "string", "", "the file"),
            ResultColumn("frames", "int64", COUNT, "frames in it"),
            ResultColumn("left_out", "int64", COUNT, "frames that were too thin for it"),
            ResultColumn("whole", "int64", picture.graph.unit, "the weight of everything"),
            ResultColumn("bytes", "int64", BYTES, "size of the file"),
        )
        row = (str(arguments.output), written.frames, written.left_out, picture.graph.whole, taken)
        _print_json(of_rows("files", columns, [row], notes=picture.notes), reader, path)
        return
    _output.say_problems(problems(reader), arguments, picture.notes)
    if not arguments.quiet:
        screen.tell(f"{arguments.output}: {written.frames:,} frames, {size(taken)}")


def _rows(graph: Graph) -> Result:
    """Every node of the tree as a row."""
    from layerscope.analyse.stacks.flame_layout import table

    return table(graph)


def _print_json(result: Result, reader: Reader, path: Path) -> None:
    from layerscope.analyse.losses import problems
    from layerscope.show import json_output

    sys.stdout.flush()
    json_output.write(
        replace(result, problems=problems(reader)), sys.stdout.buffer, "flame", str(path)
    )


def _print_tree(picture: Picture) -> None:
    from layerscope.analyse.stacks.flame_layout import draw
    from layerscope.show.flame import terminal_tree

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(terminal_tree.text(picture, draw(picture.graph), width))


def _next_command(arguments: argparse.Namespace, look: Look) -> str:
    """What to do with the file, or the next command about the same recording."""
    from layerscope.show.flame import format_of

    if arguments.output:
        return format_of(arguments.output).OPEN
    words = [shlex.quote(arguments.run_name)] if arguments.run_name else []
    words += ["--kind", look.kind] if look.kind != "cpu" else []
    words += ["--diff", shlex.quote(arguments.diff)] if arguments.diff else []
    words += ["--per", arguments.per] if arguments.per else []
    return " ".join(["layerscope flame", *words, "-o flame.svg"])
