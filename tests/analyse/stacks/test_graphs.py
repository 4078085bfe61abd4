"""Flame graphs of made-up recordings: which frames, which weights, and that they add up to what the tables say."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse import tables
from layerscope.analyse.stacks import flame_layout, graphs
from layerscope.analyse.stacks.frame_filter import layers_called
from layerscope.analyse.stacks.graphs import Look
from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.model.errors import UsageError
from layerscope.model.layers import PHASES, WAITS
from layerscope.recording.reader import Reader
from layerscope.recording.run import ProgramState
from tests.analyse.stacks.made import (
    MAIN,
    changes,
    compared,
    graph_of,
    many,
    opened,
    sampled,
    stacks_of,
    stepped,
)
from tests.recordings import MS, Recording, S

CALL = ("python Module._call_impl /x/torch/nn/modules/module.py:1", "modules Net", "python Net.forward net.py:7")
CONV = (*MAIN, *CALL, "native THPVariable libpython.so", "operators aten::conv2d", "primitives convolution",
        "native execute libdnnl.so", "native jit_conv [jit]")  # fmt: skip


def test_native_frames_are_shown_where_nothing_else_comes_further_in() -> None:
    recording = sampled(
        (CONV, 5), ((*MAIN, "native gc libpython.so"), 3), ((*CONV[:6], "native parse libpython.so"), 2)
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


def test_the_import_system_is_left_out_as_in_tracebacks() -> None:
    find = "python _find_and_load <frozen importlib._bootstrap>:1176"
    recording = sampled((("python <module> a.py:1", find, "python <module> b.py:2"), 5), ((MAIN[0], find), 2))

    assert stacks_of(graph_of(recording)) == {"<module> (a.py) > <module> (b.py)": 5, "<module> (train.py)": 2}
    assert len(stacks_of(graph_of(recording, Look(layers=layers_called("python"))))) == 2


def test_layers_that_are_named_are_shown_whole_and_the_others_fold_into_the_frame_around_them() -> None:
    recording = sampled((CONV, 5), (("native clone libc.so", "native worker libgomp.so"), 7))

    look = Look(layers=layers_called("modules,operators"))
    assert stacks_of(graph_of(recording, look)) == {"Net > aten::conv2d": 5, "no frame of these layers": 7}
    look = Look(layers=layers_called("all"))
    labels = [
        "<module> (train.py)", "main (train.py)", "Module._call_impl (module.py)", "Net", "Net.forward (net.py)",
        "THPVariable (libpython.so)", "aten::conv2d", "convolution", "execute (libdnnl.so)", "jit_conv ([jit])",
    ]  # fmt: skip
    assert stacks_of(graph_of(recording, look)) == {
        " > ".join(labels): 5, "clone (libc.so) > worker (libgomp.so)": 7,
    }  # fmt: skip


def test_lines_of_a_function_are_one_frame_unless_they_are_asked_for() -> None:
    recording = sampled((("python f a.py:1",), 3), (("python f a.py:2",), 1), (("python f b.py:1",), 1))

    graph = graph_of(recording)
    assert stacks_of(graph) == {"f (a.py)": 4, "f (b.py)": 1}
    assert graph.lines[graph.frames.index(next(f for f in graph.frames if f.label == "f (a.py)"))] == [
        (1, 0.75), (2, 0.25),
    ]  # fmt: skip
    assert stacks_of(graph_of(recording, Look(by_line=True))) == {"f (a.py:1)": 3, "f (a.py:2)": 1, "f (b.py:1)": 1}


def test_a_wait_is_a_frame_that_says_for_what() -> None:
    recording = sampled((MAIN, 4))
    stack = recording.add_stack(*MAIN)
    recording.add_sample(stack, 10, kind="offcpu", state="gil")
    recording.add_sample(None, 20, kind="offcpu", state="other")
    recording.add_sample(None, 30)
    recording.add_sample(stack, 40, kind="offcpu", state="pool", idle=True)
    waits = {"<module> (train.py) > main (train.py) > waits for the GIL": 10, "stack not known > waits": 20}

    graph = graph_of(recording, Look("offcpu"))
    assert stacks_of(graph) == waits
    assert graph.notes == ("40 ns that threads of pools waited without work are left out; --idle shows them.",)
    idle = graph_of(recording, Look("offcpu", Choice(idle=True)))
    assert stacks_of(idle) == waits | {"<module> (train.py) > main (train.py) > waits for work (idle)": 40}
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


@pytest.mark.parametrize(("choice", "expected"), CHOICES, ids=[repr(choice)[7:-1] for choice, _ in CHOICES])
def test_a_choice_leaves_what_it_says(choice: Choice, expected: Callable[[int], bool]) -> None:
    with opened(many(), start_ns=0) as reader:
        graph = graphs.build(reader, Look(choice=choice))

    assert graph.whole == sum(1 << number for number in range(24) if expected(number))


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        (Choice(thread="nobody"), "there is no thread 'nobody'. The threads are python 100, worker 102"),
        (
            Choice(module="Net.con"),
            "there is no module 'Net.con'. The modules are Net, Net.conv0, Net.conv1, Net.conv2",
        ),
        (Choice(phase="lunch"), f"there is no phase 'lunch'. The phases are {', '.join(PHASES)}"),
        (Choice(steps=range(900, 901)), "nothing of kind cpu is left to show. Leave out some of --thread, --step, "),
    ],
)
def test_what_there_is_not_is_a_sentence_that_lists_what_there_is(choice: Choice, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        graph_of(many(), Look(choice=choice))
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("kind", ["cpu", "offcpu", "wall", "pagefaults"])
def test_without_samples_there_is_a_sentence_with_the_remedy(kind: str) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, 5)
    with pytest.raises(UsageError, match=r"has no samples: no stacks were recorded\. They are recorded without"):
        graph_of(recording, Look(kind))
    recording.add_problem("stacks", "perf events are not allowed here", "allow them", lost="stacks")
    with pytest.raises(UsageError, match=r"has no samples: perf events are not allowed here\. Allow them"):
        graph_of(recording, Look(kind))


def test_an_unknown_layer_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"there is no layer of frames 'cobol'\. They are python, modules, .* and all"):
        layers_called("python,cobol")


# --- spans -----------------------------------------------------------------------------------


def spanned() -> Recording:
    """A module of 1000 with conv2d (600, of which mkldnn 500, of which a primitive 300) and relu (200); another add."""
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
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 40), st.integers(1, 3)), max_size=30))
def test_trees_of_spans_add_up_to_the_tables(drawn_spans: list[tuple[int, int, int, int]]) -> None:
    recording = Recording()
    recording.add_span("outer", 0, 10_000)
    for layer, parent, dur_ns, weight in drawn_spans:
        if layer == 2:
            operators = [s["span"] for s in recording.rows["spans"] if s["layer"] == "operators"]
            recording.add_primitive(f"p{dur_ns % 3}", 0, dur_ns, operators[parent % len(operators)], weight=weight)
        else:
            spans = [s["span"] for s in recording.rows["spans"] if s["layer"] == "operators"]
            recording.add_span(f"op{dur_ns % 3}", 0, dur_ns, spans[parent % len(spans)], weight=weight)
    for row in recording.rows["spans"]:
        row["self_ns"] = max(row["self_ns"], 0)

    of_primitives = sum(
        row["self_ns"] * row["weight"] for row in recording.rows["spans"] if row["layer"] == "primitives"
    )
    with opened(recording) as reader:
        assert graphs.build(reader, Look("operators")).whole == total_of(reader, "operators")
        if of_primitives:
            assert graphs.build(reader, Look("primitives")).whole == of_primitives


# --- inverted and compared -------------------------------------------------------------------


def test_inverted_stacks_have_the_innermost_frame_first() -> None:
    recording = sampled((("python f a.py:1", "python g a.py:2"), 3), (("python g a.py:2",), 4))

    graph = graph_of(recording, Look(is_inverted=True))
    assert stacks_of(graph) == {"g (a.py) > f (a.py)": 3, "g (a.py)": 4}
    heaviest = {graph.frames[one.frame].label: (one.own, one.total) for one in flame_layout.heaviest(graph)}
    assert heaviest == {"g (a.py)": (7, 7), "f (a.py)": (0, 3)}


def test_a_comparison_is_per_measured_step() -> None:
    after = stepped([("f", 1000, 0), ("f", 40, 1), ("f", 60, 2), ("new", 10, 1)], steps=3, warmup=1)
    before = stepped([("f", 30, step) for step in range(1, 5)] + [("old", 8, 1)], steps=5, warmup=1)

    graph = compared(after, before)

    assert graph.compared is not None
    assert (graph.compared.per, graph.compared.units, graph.compared.units_before) == ("step", 2, 4)
    assert graph.whole == 110
    found = changes(graph)
    assert (found["f (a.py)"], found["new (a.py)"]) == (100 / 2 - 120 / 4, 5)
    (gone,) = flame_layout.vanished(graph)
    assert [graph.frames[frame].label for frame in gone.path] == [
        "<module> (train.py)",
        "main (train.py)",
        "old (a.py)",
    ]
    assert (gone.weight, gone.per) == (2.0, "step")
    changed = {graph.frames[one.frame].label: one.change for one in flame_layout.heaviest(graph)}
    assert list(changed.items())[:3] == [("f (a.py)", 20.0), ("new (a.py)", 5.0), ("old (a.py)", -2.0)]


def test_without_steps_a_comparison_is_per_second() -> None:
    graph = compared(sampled((MAIN, 100)), sampled((MAIN, 300)))

    assert graph.compared is not None
    assert (graph.compared.per, graph.compared.units) == ("second of the run", 2.0)
    assert changes(graph)["main (train.py)"] == -100


def regular(seconds: int, step_ns: int = 0) -> Recording:
    """A program that does the same all the time: a sample of 10 ms every 10 ms, and, unless 0, steps of so many ns."""
    recording = Recording()
    stack = recording.add_stack("python f a.py:1")
    for at_ns in range(0, seconds * S, 10 * MS):
        recording.add_sample(stack, at_ns=at_ns, step=at_ns // step_ns if step_ns else None)
    for step in range(seconds * S // step_ns if step_ns else 0):
        recording.add_step(step, step * step_ns, (0, 0, 0, 0, step_ns))
    return recording


@contextmanager
def longer_and_shorter(step_ns: int = 0) -> Iterator[list[Reader]]:
    """The same program, once for 4 s and before that for 2 s."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield [
            stack.enter_context(
                Reader(
                    regular(seconds, step_ns).write(
                        Path(folder) / f"of_{seconds}_s.layerscope", program=ProgramState(seconds * S, seconds * S)
                    )
                )
            )
            for seconds in (4, 2)
        ]


