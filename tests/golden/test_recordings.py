"""The recordings beside this file, converted by today's code: what their programs did is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.rawfile import raw_file
from layerscope.recording.reader import Reader
from tests.recorded import Recorded
from tests.replayed import RECORDINGS, replay
from tests.test_style import PRIVATE

STEPS, MS = 8, 1_000_000


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("train", tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("threads", tmp_path_factory.mktemp("threads"))


@pytest.fixture(scope="module")
def mxnet(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("mxnet", tmp_path_factory.mktemp("mxnet"))


def test_each_batch_is_a_step_with_all_phases(train: Recorded) -> None:
    rows = train.rows("SELECT * FROM steps ORDER BY step")

    assert [(row["step"], row["rule"]) for row in rows] == [
        (step, "optimizer") for step in range(STEPS)
    ]
    phases = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
    assert all(sum(row[phase] for phase in phases) == row["dur_ns"] for row in rows)
    assert all(row[phase] > 0 for row in rows for phase in phases)


def test_each_module_is_called_once_a_step_where_it_belongs(train: Recorded) -> None:
    rows = train.rows("SELECT path, class, count(*) AS n FROM spans JOIN modules USING (module) "
                      "WHERE layer = 'modules' GROUP BY ALL")  # fmt: skip

    found = {row["path"]: (row["class"], row["n"]) for row in rows}
    assert found == {
        "Net": ("Net", STEPS),
        "Net.conv": ("Conv2d", STEPS),
        "Net.hidden": ("Linear", STEPS),
        "Net.out": ("Linear", STEPS),
    }
    of_linear = "SELECT path, count(*) AS n FROM spans JOIN modules USING (module) WHERE name = 'aten::addmm' GROUP BY 1"
    assert {row["path"]: row["n"] for row in train.rows(of_linear)} == {
        "Net.hidden": STEPS,
        "Net.out": STEPS,
    }


def test_a_convolution_has_its_primitives(train: Recorded) -> None:
    rows = train.rows(
        "SELECT o.name, count(*) AS n FROM primitives p JOIN spans s USING (span) JOIN spans o ON o.span = p.operator "
        "WHERE p.primitive_kind = 'convolution' AND s.kind = 'execute' GROUP BY 1"
    )

    # The images need no gradient: backward computes those of the weights alone.
    assert {row["name"]: row["n"] for row in rows} == {
        "aten::mkldnn_convolution": STEPS,
        "aten::convolution_backward": STEPS,
    }


def test_backward_functions_are_linked_to_their_operators(train: Recorded) -> None:
    rows = train.rows(
        "SELECT a.name AS forward, b.name AS backward, count(*) AS n FROM links l JOIN spans a ON a.span = l.from_span "
        "JOIN spans b ON b.span = l.to_span WHERE l.kind = 'forward_backward' GROUP BY ALL"
    )

    found = {(row["forward"], row["backward"]): row["n"] for row in rows}
    assert found["aten::addmm", "AddmmBackward0"] == 2 * STEPS
    assert found["aten::tanh", "TanhBackward0"] == STEPS


def test_the_sums_are_those_of_the_spans(train: Recorded) -> None:
    own = train.rows("SELECT layer, kind, name, count(*) AS n, sum(dur_ns)::BIGINT AS ns FROM spans "
                     "WHERE layer = 'operators' GROUP BY ALL")  # fmt: skip
    sums = train.rows("SELECT layer, kind, name, sum(count)::BIGINT AS n, sum(total_ns)::BIGINT AS ns FROM totals "
                      "WHERE layer = 'operators' GROUP BY ALL")  # fmt: skip

    assert sorted(map(str, own)) == sorted(map(str, sums))
    assert train.rows("SELECT * FROM gaps") == []
    assert train.rows("SELECT * FROM problems") == []


@pytest.mark.parametrize(
    "table", ["operators", "modules", "steps", "primitives", "processes", "lines", "functions"]
)
def test_every_table_of_it_can_be_printed(
    table: str, train: Recorded, threads: Recorded, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded = threads if table in ("lines", "functions") else train

    assert cli.main(["table", str(recorded.run.path), table, "--json", "--top", "0"]) == 0

    answer = json.loads(capfd.readouterr().out)
    assert answer["rows"]
    assert all(len(row) == len(answer["columns"]) for row in answer["rows"])


@pytest.mark.parametrize("name", ["t.json", "t.fxt", "t.json.gz"])
def test_it_becomes_a_trace_of_every_format(name: str, train: Recorded, tmp_path: Path) -> None:
    assert cli.main(["export", str(train.run.path), str(tmp_path / name), "-q"]) == 0

    assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize("name", ["t.speedscope.json", "t.folded", "t.svg"])
def test_it_becomes_a_flame_graph_of_every_format(
    name: str, threads: Recorded, tmp_path: Path
) -> None:
    assert cli.main(["flame", str(threads.run.path), "-o", str(tmp_path / name), "-q"]) == 0

    assert b"in_product" in (tmp_path / name).read_bytes()


def test_time_on_the_cpu_and_waits_are_in_their_functions(threads: Recorded) -> None:
    rows = threads.rows(
        "WITH RECURSIVE up AS (SELECT stack AS leaf, stack, parent, frame FROM stacks UNION ALL "
        "SELECT up.leaf, s.stack, s.parent, s.frame FROM up JOIN stacks s ON s.stack = up.parent) "
        "SELECT f.name, s.kind, sum(weight_ns)::BIGINT AS ns FROM samples s JOIN up ON up.leaf = s.stack "
        "JOIN frames f USING (frame) WHERE f.file LIKE '%/program.py' GROUP BY ALL"
    )

    found = {(row["name"], row["kind"]): row["ns"] for row in rows}
    # Half a second each; a sample stands for 10 ms.
    assert 400 * MS < found["in_python", "cpu"] < 600 * MS
    assert 400 * MS < found["in_product", "cpu"] < 600 * MS
    assert 350 * MS < found["waits", "offcpu"] < 450 * MS
    assert found.get(("waits", "cpu"), 0) < 50 * MS
    states = {
        row["state"]
        for row in threads.rows("SELECT DISTINCT state FROM samples WHERE kind = 'offcpu'")
    }
    assert {"lock", "sleep"} <= states


@pytest.mark.parametrize("name", ["train", "threads"])
def test_it_names_nothing_of_the_machine_that_made_it(
    name: str, request: pytest.FixtureRequest
) -> None:
    """In the bytes of every chunk, and in what the tables say."""
    texts = [(RECORDINGS / name / "run.json").read_text()]
    for path in raw_file.spools(RECORDINGS / name / "raw"):
        texts += [chunk.payload.decode("latin-1") for chunk in raw_file.SpoolReader(path).chunks()]
    run: Recorded = request.getfixturevalue(name)
    with Reader(run.run) as reader:
        for table in ("frames", "processes", "modules", "problems"):
            texts.append(str(reader.query(f"SELECT * FROM {table}").to_pylist()))

    assert [found[0] for text in texts if (found := PRIVATE.search(text))] == []


MXNET_STEPS = 4
OF_A_STEP = """SELECT s.name, phase, path, s.line, count(*)::INT AS n FROM spans s LEFT JOIN modules USING (module)
    WHERE kind = 'function' AND step IS NOT NULL AND s.name IN ('Convolution', 'FullyConnected',
    '_backward_Convolution', '_backward_FullyConnected', 'sgd_update') GROUP BY ALL"""


def test_operators_of_mxnet_have_the_place_where_they_were_submitted(mxnet: Recorded) -> None:
    found = {
        (row["name"], row["phase"], row["path"], row["n"] // MXNET_STEPS): row["line"]
        for row in mxnet.rows(OF_A_STEP)
    }

    assert set(found) == {
        ("Convolution", "forward", "Net.conv", 1),
        ("FullyConnected", "forward", "Net.hidden", 1),
        ("FullyConnected", "forward", "Net.out", 1),
        ("_backward_Convolution", "backward", "Net.conv", 1),
        ("_backward_FullyConnected", "backward", "Net.hidden", 1),
        ("_backward_FullyConnected", "backward", "Net.out", 1),
        ("sgd_update", "optimizer", None, 6),
    }
    program = (RECORDINGS / "mxnet" / "program.py").read_text().splitlines()
    lines = {name[0]: program[int(line.rpartition(":")[2]) - 1] for name, line in found.items()}
    assert "self.conv(x)" in lines["Convolution"]
    assert "loss.backward()" in lines["_backward_Convolution"]
    assert "trainer.step" in lines["sgd_update"]


def test_an_operator_of_mxnet_written_in_python_has_its_code_and_what_it_runs(
    mxnet: Recorded,
) -> None:
    rows = mxnet.rows(
        "SELECT name, count(*)::INT AS n FROM spans WHERE kind = 'function' GROUP BY 1"
    )

    found = {row["name"]: row["n"] for row in rows}
    assert found["Custom"] == found["AddOne::pure_python"] == found["AddOne::_npi_add_scalar"] == 4
    awaited = mxnet.rows("SELECT json FROM spans JOIN args USING (args) WHERE kind = 'call'")
    assert json.loads(awaited[-1]["json"]) == {"awaited": "Custom"}


def test_every_operator_of_mxnet_is_linked_to_its_submission(mxnet: Recorded) -> None:
    linked = mxnet.value("SELECT count(*) FROM links WHERE kind = 'submit_execute'")

    assert linked == mxnet.value("SELECT count(*) FROM spans WHERE kind = 'submit'")
    assert mxnet.value("SELECT count(*) FROM primitives WHERE operator IS NULL") == 0
    assert mxnet.rows("SELECT * FROM problems") == []
