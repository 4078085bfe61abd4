"""`layerscope doctor`: what it says about good and bad places, and that it works in the bad
ones.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.capture import agent
from layerscope.capture.frameworks.torch import probe
from layerscope.checks import recording, rights, surroundings
from layerscope.checks.frameworks import torch
from layerscope.checks.program_python import ProgramPython, find_program, keeps_us_out
from layerscope.checks.recording_check import LIMITED, NO, OK, RecordingCheck
from layerscope.host.cgroup import Cgroup
from layerscope.host.kernel import Kernel
from layerscope.show import checklist
from tests.recorded import ROOT

FILTERED = "Operation not permitted"


def told(
    capfd: pytest.CaptureFixture[str], *words: str, status: int = 0
) -> dict[str, dict[str, str]]:
    assert cli.main(["doctor", "--json", *words]) == status
    found = json.loads(capfd.readouterr().out)
    assert [column["name"] for column in found["columns"]] == ["subject", "state", "what", "remedy"]
    assert (found["command"], found["table"]) == ("doctor", "checks")
    rows = [
        dict(zip(("subject", "state", "what", "remedy"), row, strict=True)) for row in found["rows"]
    ]
    return {row["subject"]: row for row in rows}


@pytest.fixture(scope="module")
def program(program_python: str) -> ProgramPython:
    return find_program([program_python])


@pytest.mark.slow
def test_a_python_with_torch_can_be_recorded_at_a_measured_cost(
    folder: Path, program_python: str, native_agent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = told(capfd, "--", program_python, "train.py", "-I")

    states = {subject: row["state"] for subject, row in found.items()}
    assert {
        states[name]
        for name in ("python", "operators", "modules", "ranges", "counters", "hand-over")
    } == {OK}
    assert states["primitives"] == OK
    said = re.search(
        r"torch 2\.\S+: .* at (\d+) ns an operator, about (\d+) ns a backward",
        found["operators"]["what"],
    )
    assert said
    assert 0 < int(said[1]) <= int(said[2])
    assert states["stacks"] in (OK, LIMITED)  # as the kernel and the container allow
    assert states["other layers"] == NO
    assert all(
        row["remedy"]
        for row in found.values()
        if row["state"] == LIMITED and row["subject"] != "clock"
    )
    assert list(folder.iterdir()) == []
    assert probe.known(
        Path(os.path.realpath(torch.library_of(find_program([program_python])) or ""))
    )


def test_a_python_without_torch_cannot(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = told(capfd, sys.executable, status=1)

    assert found["operators"]["state"] == NO
    libraries = "JAX, MXNet, ONNX Runtime, TensorFlow or PyTorch"
    assert found["operators"]["what"] == f"{sys.executable} has no {libraries}"
    assert (
        found["operators"]["remedy"]
        == "name the Python that has it: layerscope doctor -- /path/to/python"
    )


@pytest.mark.parametrize(
    "words", [["/bin/false"], ["/nowhere/python"], ["train.py"], ["größe\udcff"], ["-x"], []]
)
def test_any_words_get_an_answer(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", "--", *words]) == 1
    printed = capsys.readouterr()
    assert re.search(r"^no +operators ", printed.out, re.MULTILINE)
    assert printed.err == "Next: layerscope run train.py\n"


def test_quiet_prints_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "-q", sys.executable]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("python3 -I train.py", "I"), ("python -uE train.py", "E"), ("/usr/bin/python3.11 -X dev -S -m package", "S"),
        ("python -W error::E -I x.py", "I"), ("python train.py -I", ""), ("python -m package -E", ""),
        ("python -c -I", ""), ("python -OO --version", ""), ("python -WIES x.py", ""), ("python", ""), ("bash -I", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_options_that_keep_layerscope_out_are_seen(words: str, option: str) -> None:
    assert keeps_us_out(words.split()) == option


def test_a_python_that_ignores_our_variable_cannot_be_recorded(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = told(capfd, sys.executable, "-I", "train.py", status=1)
    assert (
        found["arguments"]["what"]
        == "python -I does not read PYTHONPATH, through which layerscope is loaded"
    )


def test_without_the_agent_windows_are_left(
    program: ProgramPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "LIBRARY", tmp_path / "missing.so")
    found = torch.operators(program, {})
    assert found.state == LIMITED
    assert found.what.startswith(
        "the native agent of layerscope was not compiled: only windows of PyTorch's own"
    )
    assert "install a C compiler" in found.remedy
    checks = {check.subject: check for check in recording.all_checks([program.python])}
    assert (checks["modules"].state, checks["shapes"].state) == (NO, NO)
    assert (checks["primitives"].state, checks["ranges"].state) == (NO, LIMITED)
    assert "install a C compiler" in checks["primitives"].remedy


def test_a_collector_of_the_users_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (agent.ITT, agent.NVTX):
        monkeypatch.delenv(variable, raising=False)
    assert (recording.primitives(None).state, recording.ranges(None).state) == (OK, OK)
    monkeypatch.setenv(agent.NVTX, "/opt/nsight.so")
    assert recording.primitives(None).state == OK
    assert recording.ranges(None).remedy == "unset NVTX_INJECTION64_PATH"
    monkeypatch.setenv(agent.ITT, "/opt/vtune.so")
    assert recording.primitives(None).remedy.startswith("unset INTEL_LIBITTNOTIFY64")
    assert recording.ranges(None).what.startswith(
        "your own NVTX_INJECTION64_PATH and INTEL_LIBITTNOTIFY64 get "
    )


@pytest.mark.parametrize("call", ["memory", "socket"])
def test_a_filter_leaves_windows(call: str, program: ProgramPython, native_agent: Path) -> None:
    found = torch.operators(program, {call: FILTERED})
    assert (found.state, FILTERED in found.what, "seccomp" in found.remedy) == (LIMITED, True, True)
    refused = recording.hand_over({call: FILTERED})
    assert (refused.subject, refused.state) == ("hand-over", NO)
    assert recording.hand_over({"perf_event_open": FILTERED}).state == OK


def test_a_torch_that_is_not_understood_is_limited(
    folder: Path, program: ProgramPython, native_agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        probe, "ask", lambda library: probe.ProbeAnswer("refused", "its callbacks differ")
    )
    found = torch.operators(program, {})
    assert (found.state, "is not understood (its callbacks differ)" in found.what) == (
        LIMITED,
        True,
    )


def test_only_some_pythons_have_modules(program: ProgramPython) -> None:
    assert torch.modules(program).state == OK
    for changed in ({"python": "3.15.0"}, {"python": "3.7.9"}, {"gil": False}, {"kind": "PyPy"}):
        other = ProgramPython(program.python, "", {**program.about, **changed})
        assert torch.modules(other).state == NO


def test_without_a_compiler_shapes_say_so(
    program: ProgramPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    assert torch.shapes(program).remedy == "install g++"


def test_small_machines_are_limited() -> None:
    assert surroundings.memory_here(Cgroup(2, 512_000_000, 0, 0.5), 400_000_000) == RecordingCheck(
        "memory", LIMITED,
        "400 MB are left of the 512 MB of this control group; the recorder takes up to 300 MB, and 3 MB a thread",
        "give the job 1 GB more, or convert the recording elsewhere",
    )  # fmt: skip
    assert surroundings.memory_here(Cgroup(), 8_000_000_000) == RecordingCheck(
        "memory", OK, "8.00 GB are left"
    )
    assert surroundings.cpus(0.5, 8).state == LIMITED
    assert surroundings.cpus(2, 8) == RecordingCheck("cpus", OK, "2 of 8 CPUs")
    assert recording.time_source(False, True).state == LIMITED


def test_layers_that_do_not_exist_are_not_promised() -> None:
    found = recording.not_yet()
    assert found.state == NO
    assert "this version cannot record them" in found.what


def test_what_keeps_stacks_away_is_said(tmp_path: Path) -> None:
    here = Kernel(4, 1, "filter", True, True)
    assert recording.stacks(here, {}, tmp_path).remedy == "install gcc, then: python3 dev.py native"
    (tmp_path / "layerscope-sampler").touch()
    unread = recording.stacks(here, {"process_vm_readv": FILTERED}, tmp_path)
    assert unread.state == NO
    assert "ptrace_scope is 1" in unread.what
    timers = recording.stacks(here, {"perf_event_open": FILTERED}, tmp_path)
    assert timers.state == LIMITED
    assert "perf_event_open is refused (perf_event_paranoid is 4)" in timers.what
    assert recording.stacks(here, {}, tmp_path).state == OK
    locked = recording.stacks(Kernel(2, 3, "", False, False), {}, tmp_path)
    assert (locked.state, locked.remedy) == (LIMITED, "sysctl kernel.yama.ptrace_scope=1 at boot")


def test_root_is_not_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    refused = {"cpu_clock": 0, "switches": 0, "wakers": 13, "kernel": 0}

    check = recording.inside_the_kernel(lambda: refused)

    assert check.remedy == "give this root CAP_PERFMON: docker run --cap-add PERFMON IMAGE"
    assert rights.see_process() == ""


def test_what_needs_rights_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def told(wakers: int, inside: int) -> RecordingCheck:
        return recording.inside_the_kernel(
            lambda: {"cpu_clock": 0, "switches": 0, "wakers": wakers, "kernel": inside}
        )

    assert told(0, 0).state == OK
    assert told(13, 0) == RecordingCheck(
        "kernel", LIMITED, "which thread ends a wait is not known", "record as root"
    )
    neither = told(13, 13)
    assert neither.what == "which thread ends a wait is not known; time in the kernel is one frame"
    assert "perf_event_paranoid=1" in neither.remedy

    def fails() -> dict[str, int]:
        raise FileNotFoundError

    assert recording.inside_the_kernel(fails).state == NO


def test_places_that_cannot_be_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert surroundings.recordings(tmp_path).state in (OK, LIMITED)
    assert surroundings.recordings(None).remedy == "choose a place with -o"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert surroundings.recordings(tmp_path).what.startswith(
        f"{tmp_path} cannot be written: recordings go to"
    )
    assert surroundings.temporary_files(tmp_path).remedy == "set TMPDIR"


def test_a_remote_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings.filesystems, "kind", lambda _: "nfs4")
    monkeypatch.setattr(surroundings.filesystems, "is_remote", lambda _: True)
    assert "(nfs4): a network, so raw files lie in" in surroundings.recordings(tmp_path).what


HOSTILE = """
import os, resource, sys
sys.path.insert(0, sys.argv[1])
# The Python of the tests may lie where another user cannot read.
from layerscope import cli
from layerscope.checks import recording, surroundings
from layerscope.cli import doctor
from layerscope.show import checklist
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
for name in ("HOME", "PATH", "XDG_CACHE_HOME", "USER"):
    os.environ.pop(name, None)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000_000, 100_000_000))
