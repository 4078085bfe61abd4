"""Flame graphs of made-up recordings: which frames, which weights, and that they add up to what the
tables say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse import tables
from layerscope.analyse.stacks import graphs, sample_reader
from layerscope.analyse.stacks.frame_filter import layers_called
from layerscope.analyse.stacks.frames import FrameTable
from layerscope.analyse.stacks.graphs import Look
from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.model.errors import UsageError
from layerscope.model.layers import PHASES, WAITS
from layerscope.recording.reader import Reader
from tests.analyse.stacks.made import (
    MAIN,
    graph_of,
    many,
    opened,
    sampled,
    stacks_of,
)
from tests.recordings import Recording, S

CALL = (
    "python Module._call_impl /x/torch/nn/modules/module.py:1",
    "modules Net",
    "python Net.forward net.py:7",
)
CONV = (*MAIN, *CALL, "native THPVariable libpython.so", "operators aten::conv2d", "primitives convolution",
        "native execute libdnnl.so", "native jit_conv [jit]")  # fmt: skip


def test_native_frames_are_shown_where_nothing_else_comes_further_in() -> None:
    recording = sampled(
        (CONV, 5),
        ((*MAIN, "native gc libpython.so"), 3),
        ((*CONV[:6], "native parse libpython.so"), 2),
    )

    whole = "<module> (train.py) > main (train.py) > "
    assert stacks_of(graph_of(recording)) == {
        f"{whole}Net > Net.forward (net.py) > aten::conv2d > convolution > execute (libdnnl.so) > jit_conv ([jit])": 5,
        f"{whole}gc (libpython.so)": 3,
        f"{whole}Net > Net.forward (net.py) > THPVariable (libpython.so) > parse (libpython.so)": 2,
    }


def test_files_of_one_name_are_told_apart_by_the_shortest_end_of_their_paths() -> None:
    recording = sampled(
        (("python main /job/train.py:1", "python step /job/model/utils.py:2"), 5),
        (("python main /job/train.py:1", "python step /job/data/utils.py:2"), 3),
        (("python main /job/train.py:1", "python step /lib/data/utils.py:2"), 2),
    )

    assert stacks_of(graph_of(recording)) == {
        "main (train.py) > step (model/utils.py)": 5,
        "main (train.py) > step (job/data/utils.py)": 3,
        "main (train.py) > step (lib/data/utils.py)": 2,
    }


def test_the_import_system_is_left_out_or_one_frame() -> None:
    find = "python _find_and_load <frozen importlib._bootstrap>:1176"
    recording = sampled(
        (("python <module> a.py:1", find, "python <module> b.py:2"), 5), ((MAIN[0], find), 2)
    )

    assert stacks_of(graph_of(recording)) == {
        "<module> (a.py) > <module> (b.py)": 5,
        "<module> (train.py) > import": 2,
    }
    assert len(stacks_of(graph_of(recording, Look(layers=layers_called("python"))))) == 2


def test_layers_that_are_named_are_shown_whole_and_the_others_fold_into_the_frame_around_them() -> (
    None
):
    recording = sampled((CONV, 5), (("native clone libc.so", "native worker libgomp.so"), 7))

    look = Look(layers=layers_called("modules,operators"))
    assert stacks_of(graph_of(recording, look)) == {
        "Net > aten::conv2d": 5,
        "no frame of these layers": 7,
    }
    look = Look(layers=layers_called("all"))
    labels = [
        "<module> (train.py)", "main (train.py)", "Module._call_impl (module.py)", "Net", "Net.forward (net.py)",
        "THPVariable (libpython.so)", "aten::conv2d", "convolution", "execute (libdnnl.so)", "jit_conv ([jit])",
    ]  # fmt: skip
    assert stacks_of(graph_of(recording, look)) == {
        " > ".join(labels): 5, "clone (libc.so) > worker (libgomp.so)": 7,
    }  # fmt: skip


def test_lines_of_a_function_are_one_frame_unless_they_are_asked_for() -> None:
    recording = sampled(
        (("python f a.py:1",), 3), (("python f a.py:2",), 1), (("python f b.py:1",), 1)
    )

    graph = graph_of(recording)
    assert stacks_of(graph) == {"f (a.py)": 4, "f (b.py)": 1}
    assert graph.lines[graph.frames.index(next(f for f in graph.frames if f.label == "f (a.py)"))] == [
        (1, 0.75), (2, 0.25),
    ]  # fmt: skip
    assert stacks_of(graph_of(recording, Look(by_line=True))) == {
        "f (a.py:1)": 3,
        "f (a.py:2)": 1,
        "f (b.py:1)": 1,
    }


def test_a_wait_is_a_frame_that_says_for_what() -> None:
    recording = sampled((MAIN, 4))
    stack = recording.add_stack(*MAIN)
    recording.add_sample(stack, 10, kind="offcpu", state="gil")
    recording.add_sample(None, 20, kind="offcpu", state="other")
    recording.add_sample(None, 30)
    recording.add_sample(stack, 40, kind="offcpu", state="pool", idle=True)
    waits = {
        "<module> (train.py) > main (train.py) > waits for the GIL": 10,
        "stack not known > waits": 20,
    }

    graph = graph_of(recording, Look("offcpu"))
    assert stacks_of(graph) == waits
    assert graph.notes == (
        "40 ns that threads of pools waited without work are left out; --idle shows them.",
    )
    idle = graph_of(recording, Look("offcpu", Choice(idle=True)))
    assert stacks_of(idle) == waits | {
        "<module> (train.py) > main (train.py) > waits for work (idle)": 40
    }
    assert idle.notes == ()
    cpu = {"<module> (train.py) > main (train.py)": 4, "stack not known": 30}
    assert stacks_of(graph_of(recording)) == cpu
    assert stacks_of(graph_of(recording, Look("wall"))) == cpu | waits


def test_every_wait_has_words() -> None:
    recording = Recording()
    for state in WAITS:
        recording.add_sample(None, 1, kind="offcpu", state=state)

    assert len(stacks_of(graph_of(recording, Look("offcpu")))) == len(WAITS)


def test_page_faults_are_counted() -> None:
    recording = sampled((MAIN, 4))
    recording.add_sample(recording.add_stack(*MAIN), 0, kind="fault", count=17)

    graph = graph_of(recording, Look("pagefaults"))
    assert stacks_of(graph) == {"<module> (train.py) > main (train.py)": 17}
    assert (graph.unit, graph.whole) == ("count", 17)


# --- choices ---------------------------------------------------------------------------------


CHOICES: list[tuple[Choice, Callable[[int], bool]]] = [
    (Choice(thread="worker"), lambda n: n % 2 == 1),
    (Choice(thread="102"), lambda n: n % 2 == 1),
    (Choice(thread="python 100"), lambda n: n % 2 == 0),
    (Choice(steps=range(1, 3)), lambda n: n % 5 != 0 and 4 <= n < 12),
    (Choice(module="Net.conv1"), lambda n: n % 3 == 1),
    (Choice(module="Net"), lambda n: True),
    (Choice(phase="backward"), lambda n: n % 5 == 2),
    (Choice(seconds=(0.5, 1.0)), lambda n: 5 <= n < 10),
    (Choice(seconds=(2.0, float("inf"))), lambda n: n >= 20),
    (Choice(thread="worker", seconds=(0.0, 1.0), module="Net.conv0"), lambda n: n in (3, 9)),
]


@pytest.mark.parametrize(
    ("choice", "expected"), CHOICES, ids=[repr(choice)[7:-1] for choice, _ in CHOICES]
)
def test_a_choice_leaves_what_it_says(choice: Choice, expected: Callable[[int], bool]) -> None:
    with opened(many(), start_ns=0) as reader:
        graph = graphs.build(reader, Look(choice=choice))

    assert graph.whole == sum(1 << number for number in range(24) if expected(number))


@pytest.mark.parametrize(
    ("seconds", "slept_ns", "idle_ns"),
    [
        ((1.5, 2.5), S, 0),
        ((0.0, float("inf")), 3 * S, S),
        ((0.25, 0.75), 0, S // 2),
        ((3.5, 5.0), S // 2, 0),
        ((4.0, 5.0), 0, 0),
    ],
)
def test_a_wait_counts_with_its_part_of_the_time(
    seconds: tuple[float, float], slept_ns: int, idle_ns: int
) -> None:
    recording = Recording()
    recording.add_sample(None, 7 * S, at_ns=0)  # of CPU time: its moment counts
    recording.add_sample(None, 3 * S, at_ns=S, kind="offcpu", state="sleep")
    recording.add_sample(None, S, at_ns=0, kind="offcpu", state="pool", idle=True)
    # Of no length: it is where it begins.
    recording.add_sample(None, 0, at_ns=4 * S, kind="offcpu", state="lock")
    choice = Choice(seconds=seconds)
    with opened(recording, start_ns=0) as reader:
        frames = FrameTable()
        stacks = sample_reader.read_stacks(reader, frames)
        waits, both = (
            sample_reader.read_samples(reader, stacks, frames, kind, choice)
            for kind in ("offcpu", "wall")
        )

    ends_at = seconds[1]
    numbers = (slept_ns > 0) + (seconds[0] <= 4 < ends_at)
    assert waits.weight.sum() == slept_ns
    assert waits.is_counted.sum() == numbers
    assert waits.idle_weight == both.idle_weight == idle_ns
    assert both.weight.sum() == slept_ns + 7 * S * (seconds[0] == 0)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (
            Choice(thread="nobody"),
            "there is no thread 'nobody'. The threads are python 100, worker 102",
        ),
        (
            Choice(module="Net.con"),
            "there is no module 'Net.con'. The modules are Net, Net.conv0, Net.conv1, Net.conv2",
        ),
        (Choice(phase="lunch"), f"there is no phase 'lunch'. The phases are {', '.join(PHASES)}"),
        (
            Choice(steps=range(900, 901)),
            "nothing of kind cpu is left to show. Leave out some of --thread, --step, ",
        ),
    ],
)
def test_what_there_is_not_is_a_sentence_that_lists_what_there_is(
    choice: Choice, sentence: str
) -> None:
    with pytest.raises(UsageError) as error:
        graph_of(many(), Look(choice=choice))
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("kind", ["cpu", "offcpu", "wall", "pagefaults"])
def test_without_samples_there_is_a_sentence_with_the_remedy(kind: str) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, 5)
    with pytest.raises(
        UsageError, match=r"has no samples: no stacks were recorded\. They are recorded without"
    ):
        graph_of(recording, Look(kind))
    recording.add_problem("stacks", "perf events are not allowed here", "allow them", lost="stacks")
    with pytest.raises(
        UsageError, match=r"has no samples: perf events are not allowed here\. Allow them"
    ):
        graph_of(recording, Look(kind))


def test_an_unknown_layer_is_a_sentence() -> None:
    with pytest.raises(
        UsageError,
        match=r"there is no layer of frames 'cobol'\. They are python, modules, .* and all",
    ):
        layers_called("python,cobol")


# --- spans -----------------------------------------------------------------------------------


def spanned() -> Recording:
    """A module of 1000 with conv2d (600, of which mkldnn 500, of which a primitive 300) and relu
    (200); another add.
    """
    recording = Recording()
    recording.rows["modules"] = [{"module": 0, "path": "Net", "class": "Net"}]
    net = recording.add_span("Net", 0, 1000, layer="modules", kind="module", module=0)
    conv = recording.add_span("aten::conv2d", 0, 600, net, module=0)
    inner = recording.add_span("aten::mkldnn", 50, 500, conv, module=0)
    recording.add_primitive("convolution", 100, 300, inner, module=0)
    recording.add_span("aten::relu", 700, 200, net, module=0, weight=3)
    worker = recording.add_thread(recording.process, 102, "worker")
    recording.add_primitive("convolution", 100, 290, kind="share", track=worker)
    recording.add_span("aten::add", 0, 50, track=worker)
    # Shorter than the primitive in it, as clocks may say: it keeps its time.
    odd = recording.add_span("aten::odd", 2000, 10)
    recording.add_primitive("reorder", 2000, 20, odd)
    return recording


def total_of(reader: Reader, table: str) -> int:
    return sum(tables.build(reader, table).data["self_ns"].to_pylist())


def test_operators_hold_their_primitives_and_add_up_to_their_self_time() -> None:
    with opened(spanned()) as reader:
        graph = graphs.build(reader, Look("operators"))
        assert graph.whole == total_of(reader, "operators") == 100 + 500 + 3 * 200 + 50 + 10
    assert stacks_of(graph) == {
        "Net > aten::conv2d": 100, "Net > aten::conv2d > aten::mkldnn": 200,
        "Net > aten::conv2d > aten::mkldnn > convolution": 300, "Net > aten::relu": 600, "aten::add": 50,
        "aten::odd": 10,
    }  # fmt: skip
    assert graph.notes[0].startswith("The run was thinned: one kept call stands for up to 3 calls")


def test_primitives_lie_in_what_asked_for_them() -> None:
    with opened(spanned()) as reader:
        graph = graphs.build(reader, Look("primitives"))
    assert stacks_of(graph) == {
        "Net > aten::conv2d > aten::mkldnn > convolution": 300, "aten::odd > reorder": 20,
    }  # fmt: skip


def test_choices_of_spans() -> None:
    def whole(**choice: Any) -> int:
        return graph_of(spanned(), Look("operators", Choice(**choice))).whole

    assert whole(thread="worker") == 50
    assert whole(module="Net") == 1200
    assert whole(seconds=(2e-6, 1.0)) == 10
    with pytest.raises(UsageError, match=r"no module 'Nets'. The modules are Net"):
        whole(module="Nets")


@pytest.mark.slow
@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 40), st.integers(1, 3)),
        max_size=30,
    )
)
def test_trees_of_spans_add_up_to_the_tables(drawn_spans: list[tuple[int, int, int, int]]) -> None:
    recording = Recording()
    recording.add_span("outer", 0, 10_000)
    for layer, parent, dur_ns, weight in drawn_spans:
        if layer == 2:
            operators = [s["span"] for s in recording.rows["spans"] if s["layer"] == "operators"]
            recording.add_primitive(
                f"p{dur_ns % 3}", 0, dur_ns, operators[parent % len(operators)], weight=weight
            )
        else:
            spans = [s["span"] for s in recording.rows["spans"] if s["layer"] == "operators"]
            recording.add_span(
                f"op{dur_ns % 3}", 0, dur_ns, spans[parent % len(spans)], weight=weight
            )
    for row in recording.rows["spans"]:
        row["self_ns"] = max(row["self_ns"], 0)

    of_primitives = sum(
        row["self_ns"] * row["weight"]
        for row in recording.rows["spans"]
        if row["layer"] == "primitives"
    )
    with opened(recording) as reader:
        assert graphs.build(reader, Look("operators")).whole == total_of(reader, "operators")
        if of_primitives:
            assert graphs.build(reader, Look("primitives")).whole == of_primitives


# --- inverted and compared -------------------------------------------------------------------
