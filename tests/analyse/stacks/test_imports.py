"""Imports of libraries as one frame each."""

from __future__ import annotations

import pytest

from layerscope.analyse.stacks.frame_filter import layers_called
from layerscope.analyse.stacks.graphs import Look
from layerscope.analyse.stacks.imports import NOTE, module_of
from tests.analyse.stacks.made import MAIN, graph_of, sampled, stacks_of
from tests.recordings import Recording

FIND = "python _find_and_load <frozen importlib._bootstrap>:1176"
CALL = "python _call_with_frames_removed <frozen importlib._bootstrap>:241"
READ = "python FileLoader.get_data <frozen importlib._bootstrap_external>:1130"
SITE = "/env/lib/python3.11/site-packages"
TORCH = f"python <module> {SITE}/torch/__init__.py:9"
LOADER = f"python exec_module {SITE}/six.py:3"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (f"{SITE}/torch/__init__.py", "torch"),
        (f"{SITE}/torch/_dynamo/variables/__init__.py", "torch._dynamo"),
        (f"{SITE}/six.py", "six"),
        ("/usr/lib/python3/dist-packages/numpy/core/numeric.py", "numpy.core"),
        ("/usr/lib/python3.11/json/decoder.py", "json.decoder"),
        ("<frozen os>", "os"),
        ("<frozen importlib.util>", "importlib.util"),
        ("/job/net.py", "net"),
        ("/job/models/__init__.py", "models"),
    ],
)
def test_a_module_is_called_as_it_is_imported(file: str, name: str) -> None:
    assert module_of(file) == name


def imports() -> Recording:
    """A program that imports torch, which imports six; and a module of its own, which imports
    torch again and works.
    """
    body = (MAIN[0], FIND, CALL, TORCH)
    own = (MAIN[0], FIND, LOADER, "python <module> /job/net.py:2")
    recording = sampled(
        (body, 1),
        ((*body, FIND, CALL, f"python <module> {SITE}/six.py:4", "native parse libc.so"), 10),
        ((MAIN[0], FIND, READ, "native read libc.so", "kernel [kernel]"), 100),
        ((MAIN[0], "native import_find_and_load libpython.so", FIND, CALL, TORCH), 1000),
        (own, 10_000),
        ((*own, "python build /job/net.py:5"), 20_000),
        ((*own, FIND, CALL, TORCH, "python f x.py:1"), 100_000),
        ((*MAIN, "python find_spec <frozen importlib.util>:1"), 1_000_000),
    )
    recording.add_sample(recording.add_stack(*body), 7, kind="offcpu", state="file")
    return recording


def test_an_import_of_a_library_is_one_frame_and_modules_of_the_program_stay() -> None:
    graph = graph_of(imports())

    program = "<module> (train.py)"
    assert stacks_of(graph) == {
        f"{program} > import torch": 1011,
        f"{program} > import": 100,
        f"{program} > <module> (net.py)": 10_000,
        f"{program} > <module> (net.py) > build (net.py)": 20_000,
        f"{program} > <module> (net.py) > import torch": 100_000,
        f"{program} > main (train.py)": 1_000_000,
    }
    assert graph.notes == (NOTE,)
    assert graph_of(sampled((MAIN, 1))).notes == ()


def test_a_wait_within_an_import_says_for_what() -> None:
    assert stacks_of(graph_of(imports(), Look("offcpu"))) == {
        "<module> (train.py) > import torch > waits for a file": 7
    }


@pytest.mark.parametrize(
    "look",
    [
        Look(has_imports=True),
        Look(layers=layers_called("all")),
        Look(layers=layers_called("native,kernel")),
    ],
    ids=["imports", "all", "native"],
)
def test_what_an_import_ran_is_shown_where_it_is_asked_for(look: Look) -> None:
    graph = graph_of(imports(), look)

    assert graph.notes == ()
    assert not any(stack.endswith("import torch") for stack in stacks_of(graph))
    assert graph.whole == graph_of(imports()).whole
    assert any("parse (libc.so)" in stack for stack in stacks_of(graph))


def test_frames_of_python_alone_have_imports_as_one_too() -> None:
    found = stacks_of(graph_of(imports(), Look(layers=layers_called("python"))))

    assert found["<module> (train.py) > import torch"] == 1011
    assert sum(found.values()) == graph_of(imports()).whole
