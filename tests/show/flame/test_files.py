"""The files that flame graphs are written to, read back by readers that share no code with the
writers.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from layerscope.analyse.stacks import flame_layout
from layerscope.analyse.stacks.graphs import Graph, Look
from layerscope.model.errors import UsageError
from layerscope.show.flame import Picture, format_of, formats, terminal_tree
from tests.analyse.stacks.made import compared, graph_of, sampled, stacks_of, stepped
from tests.recordings import MS

SVG = "{http://www.w3.org/2000/svg}"
ODD = 'python <b>&"\x01\ud800;漢\n🙂 a;b.py:1'
MAIN = ("python <module> train.py:9", "python main train.py:5")


def written(graph: Graph, suffix: str, notes: tuple[str, ...] = ()) -> bytes:
    stream = io.BytesIO()
    formats()[suffix].write(
        Picture(graph, "A <title> & more", "python train.py", "", notes), stream
    )
    return stream.getvalue()


def made() -> Graph:
    return graph_of(
        sampled(
            ((*MAIN, "operators aten::mm"), 30 * MS),
            ((*MAIN,), 12 * MS),
            (("native worker libgomp.so",), 8 * MS),
        )
    )


def odd() -> Graph:
    graph = made()
    frames = [
        type(frame)(frame.layer, 'x <b>&"\x01\ud800\ufffe;漢\n🙂' + frame.name)
        for frame in graph.frames
    ]
    return Graph(graph.kind, graph.unit, frames, graph.tree, graph.upright, False, {}, ())


def test_the_name_of_the_file_chooses() -> None:
    assert set(formats()) == {".svg", ".html", ".folded", ".speedscope.json"}
    for suffix, module in formats().items():
        assert format_of(Path(f"x{suffix}")) is module
        assert module.OPEN
    for name in ("x.png", ".svg", "svg", "x.json"):
        with pytest.raises(
            UsageError, match=r"names no format.*\.folded, \.html, \.speedscope\.json, \.svg"
        ):
            format_of(Path(name))


def read_svg(content: bytes) -> tuple[ElementTree.Element, dict[str, Any]]:
    root = ElementTree.fromstring(content)
    data = next(one for one in root.iter(f"{SVG}script") if one.get("id") == "flame-data")
    return root, json.loads(data.text or "")


@pytest.mark.parametrize("graph", [made(), odd()], ids=["plain", "odd names"])
def test_svg_is_xml_with_a_rect_for_each_frame(graph: Graph) -> None:
    root, data = read_svg(written(graph, ".svg", ("a <note>",)))

    assert root.find(f"{SVG}title").text == "A <title> & more"  # type: ignore[union-attr]
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    rects = list(groups["frames"])
    assert len(rects) == len(data["nodes"]["total"]) == 5
    assert data["nodes"]["total"][0] == data["whole"] == 50 * MS
    for number, rect in enumerate(rects):
        assert float(rect.get("width", 0)) == pytest.approx(
            1200 * data["nodes"]["total"][number] / (50 * MS), abs=0.01
        )
        assert float(rect.get("x", 0)) == pytest.approx(
            1200 * data["nodes"]["start"][number] / (50 * MS), abs=0.01
        )
    assert "a <note>" in [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_every_sentence_of_a_picture_survives_odd_characters(suffix: str) -> None:
    graph = compared(
        sampled((MAIN, 5)), sampled((MAIN, 5), (("python odd\x01\ufffe<b> x.py:1",), 9))
    )
    stream = io.BytesIO()
    odd_words = {name: f"{name}\x01\ud800\ufffe&" for name in ("title", "command", "chosen")}
    formats()[suffix].write(Picture(graph, **odd_words, notes=("note\x01\ud800",)), stream)

    [svg] = re.findall(r"<svg.*</svg>", stream.getvalue().decode(), re.DOTALL)
    root, _ = read_svg(svg.encode())
    said = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any(text.startswith("Hatched: gone, which only the recording before") for text in said)
    assert any(
        text.startswith("command\\x01\\ud800\\ufffe& · ") and "chosen\\x01" in text for text in said
    )
    assert {"title\\x01\\ud800\\ufffe&", "note\\x01\\ud800"} <= set(said)


def test_svg_asks_for_nothing_from_elsewhere() -> None:
    for suffix in (".svg", ".html"):
        text = written(made(), suffix).decode()
        addresses = set(re.findall(r"""(?:https?:)?//[\w.-]+\.\w+[^\s"'<>)]*""", text))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
        assert not re.search(r"@import|url\((?!#)|\bsrc=|\bhref=", text)


