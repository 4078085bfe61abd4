"""The MXNet profiler's interface over PyTorch and MXNet: `from layerscope import profiler`, not
`from mxnet import profiler`.

    profiler.set_config(filename="profile_output.json")
    profiler.set_state("run")
    ...
    profiler.set_state("stop")
    print(profiler.dumps())
    profiler.dump()

Standard library only: it works in a program's environment that has nothing of ours. What each
function does, and which trap of the original is gone, is in docs/profiler.md.
"""

from __future__ import annotations

import os

from layerscope.profiler import statistics
from layerscope.profiler.objects import Counter, Domain, Event, Frame, Marker, Task, scope
from layerscope.profiler.requests import Request
from layerscope.profiler.steering import (
    AUTOSTART,
    DEFAULT_FILE,
    known_hooks,
    now_ns,
    open_door,
    steering,
    warn,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "Request",
    "Task",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "resume",
    "scope",
    "set_config",
    "set_kvstore_handle",
    "set_state",
]

# Every key of the original with its default.
DEFAULTS: dict[str, Any] = {
    "filename": DEFAULT_FILE,
    "gpu_memory_profile_filename_prefix": "gpu_memory_profile",
    "profile_all": False,
    "profile_symbolic": True,
    "profile_imperative": True,
    "profile_memory": True,
    "profile_api": True,
    "continuous_dump": True,
    "dump_period": 1.0,
    "aggregate_stats": False,
    "profile_process": "worker",
}
STATES = ("stop", "run")
PROCESSES = ("worker", "server")
FORMATS = ("table", "json")
NO_SERVER = (
    "layerscope: profile_process='server' records this process like 'worker'; what servers of a "
    "kvstore do is recorded in their own processes"
)

_config = dict(DEFAULTS)


def set_config(**kwargs: Any) -> None:
    """Say what is recorded and where `dump` writes; keys left out get their defaults. ValueError
    for unknown keys.
    """
    unknown = sorted(set(kwargs) - set(DEFAULTS))
    if unknown:
        named = ", ".join(repr(name) for name in unknown)
        raise ValueError(f"set_config has no key {named}. Its keys are {', '.join(DEFAULTS)}")
    config = {**DEFAULTS, **kwargs}
    period_s = float(config["dump_period"])
    if not period_s > 0:
        raise ValueError(
            f"dump_period is a number of seconds above 0, not {config['dump_period']!r}"
        )
    _check_process(config["profile_process"])
    file = os.fspath(config["filename"])
    with steering.lock:
        _config.update(config)
        steering.file = os.path.abspath(file)
        steering.file_is_named = "filename" in kwargs or steering.file_is_named
        steering.stem = (
            os.path.splitext(os.path.basename(file))[0] if "filename" in kwargs else steering.stem
        )
        steering.continuous, steering.period_s = bool(config["continuous_dump"]), period_s
        kinds = ("profile_all", "profile_symbolic", "profile_imperative")
        steering.operators = any(config[kind] for kind in kinds)
        steering.use_separate(bool(config["aggregate_stats"]))
        steering.use_memory(bool(kwargs.get("profile_memory") or config["profile_all"]))
        steering.name_file()


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Record from now on ('run'), or no longer ('stop')."""
    if state not in STATES:
        raise ValueError(
            f"the profiler has no state {state!r}. The states are {' and '.join(map(repr, STATES))}"
        )
    _check_process(profile_process)
    if state == "run":
        steering.run()
    else:
        steering.stop()


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`; the time in between is no loss."""
    set_state("stop", profile_process)


