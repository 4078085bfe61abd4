"""Show where the time went in a browser, from a server on this machine.

RUN is a recording made by `layerscope run`, or a file that another program wrote; left out, it is
the newest one here. The page is the one of `layerscope report`, whose data come when a page needs
them: for recordings that are too large for one file. Only this machine reaches the server, and only
with the address that is printed; Ctrl-C ends it.

    layerscope view                         the newest recording
    layerscope view train --port 8000       another one, at a port of your choice
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import sys
import webbrowser
from typing import TYPE_CHECKING

from layerscope.model.errors import UsageError
from layerscope.show import screen

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader
    from layerscope.show.report.live_contents import LiveContents
    from layerscope.show.report.server import Server

_HIGHEST_PORT = 65535
_SSH_PORT = "22"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `view`."""
    parser.usage = f"{parser.prog} [RUN] [options]"
    parser.add_argument("run_name", nargs="?", metavar="RUN", help="a recording")
    parser.add_argument(
        "--compare", metavar="OTHER", help="with a page that compares it with an earlier recording"
    )
    parser.add_argument("--port", metavar="N", type=int, default=0, help="(a free one)")
    parser.add_argument("--no-open", action="store_true", help="open no browser")
    parser.add_argument("-q", "--quiet", action="store_true", help="print the address only")


def run(arguments: argparse.Namespace) -> int:
    """Serve the recording that `arguments` ask for until Ctrl-C."""
    from layerscope.ingest.open import open_run
    from layerscope.recording.reader import Reader
    from layerscope.recording.run import find_run
    from layerscope.show.report.live_contents import LiveContents

    if not 0 <= arguments.port <= _HIGHEST_PORT:
        raise UsageError(f"--port {arguments.port} is no port: they go up to {_HIGHEST_PORT}")
    recording = find_run(arguments.run_name)
    reader = Reader(open_run(recording))
    other = None
    if arguments.compare is not None:
        other = Reader(open_run(find_run(arguments.compare)))
    with contextlib.closing(LiveContents(reader, other)) as contents:
        _serve(reader, contents, arguments)
    return 0


def _serve(reader: Reader, contents: LiveContents, arguments: argparse.Namespace) -> None:
    from layerscope.show.report.server import Server

    with (
        Server(contents, arguments.port) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        if not arguments.quiet:
            _tell(reader, server)
        if not arguments.no_open:
            _open(server)
        server.serve_forever()


def _tell(reader: Reader, server: Server) -> None:
    from layerscope.analyse.losses import problems
    from layerscope.show import terminal

    if "SSH_CONNECTION" in os.environ:
        screen.tell("From your own machine, before you open the address there:")
        screen.tell(f"    {_ssh_line(server.server_port)}")
    for sentence in terminal.problem_lines(problems(reader)):
        screen.tell(f"layerscope: {sentence}")
    screen.tell("Ctrl-C ends it. On the page ? lists the keys")


def _ssh_line(port: int) -> str:
    """The command that makes the server reachable from where the user sits."""
    told = os.environ["SSH_CONNECTION"].split()
    host, ssh_port = "HOST", _SSH_PORT
    if len(told) == 4:
        _, _, host, ssh_port = told
    at_port = "" if ssh_port == _SSH_PORT else f"-p {ssh_port} "
    return f"ssh {at_port}-L {port}:127.0.0.1:{port} {_user()}{host}"


def _user() -> str:
    """The user with an @; nothing where nobody knows the name, as in some containers."""
    try:
        return f"{getpass.getuser()}@"
    except (KeyError, OSError):
        return ""


def _open(server: Server) -> None:
    """Open the page where there is a screen: a browser in this terminal would take it over."""
    if "SSH_CONNECTION" in os.environ or not _has_screen():
        return
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(server.address_for_once())


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
