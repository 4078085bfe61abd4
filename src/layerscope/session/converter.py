"""The process beside the program that turns raw files into tables: its start and its end (it is
`_convert.py`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from layerscope.capture.link import open_log, own_command
from layerscope.capture.recorder import Recorder
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.recording.run import Run

NOT_CONVERTED = "not_converted"
# What it reads when the session has come to its end; where nothing comes, the session was killed.
THE_END = b"end\n"
_LATER = "the raw files are kept: any `layerscope table` converts them again"


def start_converter(recording: Run, session: Recorder) -> subprocess.Popen[bytes] | None:
    """Start the process that turns raw files into tables beside the program. None: the system has
    no more.
    """
    command = own_command(
        "layerscope", "_convert", str(recording.raw), str(recording.path), recording.info.run_id
    )
    log = open_log(recording.raw, "converter")
    try:
        converter = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, process_group=0
        )
        # It waits for this to close where the session is killed, and the drainer goes on.
        session.link.kept_open = converter.stdin.fileno() if converter.stdin else None
        return converter
    except OSError as error:
        session.problems.append(_problem(f"the converter could not be started ({error.strerror})"))
        return None
    finally:
        if not isinstance(log, int):
            log.close()


def converted(converter: subprocess.Popen[bytes] | None, session: Recorder) -> dict[str, Any]:
    """Let the converter finish; what it says of its tables."""
    numbers = ("cpu_ns", "records", "backward", "dropped", "agent_cpu_ns", "thinned")
    sampled = {"lost": 0, "handler_ns": 0}
    nothing = {"rows": {}, "tables": "", "sampled": sampled, **dict.fromkeys(numbers, 0)}
    if converter is None:
        return nothing
    out, _ = converter.communicate(THE_END)
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        status = converter.returncode
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        session.problems.append(_problem(f"the converter {ended}"))
        return nothing
    return answer


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


def _problem(what: str) -> Problem:
    return Problem(OPERATORS, NOT_CONVERTED, what, _LATER, "")
