"""The process that turns raw files into tables, as the session sees it: `layerscope _convert`
(`convert.py`).

It is not started for a program that ends at once: then it comes at the end. It also prepares the
summary, so that the session needs none of the libraries that read tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from layerscope.capture.link import open_log, own_command
from layerscope.capture.recorder import Recorder
from layerscope.ingest.limits import CONVERTER_VARIABLES
from layerscope.model.errors import RunError
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.recording.run import Run
from layerscope.session.conversion_requests import FINISH, SUMMARISE

NOT_CONVERTED = "not_converted"
# Once the program has run so long, the converter is started beside it. Of shorter ones it makes all
# tables at the end, on a core of its own.
START_AFTER_S = 1.9
_LATER = "the raw files are kept: any `layerscope table` converts them again"
_NOTHING = {
    "rows": {},
    "tables": "",
    "sampled": {"lost": 0, "handler_ns": 0},
    "cpu_ns": 0,
    "records": 0,
    "backward": 0,
    "dropped": 0,
    "agent_cpu_ns": 0,
    "thinned": 0,
    "used": {},
}


class Converter:
    """Starts the converter of `recording` and asks it. What goes wrong is a problem of
    `recorder`.
    """

    def __init__(self, recording: Run, recorder: Recorder) -> None:
        self._recording = recording
        self._recorder = recorder
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_s = time.monotonic()
        try:
            # The drainer holds the writing end open too: where the session is killed, the pipe
            # closes when the drainer has ended.
            self._requests, recorder.link.kept_open = os.pipe()
        except OSError as error:
            raise RunError(f"no pipe could be made ({error.strerror}); raise ulimit -n") from error

    @property
    def pid(self) -> int:
        """Of the process, 0 where there is none yet."""
        return self._process.pid if self._process is not None else 0

    def watch(self) -> None:
        """Call it now and then while the program runs: starts the converter when it is time. Where
        the system has no room for it now, it may have later.
        """
        if self._process is None and time.monotonic() - self._begun_s >= START_AFTER_S:
            with contextlib.suppress(OSError):
                self._start()

    def finish(self) -> dict[str, Any]:
        """Let it convert what is left; what it says of its tables."""
        process = self._process
        if process is None:
            try:
                process = self._start()
            except OSError as error:
                self._say(f"the converter could not be started ({error.strerror})")
                return _NOTHING
        answer = self._ask({"request": FINISH})
        if answer is None:
            status = process.wait()
            ended = (
                f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            )
            self._say(f"the converter {ended}")
        return answer or _NOTHING

    def summary(self) -> dict[str, Any] | None:
        """The `text` of the summary, with the CPU time (`cpu_ns`) of the converter up to there.
        None: it cannot answer.
        """
        if self._process is None:
            return None
        info = msgspec.to_builtins(self._recording.info)
        tables = str(self._recording.tables_path)
        return self._ask({"request": SUMMARISE, "tables": tables, "info": info})

    def close(self) -> None:
        """Let it end."""
        if self._requests >= 0:
            os.close(self._requests)
        if self._recorder.link.kept_open is not None:
            os.close(self._recorder.link.kept_open)
        self._requests, self._recorder.link.kept_open = -1, None
        if self._process is not None:
            self._process.communicate()

    def kill(self) -> None:
        """End it at once: there is nothing to convert."""
        if self._process is not None:
            self._process.kill()
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start it. OSError where the system has no room for it."""
        recording = self._recording
        command = own_command(
            "layerscope",
            "_convert",
            str(recording.raw),
            str(recording.path),
            recording.info.run_id,
        )
        log = open_log(recording.raw, "converter")
        try:
            process = subprocess.Popen(
                command,
                stdin=self._requests,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
                env=os.environ | CONVERTER_VARIABLES,
            )
        finally:
            if not isinstance(log, int):
                log.close()
        os.close(self._requests)
        self._requests = -1
        self._process = process
        return process

    def _ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Its answer to `request`; None where it has ended without one."""
        writing = self._recorder.link.kept_open
        if self._process is None or self._process.stdout is None or writing is None:
            return None
        try:
            _write_all(writing, json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            return None
        return answer

    def _say(self, what: str) -> None:
        self._recorder.problems.append(Problem(OPERATORS, NOT_CONVERTED, what, _LATER, ""))


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to a pipe that takes as much as it has room for."""
    while data:
        data = data[os.write(descriptor, data) :]


def why_not_converted(problems: Sequence[Problem]) -> str:
    """Why there are no tables that anything could be read from, then all else there is to say;
    empty when there are.
    """
    from layerscope.show.terminal import problem_sentence

    why = [
        f"{problem.what}; {problem.remedy}."
        for problem in problems
        if problem.code == NOT_CONVERTED
    ]
    others = [problem_sentence(problem) for problem in problems if problem.code != NOT_CONVERTED]
    return "\n".join([*why, *others]) if why else ""
