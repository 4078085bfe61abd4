"""Samples hurt no code that has something else in the stack pointer, as matrix kernels of oneDNN 2
do.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.quick_torch import quick
from tests.recorded import Recorded, layerscope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

# Computes with the stack pointer in the middle of `memory`; how many bytes of that have changed.
LIBRARY = r"""
#include <stddef.h>
#include <stdint.h>
long computes(unsigned char *memory, size_t bytes, uint64_t rounds) {
    for (size_t i = 0; i < bytes; i++)
        memory[i] = 0xa5;
    __asm__ volatile("mov %%rsp, %%r12\n mov %0, %%rsp\n1: dec %1\n jnz 1b\n mov %%r12, %%rsp"
                     : : "r"(memory + bytes / 2), "r"(rounds) : "r12", "cc", "memory");
    long changed = 0;
    for (size_t i = 0; i < bytes; i++)
        changed += memory[i] != 0xa5;
    return changed;
}
/* The same on threads that nobody but this library knows; how many bytes of all of them have changed. */
#include <pthread.h>
#include <stdlib.h>
static void *works(void *rounds) {
    unsigned char *memory = malloc(1 << 20);
    return (void *)computes(memory, 1 << 20, (uint64_t)rounds);
}
long on_native_threads(int count, uint64_t rounds) {
    pthread_t threads[8];
    long changed = 0;
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, works, (void *)rounds);
    for (int i = 0; i < count; i++) {
        void *of_one;
        pthread_join(threads[i], &of_one);
        changed += (long)of_one;
    }
    return changed;
}
#ifdef ALONE
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    size_t bytes = 1 << 20;
    unsigned char *memory = malloc(bytes);
    printf("%ld\n", computes(memory, bytes, 3000000000ull));
    return 0;
}
#endif
"""
PROGRAM = """
import ctypes, json, threading, torch
library = ctypes.CDLL("./library.so")
library.computes.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
changed = []
def work():
    torch.ones(3) + 1  # the agent knows the thread
    memory = ctypes.create_string_buffer(1 << 20)
    changed.append(library.computes(memory, 1 << 20, 1_500_000_000))
thread = threading.Thread(target=work)
thread.start()
work()
thread.join()
print(json.dumps(changed))
"""


# Threads that record nothing: of Python, of a library, and the child of a fork.
STRANGERS = """
import ctypes, json, os, threading
library = ctypes.CDLL("./library.so")
library.computes.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
library.on_native_threads.argtypes = [ctypes.c_int, ctypes.c_uint64]
changed = []
def work():
    memory = ctypes.create_string_buffer(1 << 20)
    changed.append(library.computes(memory, 1 << 20, 1_000_000_000))
thread = threading.Thread(target=work)
thread.start()
changed.append(library.on_native_threads(2, 1_000_000_000))
thread.join()
work()
if not (child := os.fork()):
    work()
    changed.append(library.on_native_threads(1, 500_000_000))
    os._exit(any(changed))
changed.append(os.waitpid(child, 0)[1])
print(json.dumps(changed))
"""


def build(folder: Path, *options: str) -> None:
    """Compile the library in `folder`."""
    (folder / "library.c").write_text(LIBRARY)
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the tests need a C compiler"
    subprocess.run([compiler, "-O1", *options, "library.c"], cwd=folder, check=True, timeout=60)


def samples(folder: Path) -> int:
    """How many samples on a CPU the recording has with a stack."""
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, "", "")
    return int(
        recorded.value("SELECT count(*) FROM samples WHERE kind = 'cpu' AND stack IS NOT NULL")
    )


def test_memory_under_the_stack_pointer_of_a_python_program_stays(
    program_python: str, tmp_path: Path
) -> None:
    build(tmp_path, "-shared", "-fPIC", "-o", "library.so")
    (tmp_path / "program.py").write_text(quick(PROGRAM))
    done = layerscope(
        "run", "-o", "recording", "--rate", "500", "--", program_python, "program.py", cwd=tmp_path
    )

    assert (done.returncode, json.loads(done.stdout)) == (0, [0, 0]), done.stderr
    assert samples(tmp_path) > 20


def test_so_does_that_of_threads_which_record_nothing(program_python: str, tmp_path: Path) -> None:
    build(tmp_path, "-shared", "-fPIC", "-o", "library.so")
    (tmp_path / "program.py").write_text(STRANGERS)
    done = layerscope(
        "run", "-o", "recording", "--rate", "500", "--", program_python, "program.py", cwd=tmp_path
    )

    assert (done.returncode, json.loads(done.stdout or "0")) == (0, [0, 0, 0, 0]), done.stderr
    recorded = Recorded(open_run(tmp_path / "recording.layerscope"), 0, "", "")
    with_stacks = """
    SELECT track FROM samples WHERE kind = 'cpu' AND stack IS NOT NULL GROUP BY track HAVING count(*) > 20
    """
    # Each of the six that computed, native ones as well.
    assert int(recorded.value(f"SELECT count(*) FROM ({with_stacks})")) == 6
    assert not recorded.value("SELECT count(*) FROM problems WHERE code = 'no_copies'")


def test_a_program_in_c_is_sent_no_signal_at_all(tmp_path: Path) -> None:
    build(tmp_path, "-DALONE", "-o", "program")
    done = layerscope("run", "-o", "recording", "--rate", "500", "--", "./program", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert samples(tmp_path) > 20
    # Without operators the summary has the heaviest functions; the only one has nearly all.
    heading, heaviest = re.findall(r"^(?:Function|main|computes)\b.*", done.stderr, re.MULTILINE)[
        :2
    ]
    assert heading.split() == ["Function,", "with", "what", "it", "calls", "total", "share", "self"]
    assert int(heaviest.split()[3]) > 60
    assert "Next: layerscope report" in done.stderr
