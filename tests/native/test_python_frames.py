"""The frames of Python as another process reads them, and whether the numbers are those of
CPython's headers.
"""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.native.building import build, sanitizer_flag
from tests.native.door import Door
from tests.native.sampled import Code, areas
from tests.native.test_sampling_python import TEXT, VERSIONS
from tests.pythons import python_here, python_of

SOURCE = Path(__file__).parent / "python_frames_driver.c"
TIMEOUT_S = 120
WAITING = """
import time

class Waiting:
    def __init__(self, n):
        self.n = n

    def wait(self, n):
        if n:
            return self.wait(n - 1)
        list(map(lambda _: time.sleep(60), [1]))

threads = [threading.Thread(target=Waiting(n).wait, args=(n,), daemon=True) for n in range(5)]
for thread in threads:
    thread.start()
time.sleep(0.3)
frames = sys._current_frames()
print(json.dumps([(thread.native_id, walk(frames[thread.ident])) for thread in threads]), flush=True)
sys.stdin.readline()
os._exit(0)
"""


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        tmp_path_factory.mktemp("frames") / "reader", [SOURCE], "-O2", "-Wall", "-Wextra", "-Werror"
    )


def test_the_numbers_are_those_of_the_headers(tmp_path: Path) -> None:
    compared = []
    for version, python in ((version, python_here(version)) for version in VERSIONS):
        if python is None:
            continue
        asked = "import sysconfig; print(sysconfig.get_path('include'))"
        include = Path(subprocess.check_output([python, "-c", asked], text=True).strip())
        if not (include / "internal" / "pycore_frame.h").exists():
            continue
        # Debian's pyconfig.h includes one by the folder above.
        folders = (include.parent, include, include / "internal")
        flags = ("-DHEADERS", *(flag for folder in folders for flag in ("-isystem", str(folder))))
        driver = build(tmp_path / f"offsets-{version}", [SOURCE], *flags)
        assert subprocess.check_output([str(driver), "offsets"], text=True) == f"{version}\n"
        compared.append(version)
    print("compared with the headers of", *compared)
    if not compared:
        pytest.skip("no Python here has its headers")


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_of_threads_that_wait(
    version: str, reader: Path, native_agent: Path, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="")
    text = (
        f"AGENT, SOCKET = {str(native_agent)!r}, {door.name!r}\n"
        + TEXT.read_text()
        + textwrap.dedent(WAITING)
    )
    process = subprocess.Popen(
        [python_of(version), "-I", "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    threads = json.loads(process.stdout.readline())
    (area,) = areas(door, process.pid)
    numbers = [
        process.pid,
        version.split(".")[1],
        area.number("python_runtime"),
        *[tid for tid, _ in threads],
    ]
    told = subprocess.check_output(
        [str(reader), "read", *map(str, numbers)], text=True, timeout=TIMEOUT_S
    ).splitlines()
    process.communicate("\n", timeout=TIMEOUT_S)
    door.close()
    for tid, frames in threads:
        number, count, is_cut, left_out = map(int, told.pop(0).split())
        assert (number, count, is_cut, left_out) == (tid, len(frames), 0, 0)
        entries = []
        for frame in frames:
            name, file, first_line, place, is_entry, lines = told.pop(0).split("|")
            line = Code(name, file, int(first_line), bytes.fromhex(lines)).line(int(place))
            assert [name, file, line] == frame
            entries.append(is_entry == "1")
        assert entries[0]  # called by map
        assert entries[-1]  # by the thread's start
        assert sum(entries) >= 2
    assert told == []


def test_a_thread_that_python_does_not_know_has_no_frames(reader: Path) -> None:
    told = subprocess.check_output(
        [str(reader), "read", "1", "11", "0", "5"], text=True, timeout=TIMEOUT_S
    )
    assert told == "5 -1 1 0\n"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_memory_that_makes_no_sense(seed: int, tmp_path: Path) -> None:
    flag = sanitizer_flag(tmp_path, "address,undefined")
    driver = build(tmp_path / "noise", [SOURCE], "-O1", "-g", flag, "-fno-sanitize-recover=all")
    done = subprocess.run(
        [str(driver), "noise", str(seed), "20000"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 10, "the noise was never taken for frames"
