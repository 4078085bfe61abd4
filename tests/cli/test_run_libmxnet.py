"""`layerscope run` of programs in C that load MXNet while they run, or are started by others, or have
none.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.mxnet_folder import mxnet_folder
from tests.native.building import build
from tests.recorded import NO_STACKS, Recorded, layerscope, open_run

pytestmark = pytest.mark.slow

# Loads libmxnet.so of a folder, and has it make arrays of ones; with a third argument a forked child
# makes two more. It sees what dlsym and dlerror say.
LOADS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *mxnet;

static void *function(const char *name) {
    void *found = dlsym(mxnet, name);
    const char *error = dlerror();
    if (!found || error)
        exit(9);
    return found;
}

int main(int count, char **words) {
    char path[4096];
    if (dlsym(RTLD_DEFAULT, "there_is_no_such_function") || count < 3)
        return 8;
    puts(dlerror());
    snprintf(path, sizeof path, "%s/libmxnet.so", words[1]);
    mxnet = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!mxnet || dlsym(mxnet, "there_is_no_such_function"))
        return 7;
    puts(strrchr(dlerror(), ':'));
    int (*list)(uint32_t *, void ***), (*name_of)(void *, const char **), (*wait)(void);
    int (*invoke)(void *, int, void **, int *, void ***, int, const char **, const char **, const int **);
    *(void **)&list = function("MXSymbolListAtomicSymbolCreators");
    *(void **)&name_of = function("MXSymbolGetAtomicSymbolName");
    *(void **)&invoke = function("MXImperativeInvoke");
    *(void **)&wait = function("MXNDArrayWaitAll");
    uint32_t operators = 0;
    void **all, *ones = NULL;
    list(&operators, &all);
    for (uint32_t i = 0; i < operators; i++) {
        const char *name;
        if (!name_of(all[i], &name) && !strcmp(name, "_ones"))
            ones = all[i];
    }
    int is_child = count > 3 && !fork(), status = 0;
    for (int i = 0; i < atoi(words[2]) + 2 * is_child; i++) {
        const char *keys[] = {"shape", "dtype"}, *values[] = {"(64, 64)", "float32"};
        int made = 0;
        void **arrays = NULL;
        const int *types; /* that MXNet 2 has */
        if (invoke(ones, 0, NULL, &made, &arrays, 2, keys, values, &types))
            return 6;
    }
    int failed = wait();
    if (is_child)
        _exit(failed);
    if (count > 3)
        waitpid(-1, &status, 0);
    return failed || status;
}
"""

# While one thread loads it, others look functions up all the time.
THREADS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int goes_on = 1;

static void *look(void *unused) {
    while (goes_on) {
        if (!dlsym(RTLD_DEFAULT, "strlen") || dlsym(RTLD_DEFAULT, "there_is_no_such_function") || !dlerror())
            abort();
    }
    return unused;
}

int main(int count, char **words) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, look, NULL);
    char path[4096];
    int version, (*get)(int *);
    snprintf(path, sizeof path, "%s/libmxnet.so", words[count - 1]);
    void *mxnet = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    *(void **)&get = mxnet ? dlsym(mxnet, "MXGetVersion") : NULL;
    int failed = get ? get(&version) : 1;
    goes_on = 0;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return failed;
}
"""


@pytest.fixture(scope="module")
def package(mxnet_python: str) -> Path:
    """The folder of the installed package of MXNet."""
    return mxnet_folder(mxnet_python)


@pytest.fixture(scope="module", params=["lazy", "now"])
def loads(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, whose own imports are looked up when they are called, or before it begins."""
    folder = tmp_path_factory.mktemp("loads")
    (folder / "loads.c").write_text(LOADS)
    return build(folder / "loads", [folder / "loads.c"], f"-Wl,-z,{request.param}", "-Wl,-z,relro")


def recorded(cwd: Path, *words: str, options: tuple[str, ...] = NO_STACKS) -> Recorded:
    done = layerscope("run", "-o", "recording", *options, "--", *words, cwd=cwd)
    run = open_run(cwd / "recording.layerscope")
    return Recorded(run, done.returncode, done.stdout, done.stderr)


def test_a_program_that_loads_mxnet_is_recorded_from_its_first_operator_on(
    loads: Path, package: Path, native_agent: Path, tmp_path: Path
) -> None:
    bare = subprocess.run([str(loads), str(package), "25"], capture_output=True, text=True)
    recording = recorded(tmp_path, str(loads), str(package), "25")

    assert (recording.status, recording.stdout) == (0, bare.stdout), recording.stderr
    assert bare.returncode == 0
    rows = recording.rows(
        "SELECT layer, kind, name, count(*)::INT AS count FROM spans WHERE name NOT LIKE 'MXSymbol%' "
        "GROUP BY ALL ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("api", "call", "MXImperativeInvoke", 25),
        ("api", "call", "MXNDArrayWaitAll", 1),
        ("api", "submit", "_ones", 25),
        ("operators", "function", "_ones", 25),
    ]
    assert recording.rows("SELECT * FROM problems") == []
    assert recording.run.info.versions["mxnet"] in ("1.9.1", "2.0.0b1")


def test_it_is_found_while_other_threads_look_for_functions(
    package: Path, native_agent: Path, tmp_path: Path
) -> None:
    (tmp_path / "threads.c").write_text(THREADS)
    program = build(tmp_path / "threads", [tmp_path / "threads.c"], "-O1")
    recording = recorded(tmp_path, str(program), str(package))

    assert recording.status == 0, recording.stderr
    assert recording.rows("SELECT name, kind FROM spans") == [
        {"name": "MXGetVersion", "kind": "call"}
    ]


def test_a_forked_child_goes_on(
    loads: Path, package: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(tmp_path, str(loads), str(package), "5", "forks")

    assert recording.status == 0, recording.stderr
    rows = recording.rows(
        "SELECT process, count(*)::INT AS count FROM spans JOIN tracks USING (track) "
        "WHERE layer = 'operators' AND spans.name = '_ones' GROUP BY process ORDER BY count"
    )
    assert [row["count"] for row in rows] == [5, 7]  # of the child, whose process id may be lower


def test_what_it_loads_is_recorded_as_it_is_asked_for(
    loads: Path, package: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(
        tmp_path, str(loads), str(package), "5", options=("--without", "stacks,api")
    )

    rows = recording.rows("SELECT layer, name, count(*)::INT AS count FROM spans GROUP BY ALL")
    assert rows == [{"layer": "operators", "name": "_ones", "count": 5}]


def test_a_program_that_loads_nothing_is_left_as_it_is(
    loads: Path, native_agent: Path, tmp_path: Path
) -> None:
    recording = recorded(tmp_path, str(loads), "/nowhere", "1")

    assert recording.status == 7
    assert recording.value("SELECT count(*) FROM spans") == 0


def test_into_a_program_without_mxnet_nothing_is_loaded(native_agent: Path, tmp_path: Path) -> None:
    done = layerscope("run", *NO_STACKS, "--", "/bin/cat", "/proc/self/maps", cwd=tmp_path)

    assert done.returncode == 0
    assert "libc" in done.stdout
    assert "layerscope" not in done.stdout
