"""Disks that fill up, file systems of other machines, and servers that are slow or go away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.rawfile.raw_file import RECORDS, SpoolReader, spools
from tests.differential import PROGRAMS, environment
from tests.hostile.case import HYPOT, Case
from tests.hostile.settings import mounted
from tests.recorded import ask

pytestmark = pytest.mark.slow
PATIENCE_S = 60


def test_a_disk_that_is_full_in_the_middle(case: Case, tmp_path: Path) -> None:
    """Every record is in the tables or in the count of what was lost, and the tables are in the
    cache.
    """
    first, rest = 900_000, 1000
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nimport facts, time; facts.work({first}); time.sleep(1.5)\n"
    code += f"facts.work({rest}); print('done'); exit(6)"
    variables = environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    with mounted("tmpfs", "size=2m", tmp_path / "disk") as disk:
        case.recording = disk / "rec.layerscope"

        outcome = case.both(command=[case.python, "-c", code], env=variables)

        assert (outcome.status, outcome.stdout) == (6, b"done\n")
        run = open_run(case.recording)
        (kept,) = ask(run, f"SELECT count(*) AS n FROM spans WHERE name = '{HYPOT}'")
        (lost,) = ask(
            run, "SELECT sum(lost) AS n, min(reason) AS reason, max(reason) AS last FROM gaps"
        )
    made = first + rest
    # `torch.ones` of each call of work makes 3 more.
    assert made <= kept["n"] + lost["n"] <= made + 6
    assert 0 < kept["n"] < made
    assert lost["reason"] == lost["last"] == "disk_full"
    said = " ".join(case.stderr.split())
    assert "the disk was full" in said
    assert "record to a disk with room (-o)" in said


class Served:
    """A folder behind a FUSE server of the test's own, which may be slow, and may go away."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        self.point, backing = folder / "served", folder / "backing"
        for one in (self.point, backing):
            one.mkdir()
        command = [
            sys.executable,
            str(Path(__file__).with_name("served.py")),
            self.point,
            backing,
            str(delay_s),
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        if self.process.stdout.readline() != "mounted\n":
            pytest.skip(f"no FUSE here: {self.process.communicate()[1].strip().splitlines()[-1]}")

    def end(self) -> None:
        """Stop serving: whatever still reads or writes there gets an error."""
        self.process.kill()
        self.process.communicate()

    def remove(self) -> None:
        """End it and leave nothing mounted."""
        self.end()
        subprocess.run(["umount", "--lazy", self.point], capture_output=True, check=False)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[float], Served]]:
    servers: list[Served] = []

    def start(delay_s: float) -> Served:
        servers.append(Served(tmp_path, delay_s))
        return servers[-1]

    yield start
    for one in servers:
        one.remove()


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """A folder for temporary files alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.mark.stress
def test_a_recording_on_a_file_system_of_another_machine(
    case: Case, serve: Callable[[float], Served], temporary: Path
) -> None:
    """Raw files are kept on this machine while the program runs, and come home at its end."""
    case.recording = serve(0.0005).point / "rec.layerscope"

    case.complete(case.both(env=environment(TMPDIR=str(temporary))))

    assert (case.recording / "raw").is_dir()
    assert not (case.recording / "raw").is_symlink()
    assert spools(case.recording / "raw")
    assert list(temporary.glob("layerscope-*")) == []


@pytest.mark.stress
def test_raw_files_on_a_disk_that_takes_its_time(
    case: Case, serve: Callable[[float], Served]
) -> None:
    """Where the user puts them there: the program does not wait, and what did not fit into the
    rings is counted.
    """
    made = 120_000
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nimport facts; facts.work({made}); print('done'); exit(6)"
    words = [
        *case.recorder(quiet=False)[:-1],
        "--spool",
        str(serve(0.003).point),
        "--",
        case.python,
        "-c",
        code,
    ]

    outcome = case.run(words)
    case.stderr = outcome.stderr.decode()

    assert (outcome.status, outcome.stdout) == (6, b"done\n"), case.stderr
    recorded = case.recorded()
    lost = recorded.gaps().get("ring_full", 0)
    assert made <= recorded.count(HYPOT) + lost <= made + 3
    assert ("the drainer was slower than the program" in " ".join(case.stderr.split())) == bool(
        lost
    )
    assert recorded.problems() == {}


def test_a_server_that_goes_away_while_the_program_runs(
    case: Case, serve: Callable[[float], Served], temporary: Path
) -> None:
    """The recording cannot be completed where it is; its raw files are still on this machine, and
    that is said.
    """
    served = serve(0.0)
    case.recording = served.point / "rec.layerscope"
    code = f"import sys; sys.path.append({str(PROGRAMS)!r})\nimport facts; facts.work(1000); print('on', flush=True)\n"
    code += "sys.stdin.readline(); facts.work(1000); print('done'); exit(6)"
    process = subprocess.Popen(
        [*case.recorder(quiet=False), case.python, "-c", code], cwd=case.work, env=environment(TMPDIR=str(temporary)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "on\n"
            served.end()
            out, said = process.communicate("\n", timeout=PATIENCE_S)
        except BaseException:
            process.terminate()
            raise

    assert (process.returncode, out) == (6, "done\n"), said
    assert "Traceback" not in said
    (place,) = temporary.glob("layerscope-*/*/spool")
    assert str(place.parent.parent) in said
    chunks = SpoolReader(place).chunks([RECORDS])
    assert sum(chunk.count for chunk in chunks) > 2000
