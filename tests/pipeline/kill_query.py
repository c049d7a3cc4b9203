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
from tests.pipeline.conftest import LOCAL

ROWS_A_TRIGGER = 150
ROWS_A_BATCH = 20
"""Small: a micro-batch is many requests, and a kill hits the middle of one."""
FAILURES_MAX = 8
"""Of one task, before Spark gives the query up: workers are killed, too."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True, help="read; <topic>-copy is written")
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args()


class Queries:
    """The two paths, started and stopped together."""

    def __init__(self, spark: Any, servers: str, topic: str, folder: Path) -> None:
        self._spark, self._servers, self._topic, self._folder = spark, servers, topic, folder
        self.running: list[Any] = []

    def start(self, **trigger: Any) -> None:
        hashed = "topic", "partition", "offset", "value", "sha2(value, 256) AS hash"
        self.running = [
            self._source()
            .selectExpr(*hashed)
            .writeStream.format("parquet")
            .option("path", str(self._folder / "parquet"))
            .option("checkpointLocation", str(self._folder / "checkpoint-parquet"))
            .trigger(**trigger)
            .start(),
            self._source()
            .select("key", "value")
            .writeStream.format("goqueue")
            .option("servers", self._servers)
            .option("topic", f"{self._topic}-copy")
            .option("batchRows", ROWS_A_BATCH)
            .option("checkpointLocation", str(self._folder / "checkpoint-copy"))
            .trigger(**trigger)
            .start(),
        ]

    def check(self) -> None:
        """Raises what a query ended with."""
        for query in self.running:
            if query.exception() is not None:
                raise query.exception()

    def stop(self) -> None:
        for query in self.running:
            query.stop()

    def drain(self) -> None:
        self.start(availableNow=True)
        for query in self.running:
            query.awaitTermination()
        self.check()

    def _source(self) -> Any:
        return (
            self._spark.readStream.format("goqueue")
            .option("servers", self._servers)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ROWS_A_TRIGGER)
            .load()
        )


def main() -> int:
    asked = arguments()
    spark = session("goqueue-kills", master=f"local[2,{FAILURES_MAX}]", settings=LOCAL)
    spark.sparkContext.setLogLevel("ERROR")
    queries = Queries(spark, asked.servers, asked.topic, asked.folder)
    queries.start(processingTime="0 seconds")
    parent = os.getppid()
    while not (asked.folder / "finish").exists():
        queries.check()
        if os.getppid() != parent:  # nobody is left to kill this
            return 1
        time.sleep(0.1)
    queries.stop()
    queries.drain()
    found = spark.read.parquet(str(asked.folder / "parquet"))
    rows = found.select("topic", "partition", "offset", "hash").collect()
    (asked.folder / "found.json").write_text(json.dumps([list(row) for row in rows]))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