def test_html_has_the_same_picture_and_survives_odd_names() -> None:
    for graph in (made(), odd()):
        text = written(graph, ".html").decode()
        embedded = json.loads(re.search(r'<script id="flame-data"[^>]*>(.*?)</script>', text)[1])  # type: ignore[index]
        assert embedded == read_svg(written(graph, ".svg"))[1]
        assert text.count("<script") == text.count("</script>") == 4
        rows = json.loads(re.search(r'<script id="frames-data"[^>]*>(.*?)</script>', text)[1])  # type: ignore[index]
        assert sum(row["own"] for row in rows) == graph.whole


def read_folded(content: bytes) -> dict[str, int]:
    found = {}
    for line in content.decode().splitlines():
        stack, _, weight = line.rpartition(" ")
        found[stack.replace(";", " > ")] = int(weight)
    return found


def test_folded_stacks_are_those_of_the_tree() -> None:
    for look in (Look(), Look(by_line=True), Look(is_inverted=True)):
        graph = graph_of(sampled((MAIN, 5), ((*MAIN, "operators a"), 7), (("kernel k",), 1)), look)
        assert read_folded(written(graph, ".folded")) == stacks_of(graph)


def test_folded_names_keep_to_one_line_and_one_frame() -> None:
    lines = written(odd(), ".folded").decode().split("\n")
    assert len(lines) == 4
    assert sorted(line.count(";") for line in lines[:3]) == [0, 1, 2]


def test_folded_of_a_comparison_has_before_and_now() -> None:
    graph = compared(
        sampled((("python f a.py:1",), 5)),
        sampled((("python f a.py:1",), 3), (("python g a.py:1",), 9)),
    )

    assert sorted(written(graph, ".folded").decode().splitlines()) == [
        "f (a.py) 3 5",
        "g (a.py) 9 0",
    ]


def test_stacks_of_speedscope_are_in_the_order_of_a_walk_through_the_tree() -> None:
    graph = graph_of(
        sampled(
            (("python a m.py:1",), 1),
            (("python b m.py:2",), 2),
            (("python a m.py:1", "python c m.py:3"), 3),
            (("python b m.py:2", "python d m.py:4"), 4),
        )
    )
    profile = json.loads(written(graph, ".speedscope.json"))["profiles"][0]
    assert profile["weights"] in ([1, 3, 2, 4], [2, 4, 1, 3])


def test_speedscope_files_keep_to_their_schema() -> None:
    for graph in (made(), odd()):
        found = json.loads(written(graph, ".speedscope.json"))

        assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
        frames = found["shared"]["frames"]
        assert all(
            set(frame) <= {"name", "file", "line", "col"} and isinstance(frame["name"], str)
            for frame in frames
        )
        (profile,) = found["profiles"]
        assert set(profile) == {
            "type",
            "name",
            "unit",
            "startValue",
            "endValue",
            "samples",
            "weights",
        }
        assert profile["type"] == "sampled"
        assert profile["unit"] in (
            "none",
            "nanoseconds",
            "microseconds",
            "milliseconds",
            "seconds",
            "bytes",
        )
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= number < len(frames) for stack in profile["samples"] for number in stack)
        assert sum(profile["weights"]) == profile["endValue"] - profile["startValue"] == graph.whole
    profile = json.loads(written(made(), ".speedscope.json"))["profiles"][0]
    names = [
        frame["name"]
        for frame in json.loads(written(made(), ".speedscope.json"))["shared"]["frames"]
    ]
    stacks = {
        " > ".join(names[number] for number in stack): weight
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True)
    }
    assert stacks == stacks_of(made())


def test_colours_of_a_comparison_say_how_much() -> None:
    after = stepped(
        [
            (name, 10 * MS, n % 100)
            for name in "abc"
            for n in range({"a": 400, "b": 100, "c": 60}[name])
        ],
        100,
    )
    before = stepped(
        [
            (name, 10 * MS, n % 100)
            for name in "abc"
            for n in range({"a": 100, "b": 100, "c": 100}[name])
        ],
        100,
    )
    graph = compared(after, before)
    _, data = read_svg(written(graph, ".svg"))
    root, _ = read_svg(written(graph, ".svg"))
    frames = next(group for group in root.iter(f"{SVG}g") if group.get("id") == "frames")
    colours = {
        data["frames"][number]["label"]: rect.get("class")
        for number, rect in zip(data["nodes"]["frame"], frames, strict=True)
    }
    assert (colours["a (a.py)"], colours["b (a.py)"], colours["c (a.py)"]) == (
        "grew4",
        "same",
        "shrank3",
    )