def resume(profile_process: str = "worker") -> None:
    """Go on after `pause`."""
    set_state("run", profile_process)


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write everything recorded for the present file as a Chrome trace: complete and valid each
    time.

    `finished` ends the writing of this file while the program runs; another `dump` writes it again.
    """
    _check_process(profile_process)
    file = steering.file
    if steering.excluded:
        return
    if not steering.settings:
        if not steering.unable:
            warn(
                "layerscope: nothing was recorded before dump(): call set_state('run') first; the "
                "trace is empty"
            )
        _write_empty(file)
        return
    answer = steering.ask(
        "dump", file=file, since_ns=steering.file_since_ns(), finished=bool(finished)
    )
    if answer is not None and "error" in answer:
        warn(
            f"layerscope: the trace {file} could not be written: {answer['error']}. What was "
            "recorded is kept in "
            f"{steering.where()}; choose another file with set_config(filename=...)"
        )


def dumps(
    reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False
) -> str:
    """Sums by category and name since the profiler first ran, or since the last `reset`.

    `format` is 'table' or 'json', `sort_by` total, avg, min, max or count.
    """
    if format not in FORMATS:
        raise ValueError(
            f"dumps has no format {format!r}. The formats are {' and '.join(map(repr, FORMATS))}"
        )
    if sort_by not in statistics.SORTS:
        raise ValueError(
            f"dumps cannot sort by {sort_by!r}. It sorts by {', '.join(statistics.SORTS)}"
        )
    until_ns = now_ns()
    found = steering.ask("stats", since_ns=steering.since_ns, until_ns=until_ns)
    if found is not None and "error" in found:
        warn(
            f"layerscope: no statistics: {found['error']}. What was recorded is kept in "
            f"{steering.where()}"
        )
    if found is None or "times" not in found:
        found = statistics.NOTHING
    elif reset:
        steering.since_ns = until_ns
    if not (_config["profile_memory"] or _config["profile_all"]):
        found = {**found, "memory": []}
    write = statistics.as_json if format == "json" else statistics.as_table
    return write(found, sort_by, ascending)


def autostart() -> None:
    """Record the whole program from its import of a framework on, if $LAYERSCOPE_AUTOSTART asks for
    it. Never fails.
    """
    wanted = os.environ.get(AUTOSTART, "")
    if wanted in ("", "0") or steering.settings:
        return
    try:
        door = open_door(known_hooks(), _begin)
        if wanted.startswith("{"):  # of the program that started us: one recording for both
            import json

            door.settings.update(json.loads(wanted))
        steering.adopt(door)
    except (OSError, ValueError):
        pass


def _begin() -> None:
    """The program imports a framework: have a recorder, and let the programs that it starts know of
    it.
    """
    if steering.connect_to_door() or not steering.connect():
        return
    import json

    os.environ[AUTOSTART] = json.dumps(steering.settings)
    steering.name_file()


def _write_empty(file: str) -> None:
    """A trace without events, complete by rename."""
    temporary = f"{file}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as out:
            out.write('{"displayTimeUnit": "ms", "traceEvents": []}\n')
        os.replace(temporary, file)
    except OSError as error:
        warn(f"layerscope: the trace {file} could not be written: {error.strerror}")


def _check_process(profile_process: str) -> None:
    if profile_process not in PROCESSES:
        raise ValueError(f"profile_process is 'worker' or 'server', not {profile_process!r}")
    if profile_process == "server":
        warn(NO_SERVER)


# -- what the original has for old programs ------------------------------------------------------


def set_kvstore_handle(handle: object) -> None:
    """Nothing: servers of a kvstore are recorded in their own processes."""


def profiler_set_config(mode: str = "symbolic", filename: str = DEFAULT_FILE) -> None:
    """Deprecated: use `set_config`. `mode` is 'symbolic' or 'all'; both record every operator."""
    _deprecated("profiler_set_config", "set_config")
    if mode not in ("symbolic", "all"):
        raise ValueError(
            f"profiler_set_config has no mode {mode!r}. The modes are 'symbolic' and 'all'"
        )
    set_config(filename=filename, profile_all=mode == "all")


def profiler_set_state(state: str = "stop") -> None:
    """Deprecated: use `set_state`."""
    _deprecated("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """Deprecated: use `dump`."""
    _deprecated("dump_profile", "dump")
    dump(True)


def _deprecated(old: str, new: str) -> None:
    import warnings

    warnings.warn(
        f"profiler.{old}() is deprecated. Use profiler.{new}() instead",
        DeprecationWarning,
        stacklevel=3,
    )
