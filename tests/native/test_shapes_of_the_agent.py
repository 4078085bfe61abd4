"""Shapes of inputs in the agent: each span has its own, however many there are, on every thread and
in a child.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.native.building import ROOT, build
from tests.native.driven import Drive, Driven

FAKE_SHAPES = ROOT / "tests" / "native" / "fake_shapes.c"
WITH_SHAPES = """
assert prepare() == 0
assert agent.ls_shapes_use(SHAPES.encode()) == 0
start()
"""


@pytest.fixture(scope="session")
def fake_shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(
        tmp_path_factory.mktemp("shapes") / "libfake_shapes.so",
        [FAKE_SHAPES],
        "-O2",
        "-shared",
        "-fPIC",
    )


def driven(drive: Drive, fake_shapes: Path, lines: str) -> Driven:
    """What came of `lines`, which have shapes."""
    found = drive(f"SHAPES = {str(fake_shapes)!r}\n{WITH_SHAPES}{lines}")
    assert (found.status, found.stderr) == (0, "")
    assert found.losses() == {}
    return found


def sizes(found: Driven, pid: int | None = None) -> list[tuple[str, int | None]]:
    """(name, the size that was recorded) of every span by start."""
    shapes = {
        row["args"]: json.loads(row["json"])["shapes"] for row in found.rows("SELECT * FROM args")
    }
    told = {None: None} | {key: shape and shape[0][0] for key, shape in shapes.items()}
    return [(span["name"], told[span["args"]]) for span in found.spans(pid)]


def test_each_span_has_the_shapes_of_its_own_inputs(drive: Drive, fake_shapes: Path) -> None:
    found = driven(drive, fake_shapes, """
outer = begin("outer", seq=7)
op("inner", seq=8)
op("none")
op("ranged", RANGE, seq=9)
op("gradient", BACKWARD, seq=10, forward=3)
end(outer)
op("again", seq=8)
agent.ls_range_begin.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
handle = (ctypes.c_uint64 * 2)()
begin("left open", seq=11)
""")  # fmt: skip

    assert sizes(found) == [
        ("outer", 7), ("inner", 8), ("none", None), ("ranged", 9), ("gradient", 10), ("again", 8), ("left open", None),
    ]  # fmt: skip


def test_a_span_that_another_thread_ends_keeps_its_shapes(drive: Drive, fake_shapes: Path) -> None:
    found = driven(drive, fake_shapes, """
worker = Worker()
span = begin("elsewhere", seq=5)
worker.do(op, "mine", FUNCTION, 6)
worker.do(end, span)
worker.close()
""")  # fmt: skip

    assert sorted(sizes(found)) == [("elsewhere", 5), ("mine", 6)]


@pytest.mark.slow
def test_more_shapes_than_a_thread_keeps_are_all_right(drive: Drive, fake_shapes: Path) -> None:
    found = driven(drive, fake_shapes, """
for _ in range(2):
    for size in range(10000):
        op("op", seq=size)
    time.sleep(0.2)
""")  # fmt: skip

    assert sizes(found) == [("op", size) for _ in range(2) for size in range(10000)]


@pytest.mark.slow
def test_shapes_beyond_the_limit_are_known_to_be_unknown_and_names_go_on(
    drive: Drive, fake_shapes: Path
) -> None:
    found = driven(drive, fake_shapes, """
for size in range(100_100):
    op("op", seq=size)
    if size % 5000 == 0:
        time.sleep(0.1)
op("a new name", seq=3)
op("another new name", seq=500_000)
""")  # fmt: skip

    rows = found.rows("SELECT json, count(*) AS n FROM spans JOIN args USING (args) GROUP BY json")
    assert len(rows) == 100_001
    (unknown,) = [row["n"] for row in rows if json.loads(row["json"])["shapes"] is None]
    assert unknown == 101
    assert sizes(found)[-2] == ("a new name", 3)
    (problem,) = found.rows("SELECT layer, code, what FROM problems")
    assert (problem["layer"], problem["code"]) == ("operators", "shapes_full")
    assert "more than 100,000 different shapes" in problem["what"]


def test_threads_and_a_child_have_the_same_shapes(drive: Drive, fake_shapes: Path) -> None:
    found = driven(drive, fake_shapes, """
def some():
    for _ in range(3):
        for size in range(50):
            op("op", seq=size)
threads = [threading.Thread(target=some) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if not child:
    op("new in the child", seq=77)
    some()
    os._exit(0)
os.waitpid(child, 0)
print(child)
""")  # fmt: skip

    per_size = found.rows(
        """SELECT pid, json, count(*) AS n FROM spans JOIN args USING (args) JOIN tracks USING (track)
           JOIN processes USING (process) WHERE spans.name = 'op' GROUP BY ALL"""
    )
    child = int(found.stdout)
    assert (
        sorted((row["n"], row["pid"] == child) for row in per_size)
        == [(3, True)] * 50 + [(12, False)] * 50
    )
    assert sizes(found, child)[0] == ("new in the child", 77)


def test_a_library_that_is_none_of_ours_is_refused(drive: Drive, fake_torch: Path) -> None:
    found = drive(f"""
assert prepare() == 0
assert agent.ls_shapes_use(b"/nonexistent/shapes.so") == -1
assert agent.ls_shapes_use({str(fake_torch)!r}.encode()) == -1
start()
op("op", seq=3)
""")  # fmt: skip

    assert (found.status, found.stderr, sizes(found)) == (0, "", [("op", None)])