def test_what_is_gone_is_drawn_without_the_script_too() -> None:
    old = ("python main m.py:1", "python old m.py:2")
    before = sampled((MAIN, 10), (old, 30 * MS), ((*old, "python inner m.py:3"), 30 * MS))
    graph = compared(sampled((old[:1], 30 * MS), (MAIN, 30 * MS)), before)
    root, data = read_svg(written(graph, ".svg"))

    frames = next(group for group in root.iter(f"{SVG}g") if group.get("id") == "frames")
    rects = {
        data["frames"][number]["label"]: rect
        for number, rect in zip(data["nodes"]["frame"], frames, strict=True)
    }
    main, gone = rects["main (m.py)"], rects["old (m.py)"]
    assert str(gone.get("class")).endswith(" gone")
    assert float(gone.get("width", 0)) == 6
    assert float(gone.get("x", 0)) == float(main.get("x", 0)) + float(main.get("width", 0)) - 6
    assert rects["inner (m.py)"].get("width") == "0.00"


def text_of(graph: Graph, width: int | None = None, chosen: str = "") -> str:
    return terminal_tree.text(
        Picture(graph, "CPU time: train", "python train.py", chosen, ("a note",)),
        flame_layout.draw(graph),
        width,
    )


def test_the_tree_of_the_terminal() -> None:
    assert text_of(made(), chosen="step 3") == (
        "CPU time: train\n"
        "50.0 ms of CPU time in 3 samples; step 3\n"
        "  total     own       time  frame\n"
        " 84.0 %  24.0 %    42.0 ms  <module> (train.py) > main (train.py)\n"
        " 60.0 %  60.0 %    30.0 ms    aten::mm\n"
        " 16.0 %  16.0 %    8.00 ms  worker (libgomp.so)\n"
        "a note\n"
    )


def test_calls_of_a_function_by_itself_are_one_name() -> None:
    graph = graph_of(sampled(((*MAIN, *["python again rec.py:3"] * 3000), 30 * MS)))

    _, _, _, line, _ = text_of(graph).splitlines()
    assert line.endswith("main (train.py) > again (rec.py) (3,000 times)")


def test_the_tree_fits_the_window() -> None:
    name = "operators " + "x" * 300
    for width in (60, 80, 200):
        text = text_of(graph_of(sampled(((*MAIN, name), 5))), width)
        assert max(map(len, text.splitlines())) <= width


def test_the_tree_of_a_comparison_says_what_changed_and_what_is_gone() -> None:
    after = stepped([("f", 10 * MS, n) for n in range(100)], 100)
    before = stepped([("f", 5 * MS, n) for n in range(100)] + [("old", 40 * MS, 5)], 100)

    text = text_of(compared(after, before))
    assert "change per step" in text.splitlines()[1]
    assert "+4.60 ms  <module> (train.py) > main (train.py)\n" in text
    assert "+5.00 ms    f (a.py)\n" in text
    assert "  0.0 %   0.0 %       0 ns    -400 µs    gone: old (a.py)\n" in text


def test_many_branches_are_cut_and_said() -> None:
    graph = graph_of(sampled(*(((f"python f{number} a.py:1",), 10) for number in range(90))))
    assert "more branches; a file has all: -o flame.svg." in text_of(graph)


def test_kinds_say_what_the_whole_is() -> None:
    recording = sampled((MAIN, 5))
    recording.add_sample(recording.add_stack(*MAIN), 2000, kind="offcpu", state="lock")
    recording.add_sample(recording.add_stack(*MAIN), 0, kind="fault", count=1204)
    wholes = [
        text_of(graph_of(recording, Look(kind))).splitlines()[1]
        for kind in ("offcpu", "wall", "pagefaults")
    ]
    assert wholes == [
        "2.00 µs of waiting in 1 wait", "2.00 µs on the CPU and waiting in 2 samples", "1,204 page faults in 1 sample",
    ]  # fmt: skip


def test_pictures_are_drawn_without_the_whole_of_an_inverted_tree() -> None:
    recording = sampled((("python f a.py:1", "python g a.py:2"), 3), (("python g a.py:2",), 10**6))
    whole = graph_of(recording, Look(is_inverted=True))
    cut = graph_of(recording, Look(is_inverted=True, least=flame_layout.THINNEST))
    assert flame_layout.draw(whole).total.tolist() == flame_layout.draw(cut).total.tolist()


def test_the_wheel_would_have_the_scripts() -> None:
    """What is read beside the code must be named in pyproject.toml."""
    folder = Path(sys.modules["layerscope.show.flame"].__file__ or "").parent
    beside = {
        f"show/flame/*{file.suffix}"
        for file in folder.iterdir()
        if file.suffix not in (".py", "") and file.is_file()
    }
    project = (folder.parents[3] / "pyproject.toml").read_text()
    assert all(f'"{pattern}"' in project for pattern in beside)
    assert beside


def test_the_scripts_can_stand_in_xml_and_html() -> None:
    folder = Path(sys.modules["layerscope.show.flame"].__file__ or "").parent
    for script in folder.glob("*.js"):
        text = script.read_text()
        assert "]]>" not in text
        assert "</script" not in text
