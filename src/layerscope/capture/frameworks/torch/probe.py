"""Is this build of torch what the agent takes it for, and where does it keep two members?

Asked once per build-id, in two throw-away processes: one without Python checks the callback's
layout and finds the sequence number (0.12 s); one with the program's own Python runs a backward
pass to find the forward thread, and measures what recording one operator costs. The answers are
kept in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from layerscope import __version__
from layerscope.capture import agent
from layerscope.host.libraries import build_id
from layerscope.model import cache
from layerscope.model.stored_json import decoded

INSIDE = Path(__file__).parent / "inside"
_TIMEOUT_S = 60
# The probe must neither be recorded nor find modules of the program.
_NOT_FOR_THE_PROBE = ("PYTHONPATH", "LAYERSCOPE_AUTOSTART")
# By these a program caps the instruction set of oneDNN, the first one before the second; by those
# it says what it uses.
_CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_VERBOSE = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
_ISA = re.compile(r"_verbose,(?:v\d+,)?info,cpu,isa:(.*)")
# In a kept answer: the library that it is about.
LIBRARY = "library"
# The state of an answer that no probe has given: no process could be started for it.
NOT_ASKED = "not asked"


class ProbeAnswer(Struct):
    """What is known of one library. Offsets -1: not known; costs 0: not measured.

    `operator_cost_ns` and `backward_cost_ns`: CPU time that recording adds to one span of kind
    backward, and to one of any other kind. PyTorch builds the name of a backward function anew for
    whoever wants it, which takes longest. `mkl`: the version of MKL in it, empty for none.
    `onednn`: that of oneDNN, "none" for none, empty where it is not known; `onednn_isa`: the
    instruction set that it says it uses, by `isa_key`.
    """

    state: str
    why: str = ""
    sequence_offset: int = -1
    forward_thread_offset: int = -1
    operator_cost_ns: float = 0.0
    backward_cost_ns: float = 0.0
    complete: bool = False
    mkl: str = ""
    onednn: str = ""
    onednn_isa: dict[str, str] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """What helps where the state is not good."""
        if self.state == NOT_ASKED:
            return "raise the limit that forbids it (such as ulimit -u), and record again"
        return "update layerscope, or use a torch it knows"


def cache_folder() -> Path | None:
    """Where answers are kept; None when there is no place for them."""
    return next(iter(cache.caches(cache.PROBE)), None)


def _cache_file(library: Path) -> Path | None:
    folder = cache_folder()
    identity = build_id(library)
    if folder is None or identity is None:
        return None
    # The agent is part of the question: another one takes other things for granted.
    size = agent.LIBRARY.stat().st_size
    return folder / f"{identity}-{__version__}-{size}.json"


def known(library: Path) -> ProbeAnswer | None:
    """The kept answer for `library`; None when it was never asked."""
    file = _cache_file(library)
    try:
        stored = decoded(file.read_bytes(), dict[str, Any]) if file else {}
        stored.pop(LIBRARY, None)
        # Another layerscope may know more, and mean something else by the rest.
        is_ours = stored and stored.keys() <= set(ProbeAnswer.__struct_fields__)
        return msgspec.convert(stored, ProbeAnswer) if is_ours else None
    except (OSError, ValueError):
        return None


def keep(library: Path, answer: ProbeAnswer) -> None:
    """Keep `answer` for the next run; without a writable cache it is asked again then."""
    file = _cache_file(library)
    if file is None or answer.state == NOT_ASKED:
        return
    with contextlib.suppress(OSError):
        cache.make(file.parent)
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({**asdict(answer), LIBRARY: str(library)}))
        os.replace(temporary, file)


def ask(library: Path) -> ProbeAnswer:
    """Try the library out in a process without Python."""
    try:
        done = subprocess.run(
            [str(agent.PROBE), str(library)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        return ProbeAnswer(NOT_ASKED, f"the probe of {library.name} could not start: {error}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        return ProbeAnswer("refused", f"the probe of {library.name} did not answer: {error}")
    if done.returncode != 0:
        return ProbeAnswer(
            "refused", f"the probe of {library.name} ended with status {done.returncode}"
        )
    try:
        reply = json.loads(done.stdout)
        return ProbeAnswer(
            str(reply["state"]),
            str(reply["why"]),
            int(reply["sequence_offset"]),
            onednn=str(reply.get("onednn", "")),
        )
    except (ValueError, KeyError, TypeError) as error:
        return ProbeAnswer("refused", f"the probe of {library.name} did not answer: {error}")


def ask_with_python(python: str, library: Path, answer: ProbeAnswer, use_tsc: bool) -> ProbeAnswer:
    """Complete a good `answer` with the program's own Python: forward thread and what a recorded
    span costs.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in _NOT_FOR_THE_PROBE
    }
    package = library.parent.parent.parent
    script = INSIDE / "probe.py"
    command = [python, "-s", str(script), str(agent.LIBRARY), str(library), str(package)]
    command += [str(answer.sequence_offset), str(int(use_tsc))]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        reply = json.loads(done.stdout)
        offset = int(reply["forward_thread_offset"])
        costs = float(reply["operator_cost_ns"]), float(reply["backward_cost_ns"])
        mkl = str(reply["mkl"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return answer
    answer.forward_thread_offset, answer.complete = offset, True
    answer.operator_cost_ns, answer.backward_cost_ns = costs
    answer.mkl = mkl
    return answer


def isa_key(cap: str) -> str:
    """What decides which instructions oneDNN uses: the CPU, and the `cap` that the program sets
    it.
    """
    flags = next((line for line in _cpuinfo().splitlines() if line.startswith("flags")), "")
    return f"{hashlib.sha256(flags.encode()).hexdigest()[:16]} {cap}".rstrip()


def _cpuinfo() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/cpuinfo").read_text(errors="replace")
    return ""


def ask_onednn(python: str, library: Path, cap: str) -> str:
    """The instruction set that oneDNN in `library` says it uses on this CPU under `cap`; empty
    where it tells none.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (*_NOT_FOR_THE_PROBE, *_CAPS)
    }
    environment |= dict.fromkeys(_VERBOSE, "1")
    if cap:
        environment[_CAPS[0]] = environment[_CAPS[1]] = cap
    command = [
        python,
        "-s",
        str(INSIDE / "probe_onednn.py"),
        str(library.parent.parent.parent),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    found = _ISA.search(done.stdout)
    return found[1].replace("(R)", "").strip() if found else ""
