"""What a recorded program asks the recorder for: it hears that the answer is coming, and gets no
rights of ours.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from layerscope.capture.recorder import Recorder
from layerscope.recording.run import Run
from layerscope.session import requests as requests_module
from layerscope.session.requests import RequestedTrace, Requests
from tests.recordings import run_info

PATIENCE_S = 60


@pytest.fixture
def recorder(tmp_path: Path, native_agent: Path) -> Recorder:
    """A recorder that listens, for the process of the test."""
    recorder = Recorder(tmp_path / "raw")
    recorder.raw.mkdir()
    return recorder


def test_whoever_waits_behind_another_answer_hears_that_it_is_coming(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests_module, "STILL_HERE_S", 0.01)
    run = Run.create(tmp_path / "mine.layerscope", run_info())
    requests = Requests(run, recorder)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE_S)

    with requests._writing:  # a long trace is being written
        requests.take(theirs, {"what": "stats", "since_ns": 0, "until_ns": 1, "pid": os.getpid()})
        assert [ours.recv(100) for _ in range(3)] == [b" "] * 3
    answer = b""
    while packet := ours.recv(65536):
        answer += packet
    ours.close()
    requests.finish()
    assert "nothing is left to read" in json.loads(answer)["error"]


def test_threads_that_are_done_are_not_kept(recorder: Recorder, tmp_path: Path) -> None:
    requests = Requests(Run.create(tmp_path / "mine.layerscope", run_info()), recorder)

    for _ in range(50):
        requests._begin(lambda: None)
        time.sleep(0.001)
    assert len(requests._threads) < 50


@pytest.mark.parametrize("what", ["dump", "trace"])
def test_no_file_is_written_for_another_user(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    asked: list[str] = []

    def take(connection: socket.socket, request: dict[str, object]) -> None:
        asked.append(str(request["what"]))
        connection.close()

    recorder.on_request = take
    settings = recorder.listen()
    assert settings is not None
    assert recorder._listener is not None
    user = os.getuid()
    # To the recorder, the program has become another user since it was started.
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    recorder.pid = os.getpid()
    answers = []
    for request in ({"what": what, "file": str(tmp_path / "file")}, {"what": "where"}):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect("\0" + settings["socket"])
            connection.send(json.dumps(request).encode())
            recorder._accept(recorder._listener)
            answers.append(connection.recv(1000))
    recorder.stop_listening()

    assert json.loads(answers[0]) == {"error": f"the recorder writes no file for user {user}"}
    assert (answers[1], asked) == (b"", ["where"])


def test_a_trace_that_is_complete_is_not_written_again(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewriting waits for another one; the program completes or renames the file meanwhile."""
    requests = Requests(Run.create(tmp_path / "mine.layerscope", run_info()), recorder)
    written: list[str] = []
    answering = requests._answering
    monkeypatch.setattr(answering, "answer", lambda request, _: written.append(request["file"]))
    monkeypatch.setattr(answering, "prepare", lambda: None)
    for name, until_ns in (("complete", 5), ("open", None)):
        trace = requests._traces[name] = RequestedTrace(since_ns=0)
        with requests._writing:
            requests._begin(requests._rewrite, name, trace)
            trace.until_ns = until_ns
        requests._threads[-1].join(PATIENCE_S)

    assert written == ["open"]
