"""GPUs: from the files of made up machines, and from a management library that the test
compiles.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope.host import gpu
from layerscope.host.gpu import Gpu, Gpus
from tests.host import machines

SOURCE = Path(__file__).with_name("nvml.c")
Library = Callable[..., str]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Compiles it with these definitions; its path."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("there is no C compiler")

    def make(*definitions: str) -> str:
        path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
        options = [
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
            *(f"-D{word}" for word in definitions),
        ]
        subprocess.run([compiler, *options, "-o", str(path), str(SOURCE)], check=True, timeout=60)
        return str(path)

    return make


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return machines.unpack("a100-node", tmp_path)[0]


def test_without_a_gpu_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)

    assert gpu.facts(tmp_path) == Gpus()
    assert gpu.facts(tmp_path, "libnvidia-ml.so.1") == Gpus()


def test_files_tell_which_devices_there_are_and_how_they_are_linked(node: Path) -> None:
    found = gpu.facts(node)

    assert found == Gpus(
        devices=(
            Gpu(0, "NVIDIA A100-SXM4-40GB", "0000:07:00.0", node=0, link_width=16, link_width_most=16,
                link_generation=4, link_generation_most=4),
            Gpu(1, "NVIDIA A100-SXM4-40GB", "0000:c7:00.0", node=1, link_width=8, link_width_most=16,
                link_generation=4, link_generation_most=4),
        ),
        driver="535.161.08", counters_need_root=True, peer_memory=True,
    )  # fmt: skip


def test_a_file_of_the_driver_tells_who_a_device_is_to_those_who_may_know(node: Path) -> None:
    folder = node / "proc/driver/nvidia/gpus"
    hidden = "GPU-????????-????-????-????-????????????"
    for bus, uuid in (("07", "GPU-5a1c92d0-0000-1111-2222-333344445555"), ("c7", hidden)):
        with (folder / f"0000:{bus}:00.0/information").open("a") as file:
            file.write(f"GPU UUID: \t {uuid}\n")

    assert [one.uuid for one in gpu.facts(node).devices] == [
        "GPU-5a1c92d0-0000-1111-2222-333344445555",
        "",
    ]


def test_the_version_of_an_open_kernel_module(node: Path) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder@U16)\n"
    (node / "proc/driver/nvidia/version").write_text(text)

    assert gpu.facts(node).driver == "550.54.15"


def test_a_gpu_without_a_driver_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    root = machines.unpack("gpu-without-driver", tmp_path)[0]
    found = gpu.facts(root)

    assert [(one.name, one.bus, one.node, one.link_generation) for one in found.devices] == [
        ("NVIDIA device 0x2204", "0000:01:00.0", None, 1)  # and not its sound
    ]
    assert found.problem.startswith(
        "an NVIDIA GPU is there, but the driver is nouveau, which runs no CUDA; install"
    )
    (root / "sys/bus/pci/devices/0000:01:00.0/driver").unlink()
    assert "no driver for it is loaded; install" in gpu.facts(root).problem
    (root / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to("../../drivers/vfio-pci")
    (root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    assert "reserved for virtual machines" in gpu.facts(root).problem


def test_the_library_tells_more_and_goes_before_files(node: Path, library: Library) -> None:
    found = gpu.facts(node, library())

    assert (found.driver, found.cuda, found.problem) == ("535.161.08", "12.2", "")
    assert found.devices == (
        Gpu(0, "NVIDIA A100-SXM4-40GB", "0000:07:00.0", 42949672960, 0, True, True, False, 1215, 1410, ("power cap",),
            16, 16, 4, 4, "GPU-5a1c"),
        Gpu(1, "NVIDIA T4", "0000:c7:00.0", 16106127360, 1, False, True, None, 300, 1590, ("idle",), 8, 16, 1, 4,
            "GPU-5b2d"),
    )  # fmt: skip
    assert found.counters_need_root
    assert found.peer_memory


def test_an_older_driver_has_older_names_and_lacks_some(node: Path, library: Library) -> None:
    found = gpu.facts(node, library("OLD")).devices

    assert [one.slowed_by for one in found] == [
        ("power cap", "heat (hardware)"),
        ("idle", "heat (hardware)"),
    ]
    assert [one.mig for one in found] == [None, None]


def test_in_a_container_without_files_of_the_bus_the_library_is_all(
    tmp_path: Path, library: Library
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    found = gpu.facts(tmp_path, library())

    assert [(one.index, one.bus, one.node) for one in found.devices] == [
        (0, "0000:07:00.0", None), (1, "0000:c7:00.0", None)
    ]  # fmt: skip
    assert (found.counters_need_root, found.peer_memory) == (None, None)


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        ("FAILS", "the driver does not answer: Driver Not Loaded; try nvidia-smi"),
        ("HANGS", "the driver does not answer: nothing came within 0 s; try nvidia-smi"),
        ("CRASHES", "the driver does not answer: asking ended with status -6; try nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_answer_is_a_problem(
    definition: str, problem: str, node: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    if definition == "HANGS":
        monkeypatch.setattr(gpu, "_ANSWER_S", 0.3)
    found = gpu.facts(node, library(definition))

    assert found.problem == problem
    assert len(found.devices) == 2


def test_without_the_library_a_container_is_told_how_to_get_it(node: Path) -> None:
    found = gpu.facts(node, "libnvidia-ml-not-here.so.1")

    assert "cannot open shared object file" in found.problem
    assert found.problem.endswith("; in a container, docker run --gpus all brings its library")


def test_a_machine_under_windows_may_have_a_gpu_of_another_vendor(
    tmp_path: Path, library: Library
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()

    assert gpu.facts(tmp_path, "libnvidia-ml-not-here.so.1") == Gpus()
    assert len(gpu.facts(tmp_path, library()).devices) == 2
