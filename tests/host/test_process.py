"""One process: of this machine, alive, ended, of another user; and of others from made-up files."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from layerscope.host import process, runtimes
from layerscope.model.errors import ReadError

HERE = Path("/")
SLEEPS = "import ctypes, sys, time; print('ready', flush=True); time.sleep(60)"


@contextmanager
def running(
    *more: str,
    code: str = SLEEPS,
    environment: dict[str, str] | None = None,
    uid: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", code, *more]
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=environment, user=uid, start_new_session=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait(10)
        if child.stdout:
            child.stdout.close()


def test_a_live_process_is_as_another_tool_sees_it() -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "3",
        "MALLOC_ARENA_MAX": "1",
        "PASSWORD": "hunter2",
    }
    with running("--password=hunter2", "x y", environment=environment) as child:
        found, other = process.facts(HERE, child.pid), psutil.Process(child.pid)
        mapped = {
            one.path
            for one in other.memory_maps(grouped=False)
            if "x" in one.perms and one.path.startswith("/")
        }
        size, threads, name = other.memory_info().rss, other.num_threads(), other.name()

    assert (found.pid, found.name, found.uid) == (child.pid, name, os.getuid())
    assert found.state in ("R", "S")  # it may be on its way to sleep
    assert found.argv == (sys.executable, "-c", SLEEPS, "--password=***", "x y")
    assert found.variables == {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "3"}
    assert set(found.libraries) == mapped
    assert (found.threads, found.unread, found.namespace_pid) == (threads, (), None)
    assert abs(found.memory_bytes - size) < 1 << 20
    assert runtimes.allocator(runtimes.told_apart(found.libraries)) == "glibc"


def test_threads_are_counted() -> None:
    code = (
        "import threading, time\n"
        "for _ in range(5): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    with running(code=code) as child:
        assert process.facts(HERE, child.pid).threads == 6


def test_one_that_has_ended_and_one_that_never_was() -> None:
    with running() as child:
        child.send_signal(signal.SIGKILL)
        until = time.monotonic() + 10
        while (
            psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < until
        ):
            time.sleep(0.01)
        with pytest.raises(ReadError, match=f"process {child.pid} has ended"):
            process.facts(HERE, child.pid)
    with pytest.raises(ReadError, match=f"there is no process {child.pid}"):
        process.facts(HERE, child.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with the eyes of another user")
def test_of_another_users_process_it_is_said_what_may_not_be_read() -> None:
    user = pwd.getpwnam("nobody")
    with running() as child:
        reader, writer = os.pipe()
        looker = os.fork()
        if not looker:
            os.setgroups([])
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            try:
                found = process.facts(HERE, child.pid)
                os.write(
                    writer,
                    repr((found.threads, found.libraries, found.variables, found.unread)).encode(),
                )
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(looker, 0)
        told = os.read(reader, 1 << 16).decode()
        os.close(reader)

    unread = tuple(f"{name}: it belongs to user root" for name in ("maps", "environ", "io"))
    assert told == repr((1, (), {}, unread))


def made(root: Path, **files: str) -> Path:
    folder = root / "proc/9"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    return root


def test_one_that_is_hidden_is_not_called_gone(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"process 9 belongs to another user.* Ask as root"):
        process.facts(made(tmp_path), 9)


def test_the_number_inside_its_container_and_its_limit_of_locked_memory(tmp_path: Path) -> None:
    limits = "Limit Soft Hard Units\nMax locked memory         65536                unlimited            bytes\n"
    found = process.facts(
        made(tmp_path, status="State:\tS\nNSpid:\t9\t4\t1\nUid:\t4000000000\n", limits=limits), 9
    )

    assert (found.namespace_pid, found.memlock_bytes, found.uid) == (1, 65536, 4_000_000_000)


def test_a_kernel_thread_has_neither_words_nor_libraries(tmp_path: Path) -> None:
    found = process.facts(
        made(
            tmp_path,
            status="Name:\tkworker/0:0\nState:\tI (idle)\n",
            cmdline="",
            maps="",
            environ="",
        ),
        9,
    )

    assert (found.argv, found.libraries, found.variables, found.memory_bytes) == ((), (), {}, 0)


def test_what_is_mapped_as_code_is_told_from_data_and_from_what_is_no_file() -> None:
    maps = """\
00400000-00401000 r--p 00000000 08:01 7                                  /usr/bin/python3.11
00401000-00402000 r-xp 00001000 08:01 7                                  /usr/bin/python3.11
7f00-7f01 r-xp 00000000 fe:00 9 /opt/my libs/libgomp.so.1
7f02-7f03 r-xp 00000000 fe:00 9 /opt/old.so (deleted)
7f04-7f05 r--p 00000000 fe:00 9 /opt/data.bin
7f06-7f07 rwxp 00000000 00:01 9 /memfd:jit (deleted)
7f08-7f09 rwxs 00000000 00:05 9 /dev/zero
7f0a-7f0b r-xp 00000000 00:00 0 [vdso]
7f0c-7f0d rwxp 00000000 00:00 0
"""
    assert process.mapped_code(maps) == (
        "/opt/my libs/libgomp.so.1",
        "/opt/old.so",
        "/usr/bin/python3.11",
    )


def test_variables_are_those_that_say_how_the_machine_is_used() -> None:
    words = ("OMP_NUM_THREADS=4", "OMP_NUM_THREADS=8", "MY_OMP_X=1", "LD_PRELOAD=", "HOME=/", "KMP_AFFINITY=a=b",
             "XLA_FLAGS_X=1", "broken", "")  # fmt: skip
    environ = "\0".join(words)

    assert process.variables(environ) == {
        "KMP_AFFINITY": "a=b",
        "LD_PRELOAD": "",
        "OMP_NUM_THREADS": "4",
    }
