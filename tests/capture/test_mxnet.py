"""Real programs of MXNet: its operators, each once, by MXNet's own count."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.recorded import Recorded, record

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
NETWORKS, CUSTOM = PROGRAMS / "mxnet_networks.py", PROGRAMS / "mxnet_custom.py"
MODULE, BLOCKS = PROGRAMS / "mxnet_module.py", PROGRAMS / "mxnet_blocks.py"
# MXNet's profiler cuts names, and leaves out executions that have none.
MXNET_NAME = 127
UNNAMED = "(no name)"


def counts(recorded: Recorded) -> Counter[str]:
    """Executions by name until MXNet stopped counting."""
    rows = recorded.rows(
        "SELECT name, count(*)::INT AS count FROM spans WHERE kind = 'function' "
        "AND start_ns < (SELECT at_ns FROM marks WHERE name = 'counted') GROUP BY name"
    )
    found: Counter[str] = Counter()
    for row in rows:
        found[row["name"][:MXNET_NAME]] += row["count"]
    del found[UNNAMED]
    return found


@pytest.fixture(scope="module")
def networks(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """A CNN, an MLP, and the CNN hybridized and with static memory, with each version of MXNet."""
    folder = tmp_path_factory.mktemp("networks")
    kinds = ("cnn", "mlp", "hybrid", "static")
    return record(mxnet_python, str(NETWORKS), folder, *kinds)


def test_counts_by_operator_are_those_of_mxnet(networks: Recorded) -> None:
    assert networks.status == 0, networks.stderr

    assert counts(networks) == Counter(json.loads(networks.stdout))
    assert not networks.rows("SELECT * FROM problems")
    assert not networks.rows("SELECT * FROM gaps")


def test_operators_run_on_threads_of_the_engine(networks: Recorded) -> None:
    tids = networks.rows(
        "SELECT DISTINCT tid, pid FROM spans JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE spans.kind = 'function' AND spans.name = 'FullyConnected'"
    )
    assert tids
    assert all(row["tid"] != row["pid"] for row in tids)


def test_the_engine_without_threads_is_counted_too(
    mxnet_python: str, native_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")

    recorded = record(mxnet_python, str(NETWORKS), tmp_path, "cnn", "hybrid")

    assert recorded.status == 0, recorded.stderr
    assert counts(recorded) == Counter(json.loads(recorded.stdout))


def test_every_operator_is_linked_to_its_submission(networks: Recorded) -> None:
    unlinked = networks.rows(
        "SELECT name FROM spans WHERE layer = 'operators' AND kind = 'function' AND span NOT IN "
        "(SELECT to_span FROM links WHERE kind = 'submit_execute')"
    )
    assert unlinked == []
    names = networks.rows(
        "SELECT DISTINCT s.name = e.name AND s.start_ns < e.start_ns AS agrees FROM links l "
        "JOIN spans s ON s.span = l.from_span JOIN spans e ON e.span = l.to_span "
        "WHERE l.kind = 'submit_execute'"
    )
    assert names == [{"agrees": True}]


def test_operators_have_the_step_the_phase_and_the_module_of_their_submission(
    networks: Recorded,
) -> None:
    rows = networks.rows(
        "SELECT s.name, step, phase, path, class FROM spans s LEFT JOIN modules USING (module) "
        "WHERE s.kind = 'function' AND step IS NOT NULL AND s.name IN ('Convolution', '_backward_Convolution') "
        "ORDER BY s.start_ns"
    )
    found = [tuple(row.values()) for row in rows]
    assert found == [
        row
        for step in range(3)
        for row in (
            ("Convolution", step, "forward", "HybridSequential.0", "Conv2D"),
            ("_backward_Convolution", step, "backward", "HybridSequential.0", "Conv2D"),
        )
    ]
    assert networks.value("SELECT count(*) FROM steps WHERE rule = 'optimizer'") == 3
    updates = networks.rows(
        "SELECT DISTINCT phase FROM spans WHERE kind = 'function' AND step IS NOT NULL "
        "AND name LIKE '%sgd%update'"
    )
    assert updates == [{"phase": "optimizer"}]


def test_operators_have_the_line_of_the_program_that_submitted_them(networks: Recorded) -> None:
    lines = NETWORKS.read_text().splitlines()
    rows = networks.rows(
        "SELECT DISTINCT name, line FROM spans WHERE kind = 'function' AND name IN "
        "('Convolution', 'FullyConnected', '_backward_Convolution', '_backward_log_softmax')"
    )
    found = {(row["name"], row["line"].rpartition(":")[2]) for row in rows}
    assert {(name, lines[int(line) - 1].strip()) for name, line in found} == {
        ("Convolution", "loss = loss_of(net(image), label)"),
        ("FullyConnected", "loss = loss_of(net(image), label)"),
        ("_backward_Convolution", "loss.backward()"),
        ("_backward_log_softmax", "loss.backward()"),
    }
    without = networks.rows(
        "SELECT DISTINCT e.name, s.kind FROM spans e LEFT JOIN spans s ON s.span = e.parent "
        "WHERE e.kind = 'function' AND e.line IS NULL"
    )
    # What is freed when Python ends has no line of the program.
    assert {row["name"] for row in without} <= {"DeleteVariable", "DeleteOperator"}


def test_a_wait_names_the_operator_that_it_waits_for(networks: Recorded) -> None:
    rows = networks.rows(
        "SELECT DISTINCT json FROM spans JOIN args USING (args) WHERE name = 'MXNDArraySyncCopyToCPU'"
    )
    awaited = {json.loads(row["json"])["awaited"] for row in rows}
    assert awaited & {"mean", "_npi_mean"}


def test_steps_and_batches_are_spans(networks: Recorded) -> None:
    rows = networks.rows(
        "SELECT kind, name, count(*)::INT AS count FROM spans "
        "WHERE kind IN ('loader', 'optimizer') GROUP BY ALL ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("loader", "DataLoader.__next__", 4 * 4),
        ("optimizer", "Optimizer.update#Trainer.SGD", 4 * 3),
    ]


def test_every_primitive_lies_in_an_operator(networks: Recorded) -> None:
    assert networks.value("SELECT count(*) FROM primitives") > 100
    assert networks.value("SELECT count(*) FROM primitives WHERE operator IS NULL") == 0


def test_what_the_storage_holds_is_a_counter(networks: Recorded) -> None:
    rows = networks.rows(
        "SELECT max(value) AS most, count(*)::INT AS count FROM counters JOIN tracks USING (track) "
        "WHERE tracks.name = 'MXNet' AND counters.name = 'memory_bytes of cpu(0)'"
    )
    # A batch of images has 50 kB, and the first product 37 kB of weights.
    ((most, count),) = [row.values() for row in rows]
    assert most > 100_000
    assert count > 100


@pytest.fixture(scope="module")
def custom(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """An operator written in Python, three times in a block and once in a symbol."""
    return record(mxnet_python, str(CUSTOM), tmp_path_factory.mktemp("custom"))


def test_operators_written_in_python_have_the_names_and_counts_of_mxnet(custom: Recorded) -> None:
    recorded = custom

    assert recorded.status == 0, recorded.stderr
    expected = Counter(json.loads(recorded.stdout)["Custom Operator"])
    found = Counter({name: n for name, n in counts(recorded).items() if "::" in name})
    for name in [*expected, *found]:
        # What MXNet submits around the code of the operator is not counted as the code's.
        if name.rpartition("::")[2] in ("DeleteVariable", "ResourceParallelRandomSetSeed"):
            del expected[name], found[name]
    assert found == expected
    assert found["MyAddOne::pure_python"] == 4
    assert found["_backward_MyAddOne::pure_python"] == 3
    lines = recorded.rows(
        "SELECT DISTINCT line FROM spans WHERE kind = 'function' AND name = 'MyAddOne::CopyCPU2CPU'"
    )
    (number,) = [int(row["line"].rpartition(":")[2]) for row in lines]
    assert "in_data[0] + 1" in CUSTOM.read_text().splitlines()[number - 1]
    assert not recorded.rows("SELECT * FROM problems")


def test_code_of_operators_has_the_module_and_the_line_that_called_it(custom: Recorded) -> None:
    rows = custom.rows(
        "SELECT name, path, spans.line, count(*)::INT AS count FROM spans LEFT JOIN modules USING (module) "
        "WHERE kind = 'function' AND name LIKE '%MyAddOne::%' AND (name LIKE '%pure_python' OR "
        "name LIKE '%scalar%') GROUP BY ALL ORDER BY ALL"
    )
    lines = CUSTOM.read_text().splitlines()
    found = Counter(
        {
            (
                row["name"].replace("_npi_add", "_plus"),
                row["path"],
                row["line"] and lines[int(row["line"].rpartition(":")[2]) - 1].strip(),
            ): row["count"]
            for row in rows
        }
    )
    called = 'doubled = mx.nd.Custom(x, op_type="MyAddOne") * 2'
    # MXNet 2 has the operator of a symbol made when it runs, MXNet 1 when it is bound.
    (symbol,) = {line for name, path, line in found if "pure_python" in name and path is None}
    assert symbol in (None, 'return bind(mx.cpu(), {"data": x}).forward()[0].asnumpy()')
    added = "self.assign(out_data[0], req[0], in_data[0] + 1)"
    assert found == {
        ("MyAddOne::pure_python", "Adding", called): 3,
        ("MyAddOne::pure_python", None, symbol): 1,
        ("_backward_MyAddOne::pure_python", "Adding", None): 3,
        ("MyAddOne::_plus_scalar", "Adding", added): 3,
        ("MyAddOne::_plus_scalar", None, added): 1,
    }


@pytest.fixture(scope="module")
def blocks(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """Blocks in blocks after operators outside of any, with three operators in Python."""
    return record(mxnet_python, str(BLOCKS), tmp_path_factory.mktemp("blocks"))


def test_blocks_are_called_as_often_as_they_say_and_hold_what_they_call(blocks: Recorded) -> None:
    assert blocks.status == 0, blocks.stderr
    rows = blocks.rows(
        "SELECT path, count(*)::INT AS count FROM spans JOIN modules USING (module) "
        "WHERE kind = 'module' GROUP BY ALL"
    )
    assert {row["path"]: row["count"] for row in rows} == json.loads(blocks.stdout)
    rows = blocks.rows(
        "SELECT path, count(*)::INT AS count FROM spans LEFT JOIN modules USING (module) "
        "WHERE kind = 'function' AND name IN ('sin', '_npi_sin') GROUP BY ALL ORDER BY ALL"
    )
    assert {row["path"]: row["count"] for row in rows} == {None: 1, "Outer": 20}


def test_one_class_under_two_names_and_one_that_calls_its_base_class(blocks: Recorded) -> None:
    rows = blocks.rows(
        "SELECT name, path, count(*)::INT AS count FROM spans LEFT JOIN modules USING (module) "
        "WHERE name LIKE '%::pure_python' GROUP BY ALL"
    )
    assert {(row["name"], row["path"]): row["count"] for row in rows} == {
        ("one::pure_python", "Outer.inner"): 10,
        ("another::pure_python", "Outer"): 10,
        ("more::pure_python", "Outer"): 10,
    }


def test_a_window_has_what_was_submitted_in_it_however_late_that_is_executed(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    recorded = record(mxnet_python, str(NETWORKS), tmp_path, "mlp", options=("--steps", "1:3"))

    assert recorded.status == 0, recorded.stderr
    rows = recorded.rows(
        "SELECT step, name, count(*)::INT AS count FROM spans WHERE kind = 'function' "
        "AND name IN ('FullyConnected', '_backward_FullyConnected') GROUP BY ALL ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in rows] == [
        (step, name, 2)
        for step in (1, 2)
        for name in ("FullyConnected", "_backward_FullyConnected")
    ]
    unlinked = recorded.value("SELECT count(*) FROM spans WHERE kind = 'submit'") - recorded.value(
        "SELECT count(*) FROM links WHERE kind = 'submit_execute'"
    )
    assert unlinked == 0
    assert recorded.value("SELECT count(*) FROM primitives WHERE operator IS NULL") == 0


def test_the_module_interface_has_steps_and_phases(
    mxnet1_python: str, native_agent: Path, tmp_path: Path
) -> None:
    recorded = record(mxnet1_python, str(MODULE), tmp_path)

    assert recorded.status == 0, recorded.stderr
    assert counts(recorded) == Counter(json.loads(recorded.stdout))
    rows = recorded.rows(
        "SELECT name, phase, count(*)::INT AS count FROM spans WHERE kind = 'function' AND step = 2 "
        "AND name IN ('FullyConnected', '_backward_FullyConnected', 'multi_sgd_update') GROUP BY ALL"
    )
    assert sorted(tuple(row.values()) for row in rows) == [
        ("FullyConnected", "forward", 2),
        ("_backward_FullyConnected", "backward", 2),
        ("multi_sgd_update", "optimizer", 1),
    ]
    assert recorded.value("SELECT count(*) FROM steps WHERE rule = 'optimizer'") == 4


def test_the_recording_names_the_versions(networks: Recorded) -> None:
    assert networks.run.info.versions["mxnet"] in ("1.9.1", "2.0.0b1")
    assert networks.run.info.versions["python"].startswith("3.")


def test_the_summary_names_the_kernels_of_mxnet(networks: Recorded) -> None:
    assert "MXNet kernels" in (networks.run.path / "summary.txt").read_text()