@pytest.mark.parametrize(
    ("step_ns", "choice", "units"),
    [
        (0, Choice(), (4, 2)),
        (0, Choice(seconds=(0.0, 1.0)), (1, 1)),
        (0, Choice(seconds=(1.0, 3.0)), (2, 1)),
        (0, Choice(seconds=(1.5, float("inf"))), (2.5, 0.5)),
        (100 * MS, Choice(seconds=(0.0, 1.0)), (10, 10)),
        (100 * MS, Choice(seconds=(0.5, float("inf"))), (35, 15)),
        (100 * MS, Choice(seconds=(0.0, 0.25)), (2.5, 2.5)),
        (100 * MS, Choice(steps=range(15, 30)), (15, 5)),
        (100 * MS, Choice(steps=range(5, 10), seconds=(0.0, 0.8)), (3, 3)),
    ],
)
def test_what_is_chosen_is_divided_by_the_steps_or_the_time_in_it(
    step_ns: int, choice: Choice, units: tuple[float, float]
) -> None:
    with longer_and_shorter(step_ns) as readers:
        graph = graphs.compare(*readers, Look(choice=choice))

    assert graph.compared is not None
    assert (graph.compared.units, graph.compared.units_before) == pytest.approx(units)
    assert changes(graph)["f (a.py)"] == pytest.approx(0, abs=1)
    assert not flame_layout.draw(graph).sure.any()


