"""Flame graphs turned over, of two recordings, and with frames around threads, ranks and steps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from layerscope.analyse.stacks import flame_layout, graphs
from layerscope.analyse.stacks.compared import Compared
from layerscope.analyse.stacks.graphs import Look
from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.run import ProgramState
from tests.analyse.stacks.made import (
    MAIN,
    changes,
    compared,
    graph_of,
    many,
    sampled,
    stacks_of,
    stepped,
)
from tests.recordings import MS, Recording, S


def test_inverted_stacks_have_the_innermost_frame_first() -> None:
    recording = sampled((("python f a.py:1", "python g a.py:2"), 3), (("python g a.py:2",), 4))

    graph = graph_of(recording, Look(is_inverted=True))
    assert stacks_of(graph) == {"g (a.py) > f (a.py)": 3, "g (a.py)": 4}
    heaviest = {
        graph.frames[one.frame].label: (one.own, one.total) for one in flame_layout.heaviest(graph)
    }
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
    made = flame_layout.draw(graph)
    (gone,) = np.flatnonzero(made.is_gone).tolist()
    assert graph.frames[int(made.frame[gone])].label == "old (a.py)"
    assert graph.frames[int(made.frame[made.parent[gone]])].label == "main (train.py)"
    assert (made.total[gone], made.change[gone], made.before[gone]) == (0, -2.0, 8)
    changed = {graph.frames[one.frame].label: one.change for one in flame_layout.heaviest(graph)}
    assert list(changed.items())[:3] == [
        ("f (a.py)", 20.0),
        ("new (a.py)", 5.0),
        ("old (a.py)", -2.0),
    ]


def test_what_is_gone_is_laid_out_by_its_weight_before() -> None:
    outer = ("python main m.py:1", "python old m.py:2")
    before = sampled(
        (outer, 10),
        ((*outer, "python small m.py:3"), 30),
        ((*outer, "python large m.py:4", "python inner m.py:5"), 60),
        (("python main m.py:1", "python stays m.py:6"), 1),
        (("python other m.py:7",), 200),
    )
    after = sampled((("python main m.py:1", "python stays m.py:6"), 5))

    graph = compared(after, before)

    made = flame_layout.draw(graph)
    found = {
        graph.frames[int(made.frame[place])].name: (int(made.start[place]), int(made.before[place]))
        for place in np.flatnonzero(made.is_gone).tolist()
    }
    assert found == {
        "other": (0, 200), "old": (200, 100), "large": (200, 60), "inner": (200, 60), "small": (260, 30),
    }  # fmt: skip
    assert made.whole == 5
    assert (made.parent < np.arange(len(made.parent))).all()


def test_what_is_gone_is_cut_where_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flame_layout, "_MOST_GONE", 5)
    before = sampled(*((("python main m.py:1", f"python f{n} m.py:2"), 10 + n) for n in range(9)))

    graph = compared(sampled((("python main m.py:1",), 1)), before)

    made = flame_layout.draw(graph)
    assert sorted(made.before[made.is_gone].tolist()) == [15, 16, 17, 18]


def test_without_steps_runs_are_compared_by_what_they_took_in_all() -> None:
    graph = compared(sampled((MAIN, 100)), sampled((MAIN, 300)))

    assert graph.compared == Compared("run", 1.0, 1.0)
    assert changes(graph)["main (train.py)"] == -200


def test_a_run_that_waited_longer_for_a_cpu_does_not_turn_the_sign_of_a_change() -> None:
    """Every function takes less CPU time; the earlier run took five times as long on the wall."""
    after, before = sampled((MAIN, 100)), sampled((MAIN, 120))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        readers = [
            stack.enter_context(
                Reader(
                    recording.write(folder / name, program=ProgramState(seconds * S, seconds * S))
                )
            )
            for name, recording, seconds in (("a", after, 2), ("b", before, 10))
        ]
        graph = graphs.compare(*readers, Look())
    assert changes(graph)["main (train.py)"] == -20


@pytest.mark.parametrize(("per", "change"), [("run", -200), ("second", -100), (None, -200)])
def test_per_chooses_what_is_compared(per: str | None, change: float) -> None:
    graph = compared(sampled((MAIN, 100)), sampled((MAIN, 300)), Look(per=per))
    assert graph.compared is not None
    assert graph.compared.per == (per or "run")
    assert changes(graph)["main (train.py)"] == change


def test_whole_runs_are_compared_although_they_have_steps_where_that_is_asked_for() -> None:
    with longer_and_shorter(100 * MS) as readers:
        graph = graphs.compare(*readers, Look(per="run"))
    assert graph.compared == Compared("run", 1.0, 1.0)
    assert changes(graph)["f (a.py)"] == 2 * S


def regular(seconds: int, step_ns: int = 0) -> Recording:
    """A program that does the same all the time: a sample of 10 ms every 10 ms, and, unless 0,
    steps of so many ns.
    """
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
                        Path(folder) / f"of_{seconds}_s.layerscope",
                        program=ProgramState(seconds * S, seconds * S),
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
        per = None if step_ns else "second"
        graph = graphs.compare(*readers, Look(choice=choice, per=per))

    assert graph.compared is not None
    assert (graph.compared.units, graph.compared.units_before) == pytest.approx(units)
    assert changes(graph)["f (a.py)"] == pytest.approx(0, abs=1)
    assert not flame_layout.draw(graph).sure.any()


@pytest.mark.parametrize(
    ("step_ns", "choice", "sentence"),
    [
        (0, Choice(seconds=(2.5, 3.0)), "of_2_s has nothing in the time that is chosen: it ran 2.00 s. Choose a time "),
        (0, Choice(steps=range(3)), "measured steps are compared, and of_4_s has none. Leave out --step, or add --per run"),
        (
            100 * MS, Choice(steps=range(20, 25)),
            "of_2_s has no measured step in what is chosen: its measured steps are 0 to 19, from 0 ns to 2.00 s. "
            "Choose steps (--step, --time) that both recordings have",
        ),
        (100 * MS, Choice(seconds=(3.0, 4.0)), "of_2_s has no measured step in what is chosen: "),
    ],
)  # fmt: skip
def test_what_one_of_two_recordings_has_not_is_not_compared(
    step_ns: int, choice: Choice, sentence: str
) -> None:
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
            recording.add_step(
                step, step * MS, (0, 0, 0, 0, MS), process=process, rule=rule, warmup=step < 1
            )
            recording.add_sample(
                recording.add_stack(f"python {name} a.py:1"), MS, track=track, step=step
            )
            recording.add_span(name, step * MS, MS, track=track, step=step)

    graph = compared(recording, recording, Look(kind))
    label = "train" if kind == "operators" else "train (a.py)"
    assert (graph.compared, stacks_of(graph)) == (Compared("step", 9, 9), {label: 9 * MS})


def test_a_change_is_sure_only_beyond_the_chance_of_sampling() -> None:
    def of(counts: dict[str, int]) -> Recording:
        return stepped(
            [(name, 10 * MS, n % 100) for name, count in counts.items() for n in range(count)], 100
        )

    graph = compared(
        of({"much": 100, "little": 110, "same": 100}), of({"much": 50, "little": 100, "same": 100})
    )
    made = flame_layout.draw(graph)
    sure = {
        graph.frames[int(frame)].label: bool(is_sure)
        for frame, is_sure in zip(made.frame, made.sure, strict=True)
    }
    assert (sure["much (a.py)"], sure["little (a.py)"], sure["same (a.py)"]) == (True, False, False)


def test_nothing_changed_between_a_recording_and_itself() -> None:
    graph = compared(many(), many())
    made = flame_layout.draw(graph)

    assert not made.change.any()
    assert not made.sure.any()
    assert not made.is_gone.any()
    assert (graph.tree.own[:, :2] == graph.tree.own[:, 2:]).all()


def test_spans_are_compared_exactly() -> None:
    after, before = Recording(), Recording()
    after.add_span("aten::mm", 0, 300)
    before.add_span("aten::mm", 0, 200)

    graph = compared(after, before, Look("operators"))
    made = flame_layout.draw(graph)
    assert (made.change.tolist(), made.sure.tolist()) == ([100.0], [True])


def test_by_puts_a_frame_around_each_thread_process_rank_or_step() -> None:
    recording = Recording()
    parent, child = (
        recording.add_process(7, argv="/usr/bin/python a.py", rank=0),
        recording.add_process(8, argv="b"),
    )
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


def test_by_rank_has_a_server_under_its_role() -> None:
    recording = Recording()
    server = recording.add_process(7, role="server")
    thread = recording.add_thread(server, 7, "python")
    recording.add_sample(recording.add_stack(*MAIN), 5, track=thread)

    found = stacks_of(graph_of(recording, Look(by="rank")))

    assert found == {"server > <module> (train.py) > main (train.py)": 5}


@pytest.mark.parametrize("by", ["thread", "process", "rank", "step"])
@pytest.mark.parametrize("kind", ["cpu", "wall", "operators"])
def test_by_keeps_every_weight(by: str, kind: str) -> None:
    recording = many()
    for number, track in enumerate(
        [recording.thread, recording.add_thread(recording.process, 103, "other")]
    ):
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
