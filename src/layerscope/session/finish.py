"""Completes a recording when the program has ended: the last conversion, the final `run.json`, and
the summary.
"""

from __future__ import annotations

import contextlib
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from layerscope.capture.launchers import Launch
from layerscope.capture.recorder import Recorder
from layerscope.model.errors import LayerscopeError
from layerscope.model.layers import COUNTERS, MEMORY, OPERATORS, STACKS
from layerscope.rawfile.json_files import SESSION
from layerscope.rawfile.log_files import has_windows
from layerscope.rawfile.raw_file import SAMPLER_FILE
from layerscope.recording.run import (
    ExitState,
    LayerState,
    ProgramState,
    RecordingCost,
    Run,
    TableState,
)
from layerscope.session.converter import Converter, why_not_converted
from layerscope.session.create import now
from layerscope.session.session import Ended
from layerscope.session.spooling import bring_home
from layerscope.show.screen import notify

NO_ALLOCATIONS = "no process of the program allocated by its framework, or by NumPy beside it"


def finish(
    recording: Run,
    session: Recorder,
    ended: Ended,
    converter: Converter,
    command: list[str],
) -> dict[str, int]:
    """Complete the recording: the last conversion, and the final `run.json`. What all its threads
    have used together, where the sampler has read that: `cpu_ns`, `faults_minor`, `faults_major`.
    """
    session.explain(command)
    info = recording.info
    if has_windows(recording.raw):
        info.window = ""
    about = {
        "pid": session.pid,
        "end_ns": session.end_ns,
        "exit": ended.code if ended.signal is None else -ended.signal,
        "problems": [asdict(problem) for problem in session.problems],
    }
    with contextlib.suppress(OSError):
        (recording.raw / SESSION).write_text(json.dumps(about), encoding="utf-8")
    converted = converter.finish()
    stays = bring_home(recording)
    if stays:
        notify(f"layerscope: {stays}\n")
    info.state = "finished"
    info.finished_utc = now()
    info.exit = ExitState(ended.code, ended.signal, ended.goes_on)
    info.program = ProgramState(
        ended.wall_ns,
        ended.user_ns,
        ended.system_ns,
        ended.max_rss_bytes,
        ended.faults_minor,
        ended.faults_major,
        ended.switches_voluntary,
        ended.switches_forced,
        ended.storage_read_bytes,
        ended.storage_written_bytes,
    )
    info.versions = session.versions
    info.tables = [TableState(name, rows) for name, rows in converted["rows"].items()]
    if converted["thinned"] > 1:
        info.weight_policy = f"one span stands for up to {converted['thinned']}"
    info.layers = _layers(session, converted, recording)
    recording.tables_path = Path(converted["tables"] or recording.path)
    raw_bytes = folder_bytes(recording.raw)
    tables_bytes = folder_bytes(recording.tables_path) - (
        raw_bytes if recording.tables_path == recording.path else 0
    )
    info.cost = RecordingCost(
        time.process_time_ns() + _others_ns(session, ended),
        session.link.cpu_ns,
        converted["cpu_ns"],
        raw_bytes,
        tables_bytes,
        session.sampler.cpu_ns if session.sampler else 0,
    )
    with contextlib.suppress(OSError):
        recording.save()
    used: dict[str, int] = converted["used"]
    return used


def _others_ns(session: Recorder, ended: Ended) -> int:
    """CPU time of processes that were started for a moment, such as those that ask a framework how
    it is built: all that has ended of what we began, but for the program and those that tell their
    own.
    """
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    known_ns = session.link.cpu_ns
    if session.sampler is not None:
        known_ns += session.sampler.cpu_ns
    if ended.status is not None:  # else another process is its parent
        known_ns += ended.user_ns + ended.system_ns
    all_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
    return max(all_ns - known_ns, 0)


