"""Running the queries: views over what came in, each table computed when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.analytics.queries import TABLES, VIEWS, Query, query
from pipeline.restore import marks

KEPT = ("events", "subjects", "deliveries", "outcomes", "findings", "lag_spans")
"""What several tables are made of is computed once, and kept where the executors are: on their
disks where memory is short. When one of them is lost the run fails, and is begun again."""
INPUTS = ("messages", "events", "rebalances", "groups", "bounds")


@dataclass(frozen=True, slots=True)
class Inputs:
    """DataFrames as the queries know them by name; `pipeline.analytics.inputs` says their columns.

    Not lazily changing: each is computed again wherever it is not cached.
    """

    messages: DataFrame
    events: DataFrame
    rebalances: DataFrame
    groups: DataFrame
    bounds: DataFrame


@dataclass(frozen=True, slots=True)
class Goals:
    """What the figures are held against, and how much of them is listed."""

    lag_objective_ms: int = 60_000
    """A group whose oldest message waits longer is over its objective."""
    lag_target: float = 0.99
    """For how much of the time the objective is to hold."""
    top_keys: int = 20
    findings_max: int = 1000
    """Listed of each check, and of each replay; all are counted."""
    points_max: int = 2000
    """Of a group's lag as a line."""
    replay_id_header: str = marks.ID
    replay_origin_header: str = marks.ORIGIN


@dataclass(frozen=True, slots=True)
class Table:
    """One figure's rows, as a pyarrow table; at most thousands."""

    query: Query
    rows: Any

    @property
    def name(self) -> str:
        return self.query.name


def analyse(
    spark: SparkSession,
    inputs: Inputs,
    goals: Goals | None = None,
    told: Callable[[str], None] = lambda name: None,
) -> dict[str, Table]:
    """All tables by name. The views stay in the session, for queries of one's own, until `forget`.

    `told` hears the name of each view and table before it is computed.
    """
    arguments = asdict(goals or Goals())
    for name in INPUTS:
        told(name)
        _keep(spark, name, getattr(inputs, name))
    for name in VIEWS:
        told(name)
        _keep(spark, name, spark.sql(query(name).text, args=arguments))
    found: dict[str, Table] = {}
    for name in TABLES:
        told(name)
        found[name] = Table(query(name), spark.sql(query(name).text, args=arguments).toArrow())
    return found


def forget(spark: SparkSession) -> None:
    """Let go of the views."""
    for name in (*reversed(VIEWS), *INPUTS):
        spark.catalog.dropTempView(name)


def _keep(spark: SparkSession, name: str, frame: DataFrame) -> None:
    if name in KEPT:
        # a plan that is only cached stays part of every plan above it, and of each of its tasks
        frame = frame.localCheckpoint()
    frame.createOrReplaceTempView(name)