@pytest.mark.parametrize(
    ("step_ns", "choice", "sentence"),
    [
        (0, Choice(seconds=(2.5, 3.0)), "of_2_s has nothing in the time that is chosen: it ran 2.00 s. Choose a time "),
        (0, Choice(steps=range(3)), "with --step measured steps are compared, and of_4_s has none. Leave out --step"),
        (
            100 * MS, Choice(steps=range(20, 25)),
            "of_2_s has no measured step in what is chosen: its measured steps are 0 to 19, from 0 ns to 2.00 s. "
            "Choose steps (--step, --time) that both recordings have",
        ),
        (100 * MS, Choice(seconds=(3.0, 4.0)), "of_2_s has no measured step in what is chosen: "),
    ],
)  # fmt: skip
def test_what_one_of_two_recordings_has_not_is_not_compared(step_ns: int, choice: Choice, sentence: str) -> None:
    with longer_and_shorter(step_ns) as readers, pytest.raises(UsageError) as error:
        graphs.compare(*readers, Look(choice=choice))
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("kind", ["cpu", "operators"])
def test_steps_of_another_process_do_not_count_for_those_of_the_trainer(kind: str) -> None:
    recording = Recording()
    for name, rule, steps in (("evaluate", "request", 40), ("train", "optimizer", 10)):
        process = recording.add_process(200)
        track = recording.add_thread(process, 200, name)
        for step in range(steps):
            recording.add_step(step, step * MS, (0, 0, 0, 0, MS), process=process, rule=rule, warmup=step < 1)
            recording.add_sample(recording.add_stack(f"python {name} a.py:1"), MS, track=track, step=step)
            recording.add_span(name, step * MS, MS, track=track, step=step)

    graph = compared(recording, recording, Look(kind))
    label = "train" if kind == "operators" else "train (a.py)"
    assert (graph.compared, stacks_of(graph)) == (graphs.Compared("step", 9, 9), {label: 9 * MS})


