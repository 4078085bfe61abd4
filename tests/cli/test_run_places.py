"""Where a recording can lie: folders that cannot be written, full disks, odd paths, missing
variables.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential import PROGRAMS, Differential, Recorded, environment, launcher, program
from tests.recorded import NO_STACKS
from tests.repeated import also

pytestmark = pytest.mark.slow


@pytest.fixture
def differential(tmp_path: Path) -> Differential:
    return Differential(tmp_path, NO_STACKS)


@pytest.mark.parametrize(
    "changes",
    [
        {"HOME": None, "XDG_CACHE_HOME": None},
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        *also(
            [
                {"TMPDIR": "/nowhere"},
                {"HOME": None},
                {"HOME": "/nowhere/at/all"},
                {"XDG_CACHE_HOME": "/proc"},
                {"PATH": "/bin"},
            ]
        ),
    ],
    ids=" ".join,
)
def test_variables_that_are_missing_or_lead_nowhere(
    changes: dict[str, str | None],
    differential: Differential,
    program_python: str,
    native_agent: Path,
) -> None:
    differential.same(program(program_python, "facts.py"), env=environment(**changes))

    assert differential.recorded().per_process() == [100]


@pytest.mark.parametrize(
    "name",
    [
        "quote'\"$(x)",
        "-q",
        "a\nb",
        "\udcff\udcfe",
        *also(["with space", "with:colon", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"]),
    ],
)
def test_a_working_directory_with_an_odd_name(
    name: str, tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir()

    done = subprocess.run(
        [*launcher(tmp_path), "run", program_python, str(PROGRAMS / "exit_status.py"), "3"], cwd=folder,
        capture_output=True, env=environment(TMPDIR=str(tmp_path)), check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (3, b"out\n")
    assert b"aten::hypot" in done.stderr, done.stderr
    if name.isprintable() or "\n" in name:
        assert [path.name for path in folder.iterdir()] == ["exit_status.layerscope"]
        assert Recorded(folder / "exit_status.layerscope").per_process() == [100]
    else:  # Parquet cannot be written there
        assert list(folder.iterdir()) == []
        assert b"its name is not UTF-8" in done.stderr


def test_a_removed_working_directory(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" "$@"'
    command = [
        "/bin/sh",
        "-c",
        script,
        *launcher(tmp_path),
        "run",
        program_python,
        "-c",
        "print(1); exit(4)",
    ]
    variables = environment(TMPDIR=str(tmp_path))

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=variables, check=False)

    assert (done.returncode, done.stdout) == (4, b"1\n")
    assert re.search(rb"cannot be (written|found).*recording into", done.stderr), done.stderr


def test_a_recording_that_the_program_removes(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nimport shutil, facts; facts.work(100000)\n"
    code += "shutil.rmtree(sys.argv[1]); facts.work(100000); print('done'); exit(6)"

    outcome = differential.record([program_python, "-c", code, str(differential.recording)])

    assert (outcome.status, outcome.stdout, outcome.stderr) == (6, b"done\n", b"")


def test_a_recording_is_never_overwritten(tmp_path: Path, program_python: str) -> None:
    for name in ("json.tool.layerscope", "other.layerscope"):
        (tmp_path / name).mkdir()
    words = [program_python, "-m", "json.tool", "--help"]
    run = [*launcher(tmp_path), "run", "-q"]

    assert (
        subprocess.run([*run, *words], cwd=tmp_path, capture_output=True, check=False).returncode
        == 0
    )
    refused = subprocess.run(
        [*run, "-o", "other", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (tmp_path / "json.tool-2.layerscope" / "run.json").exists()
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "exists already" in refused.stderr


def test_an_output_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [*launcher(tmp_path), "run", "-o", "file/inside", "/bin/echo", "ran"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("layerscope: cannot make the recording")
    assert done.stderr.count("\n") == 1


def as_nobody() -> list[str]:
    """A command that becomes a user without rights, who may still read everything (our Python,
    wherever it lies).
    """
    setpriv = shutil.which("setpriv")
    if os.getuid() != 0 or setpriv is None:
        pytest.skip("only root can become another user (needs setpriv)")
    caps = "+dac_read_search"
    words = [
        setpriv,
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        f"--inh-caps={caps}",
        f"--ambient-caps={caps}",
    ]
    if subprocess.run([*words, "/bin/true"], capture_output=True, check=False).returncode:
        pytest.skip("this root may not hand rights on")
    return words


def test_a_folder_that_cannot_be_written(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    nobody = as_nobody()
    temporary = differential.work.parent / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777)
    for parent in [differential.work, *differential.work.parents][:4]:
        parent.chmod(0o755)
    variables = environment(TMPDIR=str(temporary), HOME="/nonexistent")
    command = program(program_python, "exit_status.py", "3")

    without = differential.run([*nobody, *command], env=variables)
    with_us = differential.run([*nobody, *differential.layerscope, "run", *command], env=variables)

    assert (with_us.status, with_us.stdout, with_us.files) == (
        without.status,
        without.stdout,
        without.files,
    )
    found = re.search(
        rb"cannot be written \(Permission denied\): recording into (\S+)", with_us.stderr
    )
    assert found, with_us.stderr
    assert found[1].decode().startswith(str(temporary))
    assert (temporary / "layerscope-65534").stat().st_mode & 0o777 == 0o700
    assert Recorded(Path(found[1].decode())).per_process() == [100]


def test_somebody_elses_folder_among_the_temporary_ones_is_not_used(
    differential: Differential, program_python: str
) -> None:
    nobody = as_nobody()
    temporary = differential.work.parent / "tmp"
    (temporary / "layerscope-65534").mkdir(parents=True)
    for folder in (temporary, temporary / "layerscope-65534"):
        folder.chmod(0o777)
    for parent in [differential.work, *differential.work.parents][:4]:
        parent.chmod(0o755)
    command = [*nobody, *differential.layerscope, "run", "-q", program_python, "-c", "print(1)"]

    outcome = differential.run(command, env=environment(TMPDIR=str(temporary)))

    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, b"1\n", b"")
    assert list((temporary / "layerscope-65534").iterdir()) == []


def test_a_program_that_becomes_another_user_is_recorded(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")

    differential.same(program(program_python, "drops_rights.py"))

    assert differential.recorded().per_process() == [100]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no right to mount a small file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(
    small_disk: Path, differential: Differential, program_python: str, native_agent: Path
) -> None:
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nimport facts, time; facts.work(300000); time.sleep(1.5)\n"
    code += "facts.work(1000); print('done'); exit(6)"
    differential.recording = small_disk / "rec.layerscope"

    outcome = differential.record([program_python, "-c", code])

    assert (outcome.status, outcome.stdout, outcome.stderr) == (6, b"done\n", b"")


@pytest.mark.parametrize("left_bytes", [0, 4096, 32768, 65536])
def test_a_disk_that_is_full_from_the_start(
    left_bytes: int, small_disk: Path, tmp_path: Path
) -> None:
    """Without room for a recording that is said before anything runs; with too little, the program
    runs.
    """
    (small_disk / "work").mkdir()
    with (small_disk / "rest").open("wb", buffering=0) as rest, contextlib.suppress(OSError):
        while True:
            rest.write(bytes(4096))
    os.truncate(small_disk / "rest", (small_disk / "rest").stat().st_size - left_bytes)
    command = [*launcher(tmp_path), "run", "-q", "/bin/echo", "ran"]
    variables = environment(TMPDIR=str(small_disk))

    done = subprocess.run(
        command, cwd=small_disk / "work", capture_output=True, env=variables, check=False
    )

    if done.returncode == 0:
        assert (done.stdout, done.stderr) == (b"ran\n", b"")
        return
    assert left_bytes < 8192
    assert (done.returncode, done.stdout) == (125, b"")
    assert re.fullmatch(
        rb"layerscope: cannot make the recording .*: No space left on device.*\n", done.stderr
    )
    assert list((small_disk / "work").iterdir()) == []


def test_files_that_may_only_be_small(
    differential: Differential, program_python: str, native_agent: Path
) -> None:
    """RLIMIT_FSIZE is about the files of the program; it holds for shared memory and for our own
    files too.
    """
    code = f"import signal, sys; sys.path.append({str(PROGRAMS)!r})\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    code += "import facts, threading; facts.work(10)\nt = threading.Thread(target=facts.work)\n"
    code += "t.start(); t.join(); print(1)"
    low = ["/bin/sh", "-c", 'ulimit -f 100; exec "$0" "$@"']

    without = differential.run([*low, program_python, "-c", code])
    with_us = differential.run([*low, *differential.recorder(), program_python, "-c", code])

    assert with_us == without
