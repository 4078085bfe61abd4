"""Operators that were executed as one: when they are worth a sentence."""

from __future__ import annotations

from layerscope.analyse.bulks import bulk_note
from tests.analyse.test_tables import opened, result_of
from tests.recordings import Recording

ATTRIBUTES = "Convolution{pad=[0,0];name=a},Activation{act_type=relu}"


def note(*names: str, kind: str = "function", bulk_ns: int = 10) -> str:
    """What is said of a recording of 90 ns of other operators, and these."""
    recording = Recording()
    add(recording, "Convolution", 90)
    for name in names:
        add(recording, name, bulk_ns, kind)
    with opened(recording) as reader:
        return bulk_note(reader)


def add(recording: Recording, name: str, self_ns: int, kind: str = "function") -> None:
    """One call of an operator, with the exact sums of it."""
    recording.add_span(name, 1000 * len(recording.rows.get("spans", ())), self_ns, kind=kind)
    sums = dict.fromkeys(("total_ns", "self_ns", "min_ns", "max_ns"), self_ns)
    row = {"layer": "operators", "kind": kind, "name": name, "step_class": "none", "count": 1}
    rows = recording.rows.setdefault("totals", [])
    rows.append({"total": len(rows), "process": 0, **row, **sums})


def test_bulks_are_named_with_their_share_and_how_to_split_them() -> None:
    said = note("ImperativeBulk")
    assert said.startswith("ImperativeBulk stands for several operators that MXNet executed as one")
    assert "10 % of all self time" in said
    assert "layerscope run --granularity operator" in said


def test_names_that_list_operators_are_bulks_with_attributes_or_without() -> None:
    for name in ("Activation,Pooling", ATTRIBUTES):
        assert note(name).startswith("A name that lists operators stands for")
    assert note("ImperativeBulk", ATTRIBUTES).startswith(
        "ImperativeBulk, or a name that lists operators, stands for"
    )


def test_one_operator_with_attributes_a_range_and_small_bulks_are_not_worth_it() -> None:
    assert note("Pooling{pad=[0,0];kernel=[2,2]}") == ""
    assert note("first,second", kind="range") == ""
    assert note("ImperativeBulk", bulk_ns=4) == ""


def test_the_table_of_operators_says_it() -> None:
    recording = Recording()
    add(recording, "ImperativeBulk", 10)
    (said,) = result_of(recording, "operators").notes
    assert "100 % of all self time" in said