if os.getuid() == 0:
    os.setgid(54321)
    os.setuid(54321)
sys.exit(cli.main(["doctor", *sys.argv[2:]]))
"""


@pytest.mark.slow
def test_it_works_without_home_working_directory_path_and_user(tmp_path: Path) -> None:
    # Not in tmp_path: another user cannot go there.
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o777)
        done = subprocess.run(
            [sys.executable, "-c", HOSTILE, str(ROOT / "src")], cwd=tmp_path, env={**os.environ, "TMPDIR": temporary},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    lines = {line[9:23].strip(): line for line in done.stdout.splitlines() if line[:1] != " "}
    assert lines["recordings"].startswith("limited  recordings    the working directory is gone")
    assert lines["cache"].startswith("limited  cache")
    assert "64 open files at most" in done.stdout
    assert "files of at most 100 MB" in done.stdout
    if os.getuid() == 0:
        assert "user 54321, without an entry in passwd" in lines["surroundings"]


def test_lines_are_folded_behind_their_subject() -> None:
    head = f"{'ok':<9}{'python':<14}"
    assert checklist.folded(head, "one two three four five six", 46) == (
        "ok       python        one two three four five\n                       six\n"
    )
    assert checklist.folded(head, "one\ntwo", 0) == "ok       python        one\\ntwo\n"


def test_a_cache_that_lies_among_temporary_files_by_choice_is_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "chosen"))
    assert surroundings.cached_probes().state == OK
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    found = surroundings.cached_probes()
    assert (found.state, str(tmp_path) in found.what) == (LIMITED, True)
