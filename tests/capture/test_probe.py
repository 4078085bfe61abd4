"""The question whether the agent understands a build of torch, and where its answers are kept."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from layerscope.capture import agent
from layerscope.capture.frameworks.torch import probe
from layerscope.capture.frameworks.torch.probe import ProbeAnswer
from tests.native.building import FAKE_TORCH, build

CONSTRUCTORS = """
/* What the probe builds a RecordFunction with; the answers of this one are as wrong as the test wants. */
void _ZN2at14RecordFunctionC1ENS_11RecordScopeE(void *f, unsigned char scope) { ((unsigned char *)f)[SCOPE] = scope; }
void _ZN2at14RecordFunctionD1Ev(void *f) { DESTRUCT }
void _ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_wrapper\
IKN3c1014FunctionSchemaEEEEl(void *f) { (void)f; BEFORE }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native_agent: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "layerscope" / "probe"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return build(
        tmp_path / "libtorch_cpu.so", [FAKE_TORCH], "-shared", "-fPIC", "-Wl,--build-id=sha1"
    )


def test_an_answer_is_kept_for_this_build_and_no_other(
    library: Path, tmp_path: Path, cache: Path
) -> None:
    assert probe.known(library) is None
    answer = ProbeAnswer("good", "", 200, 304, 31.5, complete=True)
    probe.keep(library, answer)
    other = tmp_path / "other.so"
    build(other, [FAKE_TORCH], "-shared", "-fPIC", "-Wl,--build-id=0xabcdef")

    assert probe.known(library) == answer
    assert probe.known(other) is None
    assert [file.suffix for file in cache.iterdir()] == [".json"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "7",
        '{"state": "good", "more": 1}',
        '{"why": "x"}',
        "null",
        "\xff",
        '{"state": 1}',
        '{"state": "good", "sequence_offset": "8"}',
        "[" * 100_000,
    ],
)
def test_a_kept_answer_that_makes_no_sense_is_asked_again(
    library: Path, cache: Path, content: str
) -> None:
    probe.keep(library, ProbeAnswer("good"))
    (file,) = cache.iterdir()
    file.write_bytes(content.encode("latin-1"))

    assert probe.known(library) is None


def test_without_a_cache_answers_are_kept_in_a_temporary_folder(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for variable in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable)
    probe.keep(library, ProbeAnswer("good"))
    assert probe.known(library) == ProbeAnswer("good")
    assert (probe.cache_folder() or Path()).is_relative_to(tmp_path)


def test_without_any_place_answers_are_not_kept(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    probe.keep(library, ProbeAnswer("good"))
    assert probe.known(library) is None


def test_a_library_without_a_build_id_is_asked_every_time(tmp_path: Path, cache: Path) -> None:
    library = build(tmp_path / "none.so", [FAKE_TORCH], "-shared", "-fPIC", "-Wl,--build-id=none")
    probe.keep(library, ProbeAnswer("good"))

    assert probe.known(library) is None
    assert not cache.exists()


def test_what_is_no_torch_is_refused_with_the_reason(library: Path, tmp_path: Path) -> None:
    assert probe.ask(tmp_path / "missing.so").why == "the library does not load on its own"
    assert (
        probe.ask(agent.LIBRARY).why
        == "the library has no RecordFunction callbacks of the known kind"
    )
    assert probe.ask(library).why == "the library has no RecordFunction that can be tried out"
    assert {
        probe.ask(path).state for path in (tmp_path / "missing.so", agent.LIBRARY, library)
    } == {"refused"}


@pytest.mark.parametrize(
    ("before", "destruct", "why"),
    [
        ("*(volatile int *)0 = 0;", "(void)f;", "ended with status -11"),
        ("for (;;) ;", "(void)f;", "did not answer"),
        ("", "(void)f;", "its callbacks do not behave as expected"),
        ("__builtin_trap();", "(void)f;", "ended with status -4"),
    ],
)
def test_a_torch_that_crashes_hangs_or_does_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, destruct: str, why: str
) -> None:
    monkeypatch.setattr(probe, "_TIMEOUT_S", 1)
    source = tmp_path / "more.c"
    source.write_text(
        f"#define SCOPE 0\n#define BEFORE {before}\n#define DESTRUCT {destruct}\n{CONSTRUCTORS}"
    )
    answer = probe.ask(build(tmp_path / "odd.so", [FAKE_TORCH, source], "-shared", "-fPIC"))

    assert answer.state == "refused"
    assert why in answer.why


def test_a_probe_that_cannot_start_says_nothing_of_torch(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "PROBE", tmp_path / "no such file")

    answer = probe.ask(library)
    probe.keep(library, answer)

    assert "could not start" in answer.why
    assert "ulimit -u" in answer.remedy
    assert probe.known(library) is None


@pytest.mark.parametrize(
    "prints", ["", "hello", "[]", "{}", '{"state": "good"}', '"good"', '{"state": 1, "why": 2}']
)
def test_a_probe_that_answers_nonsense_is_a_refusal(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch, prints: str
) -> None:
    odd = tmp_path / "probe"
    odd.write_text(f"#!/bin/sh\necho '{prints}'\n")
    odd.chmod(odd.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(agent, "PROBE", odd)

    assert probe.ask(library).state == "refused"


@pytest.mark.parametrize(
    "prints",
    [
        "",
        "hello",
        "[]",
        "{}",
        '{"forward_thread_offset": "x", "operator_cost_ns": 1, "backward_cost_ns": 1}',
    ],
)
def test_a_python_that_answers_nonsense_leaves_the_answer_as_it_was(
    tmp_path: Path, library: Path, prints: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{prints}'\n")
    python.chmod(0o755)
    answer = probe.ask_with_python(
        str(python), library, ProbeAnswer("good", "", 200), use_tsc=False
    )

    assert answer == ProbeAnswer("good", "", 200)


def test_the_real_torch_is_understood(program_python: str) -> None:
    find = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    done = subprocess.run([program_python, "-c", find], capture_output=True, text=True, check=True)
    package = Path(done.stdout.strip())
    library = package / "lib" / "libtorch_cpu.so"
    answer = probe.ask(library)
    ask = [program_python, "-c", "import torch; print(torch.__config__.show())"]
    config = subprocess.run(ask, capture_output=True, text=True, check=True).stdout

    assert (answer.state, answer.why) == ("good", "")
    assert f"MKL-DNN v{answer.onednn} " in config
    assert answer.sequence_offset > 0
    probe.keep(library, answer)
    assert probe.known(library) == answer


@pytest.mark.parametrize("cap", ["", "SSE41"])
def test_onednn_says_which_instructions_it_uses(program_python: str, cap: str) -> None:
    find = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    done = subprocess.run([program_python, "-c", find], capture_output=True, text=True, check=True)
    library = Path(done.stdout.strip()) / "lib" / "libtorch_cpu.so"

    isa = probe.ask_onednn(program_python, library, cap)

    assert isa == "Intel SSE4.1" if cap else isa.startswith("Intel ")
    assert probe.isa_key(cap) != probe.isa_key("AVX2")


def test_a_python_that_has_no_onednn_tells_no_instruction_set(
    tmp_path: Path, library: Path
) -> None:
    assert probe.ask_onednn("/bin/true", library, "") == ""
    assert probe.ask_onednn(str(tmp_path / "missing"), library, "AVX2") == ""
