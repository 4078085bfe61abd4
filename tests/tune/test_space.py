"""What is tried on which machine, and what --vary adds."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from layerscope.host import elf
from layerscope.host.machine import Machine
from layerscope.host.numa import Node
from layerscope.model.errors import UsageError
from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext
from layerscope.tune.space import MOST_CANDIDATES, SearchSpace, Varied, parse_all, parse_vary, space

MACHINES = Path(__file__).parents[1] / "golden" / "machines"
NAMES = sorted(path.stem for path in MACHINES.glob("*.json"))
PROGRAM = (sys.executable, "train.py", "--batch-size", "16")
TORCH = ("/x/torch/lib/libgomp.so.1", "/x/torch/lib/libtorch_cpu.so", "/usr/lib/libc.so.6")


def machine(name: str) -> Machine:
    return msgspec.json.decode((MACHINES / f"{name}.json").read_bytes(), type=Machine)


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder with taskset and numactl that nobody will run."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("taskset", "numactl"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(stat.S_IRWXU)
    return folder


def place(name: str, **more: Any) -> TuneContext:
    made = {"environment": {"PATH": "/nowhere"}, "program": PROGRAM, "libraries": TORCH, **more}
    return TuneContext(machine(name), **made)


def stage_names(found: SearchSpace) -> list[list[str]]:
    return [[setting.name for setting in stage.settings] for stage in found.stages]


@pytest.fixture
def new_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs the tests."""
    monkeypatch.setattr(libraries, "glibc_version", lambda: (2, 36))
    monkeypatch.setattr(libraries, "uses_glibc", lambda place: True)
    monkeypatch.setattr(libraries, "find", lambda place, names, more=(): None)
    monkeypatch.setattr(libraries, "no_preload", lambda place: "")


@pytest.mark.usefixtures("new_glibc")
def test_two_cores_have_few_enough_candidates_for_ten_minutes() -> None:
    found = space(place("amd-epyc-vm"))
    assert stage_names(found) == [
        ["wait=passive", "wait=active", "threads=1"],
        ["bind=close"],
        ["malloc=keep", "thp=malloc"],
    ]
    # Three to six rounds of each stage with the defaults, and the one that leads, and ten pairs of
    # 5 s.
    rounds = 6 * sum(len(stage.settings) + 2 for stage in found.stages) + 20
    assert rounds * 5 <= 600


PLACED, MEMORY = ["bind=close"], ["malloc=keep", "thp=malloc"]


@pytest.mark.usefixtures("new_glibc")
@pytest.mark.parametrize(
    ("name", "threads", "expected"),
    [
        ("one-cpu", None, [MEMORY]),
        ("half-a-core", "4", [["wait=passive", "wait=active", "threads=1"], PLACED, MEMORY]),
        # Two hardware threads of one core: whether the program has one thread or two depends on
        # what it is built with.
        (
            "cpuset", None,
            [["wait=passive", "wait=active", "threads=1", "threads=2", "threads=2 wait=passive",
              "threads=2 wait=active"], PLACED, MEMORY],
        ),
        (
            "container-v1", "64",
            [["wait=passive", "wait=active", "threads=2", "threads=1", "threads=2 wait=passive",
              "threads=2 wait=active"], PLACED, MEMORY],
        ),
        # One thread alone waits for nobody.
        ("amd-epyc-vm", "1", [["threads=2", "threads=2 wait=passive", "threads=2 wait=active"], PLACED, MEMORY]),
    ],
)  # fmt: skip
def test_each_machine_has_its_own(
    name: str, threads: str | None, expected: list[list[str]]
) -> None:
    """`threads`: as the user has set them."""
    told = {"OMP_NUM_THREADS": threads} if threads else {}
    assert stage_names(space(place(name, environment={"PATH": "/nowhere", **told}))) == expected


