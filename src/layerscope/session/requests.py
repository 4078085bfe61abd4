"""What a recorded program asks for through `layerscope.profiler`: statistics, a trace file, that
all is taken. And what somebody asks for from outside (`steering.py`).

Stands in whatever process records, so it only waits and forwards: every answer is made by a process
of its own (the verb `_answer`), so that recording goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from layerscope.capture.recorder import Recorder, Request, surviving
from layerscope.recording.run import Run
from layerscope.session.answering import Answering
from layerscope.session.steering import VERBS, Steering

FLUSH_PATIENCE_S = 5.0
# The last traces are written after the program's end: they must not keep the prompt for ever.
LAST_PATIENCE_S = 600.0
# Whoever asked is told so often that the answer is coming.
STILL_HERE_S = 1.0
# Each new writing of a trace takes longer than the one before: this share of the time goes into it
# at most.
SHARE_OF_TIME = 0.05


class RequestedTrace(Struct):
    """A trace file that the program named: what started in [since_ns, until_ns) belongs to it;
    until None: open.
    """

    since_ns: int
    until_ns: int | None = None
    continuous: bool = False
    period_s: float = 1.0
    due: float = 0.0


class Requests:
    """The requests of one recording: `recorder` hands them on from now on."""

    def __init__(self, recording: Run, recorder: Recorder, of_one: bool = False) -> None:
        """`of_one`: it is of a program that runs already, and not of its children."""
        self._recording = recording
        self._recorder = recorder
        self._traces: dict[str, RequestedTrace] = {}
        self._threads: list[threading.Thread] = []
        self._beginning = threading.Lock()
        self._writing = threading.Lock()
        self._answering = Answering(recording)
        self._steering = Steering(recording, recorder, of_one)
        self._is_ended = False
        recorder.on_request = self.take
        recorder.on_watch.append(self.tick)

    def take(self, connection: socket.socket, request: Request) -> None:
        """Answer `request` on `connection` and close it; returns at once."""
        if request["what"] in VERBS:
            self._begin(self._steer, connection, request)
            return
        if request["what"] in ("where", "trace"):
            if request["what"] == "trace":
                self._name_trace(request)
            self._say(connection, self._where())
            return
        self._begin(self._answer, connection, request)

    def _where(self) -> dict[str, Any]:
        """Which recording this is, and of which program."""
        recording = self._recording
        raw, program = os.path.realpath(recording.raw), self._recorder.pid
        where = {"path": str(recording.path), "raw": raw, "program": program}
        start_ns = self._recorder.start_ns
        return {**where, "window": self._steering.state(), "start_ns": start_ns}

    def _steer(self, connection: socket.socket, request: Request) -> None:
        answer: dict[str, Any] = {"error": "could not do it: its summary says why"}
        with surviving(self._recorder.problems):
            answer = self._steering.answer(request)
        self._say(connection, answer)

    @staticmethod
    def _say(connection: socket.socket, answer: dict[str, Any]) -> None:
        text = json.dumps(answer)
        data = text.encode()
        with connection, contextlib.suppress(OSError):
            connection.send(data)

    def tick(self) -> None:
        """Every second or so: traces that are to be there while the program runs are written
        anew.
        """
        for file, trace in list(self._traces.items()):
            if trace.continuous and trace.until_ns is None and time.monotonic() >= trace.due:
                trace.due = float("inf")
                self._begin(self._rewrite, file, trace)

    def finish(self) -> None:
        """The recording is complete: write every trace that the program named and did not finish
        itself.
        """
        self._is_ended = True
        for thread in self._threads:
            thread.join(LAST_PATIENCE_S)
        for file, trace in self._traces.items():
            if trace.until_ns is None:
                self._work(self._dump_request(file, trace), None)
        with self._writing:
            self._answering.close()

    def _name_trace(self, request: Request) -> None:
        """The program goes on recording into the trace `file`; what it named before is complete."""
        file, now_ns = request["file"], int(request["now_ns"])
        for other, trace in self._traces.items():
            if other != file and trace.until_ns is None:
                trace.until_ns = now_ns
                self._begin(self._answer, None, self._dump_request(other, trace))
        if file:
            trace = self._traces.setdefault(file, RequestedTrace(int(request["since_ns"])))
            trace.until_ns = None
            trace.continuous, trace.period_s = (
                bool(request["continuous"]),
                float(request["period_s"]),
            )
            trace.due = time.monotonic() + trace.period_s

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do `work` in a thread of its own; `finish` waits for it."""
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        with self._beginning:
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def _rewrite(self, file: str, trace: RequestedTrace) -> None:
        request = self._dump_request(file, trace)
        request["again"] = True
        began = time.monotonic()
        self._answer(None, request)
        ended = time.monotonic()
        wait_s = max(trace.period_s, (ended - began) / SHARE_OF_TIME)
        trace.due = ended + wait_s

    def _dump_request(self, file: str, trace: RequestedTrace) -> Request:
        return {
            "what": "dump",
            "file": file,
            "since_ns": trace.since_ns,
            "until_ns": trace.until_ns,
        }

    def _answer(self, connection: socket.socket | None, request: Request) -> None:
        with surviving(self._recorder.problems), connection or contextlib.nullcontext():
            taken = self._recorder.link.flush(FLUSH_PATIENCE_S)
            if request["what"] == "dump" and request.get("finished"):
                # An answer may be long in coming: meanwhile nobody else writes this file.
                trace = self._traces.get(request["file"])
                if trace is not None:
                    trace.until_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            if request["what"] == "flush" and connection is not None:
                with contextlib.suppress(OSError):
                    connection.send(
                        json.dumps({"path": str(self._recording.path), "taken": taken}).encode()
                    )
                return
            self._work(request, connection)

    def _work(self, request: Request, connection: socket.socket | None) -> None:
        """Have a process of its own make the answer."""
        # One at a time: each reads the whole recording.
        while not self._writing.acquire(timeout=STILL_HERE_S):
            with contextlib.suppress(OSError):
                if connection is not None:
                    connection.send(b" ")
        try:
            if request.get("again") and self._traces[request["file"]].until_ns is not None:
                return  # it was completed while this one waited
            with contextlib.suppress(OSError):
                self._answering.answer(request, connection)
                if not self._is_ended:
                    self._answering.prepare()
        finally:
            self._writing.release()
