"""`layerscope view`: what it prints, how it ends, and what it opens."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.cli import view
from layerscope.show.report.server import LOCAL, Server
from tests.recordings import MS, Recording

TIMEOUT_S = 60
# What it says at last, when it is ready.
LAST_LINE = "? lists the keys"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a recording of one span, and no screen."""
    monkeypatch.chdir(tmp_path)
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    recording = Recording()
    recording.add_span("only", 0, MS)
    recording.write(tmp_path / "train.layerscope")
    return tmp_path


def started(*words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "layerscope", "view", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    """What it says on stderr until Ctrl-C."""
    assert process.stderr is not None
    told = ""
    while LAST_LINE not in told and (line := process.stderr.readline()):
        told += line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert "Traceback" not in rest
    return told + rest


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_address_comes_first_and_ctrl_c_ends_it() -> None:
    process = started("train")
    address = address_of(process)
    assert address.startswith(f"http://{LOCAL}:")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor()
    )
    with opener.open(address, timeout=TIMEOUT_S) as page:
        assert page.read().startswith(b"<!DOCTYPE html>")

    told = ended(process)

    assert "Ctrl-C ends it" in told
    assert "ssh" not in told


def test_under_ssh_it_says_how_to_reach_it() -> None:
    process = started(SSH_CONNECTION="192.0.2.1 50000 192.0.2.7 2222", DISPLAY=":0")
    port = address_of(process).rpartition(":")[2].partition("/")[0]

    told = ended(process)

    assert f"    ssh -p 2222 -L {port}:{LOCAL}:{port} " in told
    assert "@192.0.2.7\n" in told


def test_a_user_without_a_name_is_left_out_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number that no file knows."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.7 22")
    assert view._ssh_line(8000) == f"ssh -L 8000:{LOCAL}:8000 192.0.2.7"


def test_quiet_says_the_address_only() -> None:
    process = started("-q", "--no-open")
    assert "token" in address_of(process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT_S) == ("", "")


def opened(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What the command asks a browser to open."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    assert cli.main(["view", *words]) == 0
    return asked


def test_a_browser_opens_only_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opened(monkeypatch) == []
    monkeypatch.setenv("DISPLAY", ":0")
    (address,) = opened(monkeypatch)
    assert address.startswith(f"http://{LOCAL}:")
    # The command line of a browser is read by others: its token works once.
    assert address not in capsys.readouterr().out
    assert opened(monkeypatch, "--no-open") == []
    monkeypatch.setenv("SSH_CONNECTION", "1 2 3 4")
    assert opened(monkeypatch) == []


def test_the_port_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(monkeypatch)
    port = capsys.readouterr().out.rpartition(":")[2].partition("/")[0]
    opened(monkeypatch, "--port", port)
    assert f":{port}/?token=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing"], "there is no recording 'nothing'"),
        (["--port", "70000"], "--port 70000 is no port"),
        (["--port", "-1"], "--port -1 is no port"),
        (["train", "other"], "unrecognized arguments: other"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["view", *words]) == 125

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"layerscope: {sentence}")
    assert printed.err.count("\n") == 1
