"""Answers questions across ranks by Spark: in the session of this process if there is one, else in
the cluster that Spark's own settings name, else on this machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from layerscope.analyse.across.answers import arrow_schema, without_dictionaries
from layerscope.model.errors import UsageError

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa

_NO_SPARK = "--engine spark needs PySpark 4: pip install 'layerscope[spark]'"
_NO_START = (
    "Spark does not start ({}). It needs Java 17 or newer: name its folder in JAVA_HOME, or leave "
    "--engine out"
)
# For Spark on this machine, which nobody else shall ask.
_HERE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Not the 200 of a cluster: a call of a collective is some hundred bytes.
    "spark.sql.shuffle.partitions": "4",
}
_MASTERS = ("MASTER", "SPARK_REMOTE", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS")


class SparkEngine:
    """Tables as views of a session. `is_ours`: the session began with it, and ends with it."""

    def __init__(self, session: Any, is_ours: bool) -> None:
        self._session = session
        self._is_ours = is_ours
        self._names: list[str] = []

    def give(self, name: str, table: pa.Table) -> None:
        """Let `name` be this table; Spark knows no dictionaries."""
        frame = self._session.createDataFrame(without_dictionaries(table))
        frame.createOrReplaceTempView(name)
        self._names.append(name)

    def answer(self, question: ibis.Table) -> pa.Table:
        """The rows of an expression."""
        import ibis

        # Spark's own dialect needs the settings of a backend of Ibis, which needs pandas.
        sql = ibis.to_sql(question, dialect="databricks", pretty=False)
        found = self._session.sql(str(sql)).toArrow()
        return found.cast(arrow_schema(question))

    def close(self) -> None:
        """End the session, or remove what was given to it."""
        if self._is_ours:
            self._session.stop()
            return
        for name in self._names:
            self._session.catalog.dropTempView(name)


def start() -> SparkEngine:
    """One with a session; UsageError where there is no Spark, or no Java."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(_NO_SPARK) from error
    there_is = SparkSession.getActiveSession()
    if there_is is not None:
        return SparkEngine(there_is, is_ours=False)
    builder = SparkSession.builder.appName("layerscope")
    if not any(os.environ.get(name) for name in _MASTERS):
        os.environ.setdefault("SPARK_LOCAL_IP", _HERE["spark.driver.host"])
        builder = builder.master("local[*]").config(map=_HERE)
    try:
        return SparkEngine(builder.getOrCreate(), is_ours=True)
    except Exception as error:  # whatever comes from Java, PySpark has a class of its own for it
        raise UsageError(_NO_START.format(_first_line(error))) from error


def _first_line(error: Exception) -> str:
    words = str(error).strip()
    if not words:
        return type(error).__name__
    first, *_ = words.splitlines()
    return first.rstrip(".")