@pytest.mark.parametrize("presets", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_machine_gets_settings_that_differ(
    name: str, presets: bool, commands: Path
) -> None:
    here = place(name, presets=presets, environment={"PATH": str(commands)})
    settings = [setting for stage in space(here).stages for setting in stage.settings]
    assert settings
    assert len({setting.name for setting in settings}) == len(settings)
    started = [
        (setting.environment(here.environment), setting.command(PROGRAM)) for setting in settings
    ]
    assert all(one not in started[:at] for at, one in enumerate(started))
    assert all(setting.because for setting in settings)
    allowed = set(here.machine.cpu.allowed or here.machine.cpu.online)
    for setting in settings:
        assert 1 <= int(setting.variables.get("OMP_NUM_THREADS", 1)) <= max(1, len(allowed))
        bound = [word for word in setting.prefix if word[0].isdigit()]
        assert {cpu for words in bound for cpu in numbers(words)} <= allowed


def numbers(words: str) -> set[int]:
    from layerscope.host import files

    return set(files.listed(words))


def test_a_single_thread_does_not_wait() -> None:
    names = stage_names(space(place("graviton3")))[0]
    assert "threads=4 wait=passive" in names
    assert not [name for name in names if "threads=1 " in name]


def test_the_program_that_has_no_openmp_gets_no_variables_of_it(commands: Path) -> None:
    sleeps = place(
        "graviton3",
        libraries=("/usr/lib/libc.so.6", "/usr/bin/sleep"),
        environment={"PATH": str(commands)},
    )
    variables = {
        name for stage in space(sleeps).stages for one in stage.settings for name in one.variables
    }
    assert not {name for name in variables if name.startswith(("OMP", "KMP"))}


def test_variables_of_libraries_are_set_too_where_the_user_has_set_them() -> None:
    environment = {"MKL_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "8"}
    first = space(place("graviton3", environment=environment)).stages[0].settings
    one = next(setting for setting in first if setting.name == "threads=1")
    assert one.variables == {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    assert next(
        iter(space(place("graviton3")).stages[0].settings), Setting("")
    ).variables.keys() <= {"OMP_WAIT_POLICY"}


def test_tensorflow_has_its_own_variables() -> None:
    found = space(place("graviton3", libraries=("/x/libtensorflow_framework.so.2",)))
    variables = {name for stage in found.stages for one in stage.settings for name in one.variables}
    assert {"TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"} <= variables
    assert "OMP_NUM_THREADS" not in variables


def test_what_the_user_has_set_is_the_default_and_not_tried_again() -> None:
    environment = {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "4,1", "OMP_PROC_BIND": "close"}
    names = [
        name
        for stage in stage_names(space(place("graviton3", environment=environment)))
        for name in stage
    ]
    assert not [
        name for name in names if "wait=passive" in name or "threads=4" in name or "bind" in name
    ]
    assert "wait=active" in names


def test_intels_runtime_has_a_block_time_and_no_wait_policy() -> None:
    found = space(place("graviton3", libraries=("/x/libiomp5.so",)))
    names = [setting.name for setting in found.stages[0].settings if "threads" not in setting.name]
    assert names == ["blocktime=0", "blocktime=1"]


def test_memory_nodes_are_bound_by_numactl_or_said(commands: Path) -> None:
    here = place("sapphire-rapids", environment={"PATH": str(commands)})
    settings = {setting.name: setting for setting in space(here).stages[1].settings}
    assert settings["node=0"].prefix == ("numactl", "--cpunodebind=0", "--preferred=0")
    assert settings["memory=interleaved"].prefix == ("numactl", "--interleave=all")
    (commands / "numactl").unlink()
    found = space(here)
    settings = {setting.name: setting for setting in found.stages[1].settings}
    assert settings["node=1"].prefix[:2] == ("taskset", "-c")
    assert "memory=interleaved" not in settings
    assert any("2 memory nodes and no numactl" in note for note in found.notes)
    # CPUs of other containers, and nodes without CPUs or memory, are not ours.
    one = msgspec.structs.replace if isinstance(here.machine.numa[0], msgspec.Struct) else replace
    nodes = (here.machine.numa[0], one(here.machine.numa[1], cpus=()), Node(2, (1,), 0, 0, ()))
    assert [node.number for node in _own(here, nodes)] == [0]


def _own(here: TuneContext, nodes: tuple[Node, ...]) -> list[Node]:
    from layerscope.tune.choices.numa import own_nodes

    change = msgspec.structs.replace if isinstance(here.machine, msgspec.Struct) else replace
    return own_nodes(replace(here, machine=change(here.machine, numa=nodes)))


def test_fast_cores_alone_are_tried_where_cores_differ(commands: Path) -> None:
    here = place("hybrid-client", environment={"PATH": str(commands)})
    found = next(
        setting for setting in space(here).stages[1].settings if setting.name == "cpus=fast"
    )
    assert numbers(found.prefix[2]) == set(here.machine.cpu.faster)


@pytest.mark.parametrize(
    ("allowed", "cores"), [(range(8), (0, 2, 4, 6)), ((1, 2, 3, 5), (1, 2, 5))]
)
def test_hardware_threads_of_one_core_are_told_apart_whatever_their_numbers(
    commands: Path, allowed, cores
) -> None:
    """Virtual machines number the two threads of a core one after the other, servers all second
    ones at the end.
    """
    here = place("graviton3", environment={"PATH": str(commands)})
    change = msgspec.structs.replace
    cpu = change(
        here.machine.cpu,
        online=tuple(range(8)),
        allowed=tuple(allowed),
        cores=4,
        allowed_cores=cores,
    )
    here = replace(
        here,
        machine=change(
            here.machine, cpu=cpu, numa=(Node(0, tuple(range(8)), 1 << 30, 1 << 29, (10,)),)
        ),
    )

    found = next(one for one in space(here).stages[1].settings if one.name == "cpus=cores")
    (stage,) = space(replace(here, presets=True)).stages
    whole = next(one for one in stage.settings if one.name == "preset=one-socket")

    assert numbers(found.prefix[2]) == set(cores)
    assert whole.variables == {"OMP_NUM_THREADS": str(len(cores))}
    assert numbers(whole.prefix[1].partition("=")[2]) == set(cores)


def test_presets_are_those_of_the_article(commands: Path) -> None:
    here = place("skylake-server", environment={"PATH": str(commands)}, presets=True)
    (stage,) = space(here).stages
    assert [setting.name for setting in stage.settings] == [
        "preset=one-thread", "preset=half-socket", "preset=one-socket", "preset=all-cores",
    ]  # fmt: skip
    one, half, whole, all_cores = stage.settings
    first = here.machine.numa[0].cpus
    assert one.prefix == ("numactl", f"--physcpubind={first[0]}", "--membind=0")
    assert [setting.variables["OMP_NUM_THREADS"] for setting in stage.settings] == [
        "1",
        "14",
        "28",
        "56",
    ]
    assert numbers(half.prefix[1].partition("=")[2]) == set(first[:14])
    assert numbers(whole.prefix[1].partition("=")[2]) == set(first)
    assert all_cores.prefix == ()


def test_a_preset_has_the_memory_of_all_its_nodes_and_the_variable_that_would_win(
    commands: Path,
) -> None:
    environment = {"PATH": str(commands), "MKL_NUM_THREADS": "16"}
    here = place("skylake-server", environment=environment, presets=True)
    change = msgspec.structs.replace
    first, second = (change(node, cpus=node.cpus[:7]) for node in here.machine.numa[:2])
    here = replace(here, machine=change(here.machine, numa=(first, second)))
    half = next(
        setting
        for setting in space(here).stages[0].settings
        if setting.name == "preset=half-socket"
    )
    assert half.prefix[2] == "--membind=0,1"
    assert half.variables == {"OMP_NUM_THREADS": "14", "MKL_NUM_THREADS": "14"}


def copied_library(folder: Path, name: str) -> Path:
    """A library of this machine under another name: only its header is looked at."""
    folder.mkdir(parents=True, exist_ok=True)
    found = next(path for path in (Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines()
                                   if ".so" in line) if path.exists())  # fmt: skip
    shutil.copy(found, folder / name)
    return folder / name


def test_allocators_and_runtimes_are_found_where_the_program_would_find_them(
    tmp_path: Path,
) -> None:
    allocator = copied_library(tmp_path / "one", "libtcmalloc_minimal.so.4")
    runtime = copied_library(tmp_path / "conda" / "lib", "libiomp5.so")
    (tmp_path / "one" / "libjemalloc.so.2").write_text("no library")
    environment = {
        "PATH": "",
        "LD_LIBRARY_PATH": str(tmp_path / "one"),
        "CONDA_PREFIX": str(tmp_path / "conda"),
    }
    here = place("graviton3", environment=environment)
    settings = {setting.name: setting for stage in space(here).stages for setting in stage.settings}
    assert settings["malloc=tcmalloc"].preload == (str(allocator),)
    assert settings["openmp=intel"].preload == (str(runtime),)
    assert settings["openmp=intel blocktime=0"].variables == {"KMP_BLOCKTIME": "0"}
    mine = settings.get("malloc=jemalloc")
    assert mine is None or "one" not in mine.preload[0]
    preloaded = place("graviton3", environment={**environment, "LD_PRELOAD": str(allocator)})
    names = {name for stage in stage_names(space(preloaded)) for name in stage}
    assert not names & {"malloc=tcmalloc", "malloc=keep", "thp=malloc"}


def test_a_library_of_another_architecture_is_not_taken(tmp_path: Path) -> None:
    found = copied_library(tmp_path, "libtcmalloc.so.4")
    with found.open("r+b") as file:
        file.seek(18)
        file.write(b"\x16\x00")  # s390x
    here = place("graviton3", environment={"PATH": "", "LD_LIBRARY_PATH": str(tmp_path)})
    taken = libraries.find(here, ("libtcmalloc.so.4",))
    assert taken is None or not taken.startswith(str(tmp_path))


def test_a_folder_whose_name_would_break_the_preload_is_not_taken(tmp_path: Path) -> None:
    copied_library(tmp_path / "a b", "libtcmalloc.so.4")
    here = place("graviton3", environment={"PATH": "", "LD_LIBRARY_PATH": str(tmp_path / "a b")})
    taken = libraries.find(here, ("libtcmalloc.so.4",))
    assert taken is None or " " not in taken


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"privilege": "setuid"}, "is setuid"), ({"sanitizer": "AddressSanitizer"}, "AddressSanitizer"),
        ({"dynamic": False}, "linked statically"), ({"kind": "other"}, "is not known"),
    ],
)  # fmt: skip
def test_nothing_is_preloaded_into_programs_that_cannot_bear_it(
    change: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = copied_library(tmp_path, "libtcmalloc.so.4")
    here = place("graviton3", environment={"PATH": "", "LD_LIBRARY_PATH": str(allocator.parent)})
    assert not libraries.no_preload(here)
    real = elf.find(sys.executable)
    assert real is not None
    monkeypatch.setattr(elf, "find", lambda command, search_path=None: replace(real, **change))
    found = space(here)
    assert any(said in note for note in found.notes)
    assert not [one for stage in found.stages for one in stage.settings if one.preload]


def test_a_sanitizer_that_is_mapped_counts_too() -> None:
    assert "sanitizer" in libraries.no_preload(
        place("graviton3", libraries=("/usr/lib/libasan.so.8",))
    )


def test_a_program_that_is_not_there_gets_no_preload() -> None:
    assert "is not known" in libraries.no_preload(place("graviton3", program=("no-such-program",)))


@pytest.mark.parametrize(
    ("version", "mmap", "has_thp"),
    [((2, 36), "1073741824", True), ((2, 31), "33554432", False), ((), None, False)],
)
def test_thresholds_and_huge_pages_go_by_the_version_of_the_c_library(
    version: tuple[int, ...], mmap: str | None, has_thp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "glibc_version", lambda: version)
    monkeypatch.setattr(libraries, "uses_glibc", lambda place: True)
    settings = {
        one.name: one for stage in space(place("graviton3")).stages for one in stage.settings
    }
    assert ("thp=malloc" in settings) == has_thp
    assert (settings["malloc=keep"].variables["MALLOC_MMAP_THRESHOLD_"] if mmap else None) == mmap
    assert ("malloc=keep" in settings) == bool(mmap)


@pytest.mark.usefixtures("new_glibc")
def test_tunables_of_the_user_are_kept_beside_ours() -> None:
    tunables = "glibc.malloc.tcache_count=0"
    here = place("graviton3", environment={"GLIBC_TUNABLES": tunables})
    found = next(one for one in space(here).stages[-1].settings if one.name == "thp=malloc")
    assert found.variables == {"GLIBC_TUNABLES": f"{tunables}:glibc.malloc.hugetlb=1"}


def test_values_to_vary_are_understood() -> None:
    assert parse_vary("--batch-size={8,16,32}") == Varied("--batch-size", ("8", "16", "32"))
    assert parse_vary("-w={0, 2}") == Varied("-w", ("0", "2"))
    assert parse_all(["--a={1,2}", "--b={x=1,y}"]) == (
        Varied("--a", ("1", "2")),
        Varied("--b", ("x=1", "y")),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch={1,2}", "does not begin with an option"), ("--batch", "it has no values"),
        ("--batch=8", "a shell takes them apart where there are no quotes"), ("--batch={}", "empty value"),
        ("--batch={8,,9}", "empty value"), ("--batch={8,8}", "the value 8 twice"), ("={1}", "does not begin"),
        ("", "does not begin"), ("--={1,2}", "does not begin"), ("--a b={1,2}", "does not begin"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_understood_are_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_vary(text)


def test_one_option_twice_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="--a twice: put all values into one pair of braces"):
        parse_all(["--a={1,2}", "--a={3}"])


@given(st.text(max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        found = parse_vary(text)
    except UsageError:
        return
    assert found.option.startswith("-")
    assert found.values


def test_varied_values_are_crossed_with_all_of_the_first_stage() -> None:
    found = space(place("amd-epyc-vm"), parse_all(["--batch-size={8,16,32}"]))
    names = stage_names(found)[0]
    # 16 is what the program has.
    assert names[:3] == ["wait=passive", "wait=active", "threads=1"]
    assert "--batch-size=16" not in names
    assert {
        "--batch-size=8",
        "--batch-size=32",
        "threads=1 --batch-size=8",
        "wait=passive --batch-size=32",
    } <= set(names)
    assert len(names) == 3 + 2 + 6
    changed = next(
        one for one in found.stages[0].settings if one.name == "threads=1 --batch-size=8"
    )
    assert changed.command(PROGRAM) == [sys.executable, "train.py", "--batch-size", "8"]
    assert changed.variables == {"OMP_NUM_THREADS": "1"}
    assert "--metric" in found.notes[-1]


def test_too_many_varied_values_are_one_sentence() -> None:
    many = ",".join(map(str, range(40)))
    with pytest.raises(UsageError, match=f"at most {MOST_CANDIDATES} can be told apart"):
        space(place("graviton3"), parse_all([f"--a={{{many}}}"]))