def _layers(session: Recorder, converted: dict[str, Any], recording: Run) -> list[LayerState]:
    problem = next((p.what for p in session.problems if p.layer == OPERATORS and p.lost), "")
    operator_ns, backward_ns = session.span_costs_ns
    others = converted["records"] - converted["backward"]
    cpu_ns = converted["agent_cpu_ns"] + round(
        others * operator_ns + converted["backward"] * backward_ns
    )
    operators = LayerState(
        OPERATORS,
        "recorded" if converted["records"] else "nothing",
        problem,
        converted["records"],
        converted["dropped"],
        cpu_ns,
        folder_bytes(recording.raw),
    )
    layers = [operators, LayerState(COUNTERS, "recorded", "", converted["rows"].get("counters", 0))]
    blocks = converted["rows"].get("allocations", 0)
    if blocks or session.layers.get(MEMORY):
        state = "recorded" if blocks else "nothing"
        problem = "" if blocks else NO_ALLOCATIONS
        # An allocation and its release: a record each, as an operator has one.
        cpu_ns = round(2 * blocks * operator_ns)
        layers.append(LayerState(MEMORY, state, problem, blocks, 0, cpu_ns))
    if session.sampler is None:
        return layers
    problem = next((p.what for p in session.problems if p.layer == STACKS and p.lost), "")
    samples, sampled = converted["rows"].get("samples", 0), converted["sampled"]
    state = "recorded" if samples else "nothing"
    size = sum(path.stat().st_size for path in recording.raw.glob(f"{SAMPLER_FILE}*"))
    lost, cpu_ns = sampled["lost"], sampled["handler_ns"]
    rates = session.sampler.hz, session.sampler.lowest_hz
    return [*layers, LayerState(STACKS, state, problem, samples, lost, cpu_ns, size, *rates)]


def say_summary(
    recording: Run,
    session: Recorder,
    converter: Converter,
    launch: Launch | None,
    chosen: Sequence[int],
    quiet: bool,
) -> None:
    """The summary of the recording; of several ranks the first one's, about all of them."""
    if launch is None:
        summarise(recording, session, converter, quiet)
    elif speaks(launch, chosen):
        from layerscope.session.ranked import read_together

        together = read_together(recording)
        if together is not None:
            _keep_summary(together, _summary_of(together), quiet)
            return
        if not quiet:
            notify(
                f"layerscope: only rank {launch.rank} is summed up here: to read all ranks takes a "
                "while\n"
            )
        summarise(recording, session, converter, quiet)


def speaks(launch: Launch | None, chosen: Sequence[int]) -> bool:
    """Whether it is for us to print: of several ranks the first does."""
    if launch is None:
        return True
    from layerscope.session.ranked import is_first

    return is_first(launch, chosen)


def summarise(recording: Run, session: Recorder, converter: Converter, quiet: bool) -> None:
    """Print the summary on stderr and keep it in the recording."""
    unread = why_not_converted(session.problems)
    answer = None if unread else converter.summary()
    if unread:
        summary = _no_summary(unread)
    elif answer is None:
        summary = _summary_of(recording)
    else:
        summary = answer["text"] if "text" in answer else _no_summary(answer["unread"])
        recording.info.cost.converter_cpu_ns = answer["cpu_ns"]
        with contextlib.suppress(OSError):
            recording.save()
    _keep_summary(recording, summary, quiet)


def _summary_of(recording: Run) -> str:
    """The summary, made here."""
    from layerscope.analyse.summary import summarise as find_summary
    from layerscope.recording.reader import Reader
    from layerscope.show.summary import text as render

    try:
        with Reader(recording) as reader:
            return render(find_summary(reader))
    except (LayerscopeError, OSError) as error:
        return _no_summary(str(error))


def _no_summary(why: str) -> str:
    return f"layerscope: no summary: {why}\n"


def _keep_summary(recording: Run, summary: str, quiet: bool) -> None:
    with contextlib.suppress(OSError):
        (recording.path / "summary.txt").write_text(summary, encoding="utf-8")
    if not quiet:
        notify("\n" + summary)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`; one that goes away meanwhile has none."""
    total = 0
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
    return total
