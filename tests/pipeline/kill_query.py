"""The program that is killed: one topic into Parquet, and the same topic into another topic.

Two streaming queries of one process, each with a checkpoint. It goes on until a file `finish` lies
in its folder; then it takes all that is there, once more from the checkpoints, and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.session import session
from tests.pipeline.conftest import LOCAL, QUICK_JAVA, quick_python

PATHS = ("parquet", "copy")
ROWS_A_TRIGGER = 150
ROWS_A_BATCH = 20
"""Small: a micro-batch is many requests, and a kill hits the middle of one."""
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
"""A few hundred rows are done before their code is made and compiled."""
SPECULATIVE = {
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "0ms",
}
"""With executors of their own: a task that takes longer than others gets a twin beside it."""
SPECULATED = "as speculatable"
"""How Spark says so."""
SLOW_START = "Python worker failed to connect back"
"""Spark gives a source's Python process 10 s to start, and the query up."""
INITIALIZING = "Initializing sources"
BEGIN_S_MAX = 30.0
FAILURES_MAX = 8
"""Of one task, before Spark gives the query up: workers are killed, too."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True, help="read; <topic>-copy is written")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--executors", action="store_true", help="two Java processes, speculating")
    return parser.parse_args()


class Queries:
    """The two paths, started and stopped together."""

    def __init__(self, spark: Any, servers: str, topic: str, folder: Path) -> None:
        self._spark, self._servers, self._topic, self._folder = spark, servers, topic, folder
        self.running: dict[str, Any] = {}

    def start(self, **trigger: Any) -> None:
        for path in PATHS:
            self.running[path] = self._start(path, trigger)

    def check(self, **trigger: Any) -> None:
        """Raises what a query ended with, unless it never really began."""
        for path, query in self.running.items():
            error = query.exception()
            if error is not None and SLOW_START not in str(error):
                raise error
            if error is not None:
                print("slow start", flush=True)
                self.running[path] = self._start(path, trigger)

    def stop(self) -> None:
        for query in self.running.values():
            query.stop()

    def drain(self) -> None:
        """All that there is, to the end."""
        once = {"availableNow": True}
        self.start(**once)
        ended = False
        while not ended:
            ended = not any(query.isActive for query in self.running.values())
            self.check(**once)
            ended &= not any(query.isActive for query in self.running.values())
            time.sleep(0.1)

    def _start(self, path: str, trigger: dict[str, Any]) -> Any:
        source = self._source()
        checkpoint = str(self._folder / f"checkpoint-{path}")
        if path == "parquet":
            hashed = "topic", "partition", "offset", "sha2(value, 256) AS hash"
            sink = source.selectExpr(*hashed).writeStream.format("parquet")
            sink = sink.option("path", str(self._folder / "parquet"))
        else:
            sink = source.select("key", "value").writeStream.format("goqueue")
            sink = sink.option("servers", self._servers).option("topic", f"{self._topic}-copy")
            sink = sink.option("batchRows", ROWS_A_BATCH)
        query = sink.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        end_s = time.monotonic() + BEGIN_S_MAX
        while query.isActive and query.status["message"] == INITIALIZING:
            if time.monotonic() > end_s:
                break
            time.sleep(0.1)  # one after the other: each starts Python processes
        return query

    def _source(self) -> Any:
        return (
            self._spark.readStream.format("goqueue")
            .option("servers", self._servers)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS_A_TRIGGER)
            .load()
        )


def started(executors: bool) -> Any:
    if not executors:
        master, settings = f"local[2,{FAILURES_MAX}]", {**LOCAL, **QUICK}
        spark = session("goqueue-kills", master=master, settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        return spark
    settings = {**LOCAL, **QUICK, **SPECULATIVE, "spark.task.maxFailures": str(FAILURES_MAX)}
    spark = session("goqueue-kills", master="local-cluster[2,1,1024]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j
    scheduler = "org.apache.spark.scheduler.TaskSetManager"
    log4j.core.config.Configurator.setLevel(scheduler, log4j.Level.INFO)
    return spark


def goes_on_until(finish: Path, queries: Queries) -> bool:
    """One micro-batch after the other; False when nobody is left to kill this."""
    always = {"processingTime": "0 seconds"}
    queries.start(**always)
    parent = os.getppid()
    while not finish.exists():
        queries.check(**always)
        if os.getppid() != parent:
            return False
        time.sleep(0.1)
    queries.stop()
    return True


def main() -> int:
    asked = arguments()
    os.environ["PYSPARK_PYTHON"] = str(quick_python(asked.folder))
    spark = started(asked.executors)
    queries = Queries(spark, asked.servers, asked.topic, asked.folder)
    finish = asked.folder / "finish"
    if not finish.exists() and not goes_on_until(finish, queries):
        return 1
    queries.drain()
    found = spark.read.parquet(str(asked.folder / "parquet"))
    rows = found.select("topic", "partition", "offset", "hash").collect()
    (asked.folder / "found.json").write_text(json.dumps([list(row) for row in rows]))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
