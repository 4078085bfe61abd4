"""The command line: one file per verb, found by this folder; failures become one sentence here.

A verb is a module with a docstring (its first line is the help), `configure(parser)` and
`run(arguments) -> int`; `explain(parser)`, if it has one, adds what only its help needs.
`layerscope VERB` imports that module and no other verb, so that `run` starts fast. A verb whose
name starts with `_` works but is not listed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn, Protocol, cast

from layerscope import __version__
from layerscope.model.errors import LayerscopeError, UsageError, did_you_mean
from layerscope.show import screen
from layerscope.show.progress import on_terminal

INTERRUPTED = 130
# What a shell reports for a program that SIGPIPE ended, as it does for `cat big | head`.
BROKEN_PIPE = 141
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_HELP = {"-h", "--help"}


class Verb(Protocol):
    """What a file of this folder provides."""

    __doc__: str | None

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's arguments to `parser`."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; the exit status."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors and whose options cannot be abbreviated."""

    def __init__(self, *args: object, **more: object) -> None:
        defaults = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(*args, **{**defaults, **more})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    _never_fail_to_print()
    if argv is None:
        _leave_the_programs_folders()
    with screen.guarded(), on_terminal():
        return _status(argv)


def _status(argv: Sequence[str] | None) -> int:
    """Run one command; its exit status, and one sentence where it fails."""
    try:
        status = _dispatch(sys.argv[1:] if argv is None else [*argv])
        sys.stdout.flush()
    except LayerscopeError as error:
        screen.tell(f"layerscope: {error}")
        return error.status
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:
        _discard_output()
        about = f"{error.filename}: " if error.filename else "cannot write the output: "
        screen.tell(f"layerscope: {about}{error.strerror}")
        return LayerscopeError.status
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def parser() -> argparse.ArgumentParser:
    """The whole command line with every verb; made for the documentation."""
    whole = _top()
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for name in verbs():
        verb = _load(name)
        summary, description = _described(verb)
        command = commands.add_parser(name, help=summary, description=description)
        verb.configure(command)
        _explain(verb, command)
        command.set_defaults(run=verb.run)
    return whole


def _listing() -> _Parser:
    """The commands and what each is for, without their options: no command is imported."""
    whole = _top()
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for name in verbs():
        commands.add_parser(name, help=_summary(name))
    return whole


def _summary(name: str) -> str:
    """The first line of the docstring of the file that is the command."""
    spec = importlib.util.find_spec(f"{__name__}.{name}")
    first = ""
    if spec is not None and spec.origin is not None:
        with open(spec.origin, encoding="utf-8") as file:
            first = file.readline()
    return first.strip().strip('"').rstrip(".")


def verbs() -> list[str]:
    """The names of the commands that are listed."""
    return sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )


def _dispatch(argv: list[str]) -> int:
    if not argv:
        _listing().print_help()
        return 0
    if argv[0].startswith("-"):
        _listing().parse_args(argv)
        raise UsageError(f"the command comes first. The commands are {', '.join(verbs())}")
    verb = _load(argv[0])
    one = _Parser(prog=f"layerscope {argv[0]}", description=_described(verb)[1])
    verb.configure(one)
    if not _HELP.isdisjoint(argv):
        _explain(verb, one)
    # Not before the folders of the program are left: what it imports may be there too.
    from layerscope.model.cache import settle_temporary

    settle_temporary()
    # Words before and behind an option belong together, but for what is the program's own.
    takes_all = any(action.nargs == argparse.REMAINDER for action in one._actions)
    words = verb.prepared(argv[1:]) if hasattr(verb, "prepared") else argv[1:]
    return verb.run((one.parse_args if takes_all else one.parse_intermixed_args)(words))


def _explain(verb: Verb, parser: argparse.ArgumentParser) -> None:
    explain = getattr(verb, "explain", None)
    if explain is not None:
        explain(parser)


def _load(name: str) -> Verb:
    # Asking the folder first keeps `layerscope os` from importing anything that is not a verb.
    names = {module.name for module in pkgutil.iter_modules(__path__)}
    if name in names:
        with _numpy_without_threads():
            module = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "configure") and hasattr(module, "run"):
            return cast(Verb, module)
    raise UsageError(
        f"there is no command {name!r}.{did_you_mean(name, verbs())} The commands are "
        f"{', '.join(verbs())}"
    )


@contextlib.contextmanager
def _numpy_without_threads() -> Iterator[None]:
    """The BLAS that comes with NumPy starts a thread for every CPU, and where it may not it ends us
    by SIGINT. We need none of them; what the program is told by the same variable stays as it was.
    """
    before = os.environ.get(BLAS_THREADS)
    os.environ[BLAS_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[BLAS_THREADS]
        if before is not None:
            os.environ[BLAS_THREADS] = before


def _described(verb: Verb) -> tuple[str, str]:
    """The first line of what a command says of itself, and all of it."""
    description = (verb.__doc__ or "").strip()
    first_line = description.partition("\n")[0]
    return first_line.rstrip("."), description


def _top() -> _Parser:
    top = _Parser(
        prog="layerscope",
        description="Shows where a deep-learning program spends its time and memory.",
        epilog="Start here: layerscope run train.py",
    )
    top.add_argument("--version", action="version", version=f"layerscope {__version__}")
    return top


def _never_fail_to_print() -> None:
    """A name may hold characters that the terminal's encoding lacks: print a substitute, do not
    fail.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False))
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _leave_the_programs_folders() -> None:
    """PYTHONPATH and the working directory are the program's: an old NumPy there, or a file of the
    user's called queue.py, must not become ours.
    """
    own = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    try:
        theirs = {
            os.path.realpath(entry)
            for entry in ("", *os.environ.get("PYTHONPATH", "").split(os.pathsep))
        }
        theirs.discard(os.path.realpath(own))
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in theirs]
    except OSError:  # the working directory was removed: nothing is found there either
        pass


def _discard_output() -> None:
    """The interpreter flushes stdout once more at exit; that must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