def test_a_change_is_sure_only_beyond_the_chance_of_sampling() -> None:
    def of(counts: dict[str, int]) -> Recording:
        return stepped([(name, 10 * MS, n % 100) for name, count in counts.items() for n in range(count)], 100)

    graph = compared(of({"much": 100, "little": 110, "same": 100}), of({"much": 50, "little": 100, "same": 100}))
    made = flame_layout.draw(graph)
    sure = {graph.frames[int(frame)].label: bool(is_sure) for frame, is_sure in zip(made.frame, made.sure, strict=True)}
    assert (sure["much (a.py)"], sure["little (a.py)"], sure["same (a.py)"]) == (True, False, False)


def test_nothing_changed_between_a_recording_and_itself() -> None:
    graph = compared(many(), many())
    made = flame_layout.draw(graph)

    assert not made.change.any()
    assert not made.sure.any()
    assert flame_layout.vanished(graph) == []
    assert (graph.tree.own[:, :2] == graph.tree.own[:, 2:]).all()


def test_spans_are_compared_exactly() -> None:
    after, before = Recording(), Recording()
    after.add_span("aten::mm", 0, 300)
    before.add_span("aten::mm", 0, 200)

    graph = compared(after, before, Look("operators"))
    made = flame_layout.draw(graph)
    assert (made.change.tolist(), made.sure.tolist()) == ([50.0], [True])  # per second of 2 s


def test_by_puts_a_frame_around_each_thread_process_rank_or_step() -> None:
    recording = Recording()
    parent, child = recording.add_process(7, argv="/usr/bin/python a.py", rank=0), recording.add_process(8, argv="b")
    threads = [recording.add_thread(parent, 7, "python"), recording.add_thread(parent, 9, ""),
               recording.add_thread(child, 8, "python")]  # fmt: skip
    stack = recording.add_stack(*MAIN)
    for number, (thread, step) in enumerate(zip(threads, (0, 10, None), strict=True)):
        recording.add_sample(stack, 1 << number, track=thread, step=step)
    recording.add_sample(stack, 100, track=threads[0], kind="offcpu", state="gil")
    recording.add_sample(None, 1000, track=threads[0])
    main = "<module> (train.py) > main (train.py)"

    wanted = {
        "thread": {f"python 7 > {main}": 1, f"9 > {main}": 2, f"python 8 > {main}": 4,
                   "python 7 > stack not known": 1000},
        "process": {f"7 python a.py > {main}": 3, f"8 b > {main}": 4, "7 python a.py > stack not known": 1000},
        "rank": {f"rank 0 > {main}": 3, f"no rank > {main}": 4, "rank 0 > stack not known": 1000},
        "step": {f"step 0 > {main}": 1, f"step 10 > {main}": 2, f"outside steps > {main}": 4,
                 "outside steps > stack not known": 1000},
    }  # fmt: skip
    for by, stacks in wanted.items():
        assert stacks_of(graph_of(recording, Look(by=by))) == stacks
    waits = graph_of(recording, Look("offcpu", by="thread"))
    assert stacks_of(waits) == {f"python 7 > {main} > waits for the GIL": 100}
    assert compared(recording, recording, Look(by="process")).whole == 1007
    with pytest.raises(UsageError, match="Leave out --by step"):
        compared(recording, recording, Look(by="step"))


@pytest.mark.parametrize("by", ["thread", "process", "rank", "step"])
@pytest.mark.parametrize("kind", ["cpu", "wall", "operators"])
def test_by_keeps_every_weight(by: str, kind: str) -> None:
    recording = many()
    for number, track in enumerate([recording.thread, recording.add_thread(recording.process, 103, "other")]):
        outer = recording.add_span("aten::linear", 0, 10, track=track, step=number)
        recording.add_span("aten::mm", 2, 4, outer, track=track, step=None)
    plain, apart = graph_of(recording, Look(kind)), graph_of(recording, Look(kind, by=by))

    assert apart.whole == plain.whole
    sums: dict[str, int] = {}
    for stack, weight in stacks_of(apart).items():
        below = stack.partition(" > ")[2]
        sums[below] = sums.get(below, 0) + weight
    assert sums == stacks_of(plain)


def test_steps_stand_in_their_order() -> None:
    graph = graph_of(stepped([("f", 1, 0), ("f", 5, 1), ("f", 3, 2)], steps=3), Look(by="step"))

    made = flame_layout.draw(graph)
    roots = np.flatnonzero(made.depth == 0)
    in_order = made.frame[roots[np.argsort(made.start[roots])]].tolist()
    assert [graph.frames[frame].label for frame in in_order] == ["step 0", "step 1", "step 2"]
