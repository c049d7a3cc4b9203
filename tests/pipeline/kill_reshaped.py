"""The program of `test_reshaped_kills`: one topic into others, by queries of several shapes.

`--shapes` is a JSON list of attempts: `to` is the topic that is written and names the checkpoint,
`least` the source's minPartitions, `reshape` a method of the DataFrame with its number, `told` the
sink's sparkPartitions. They run one after the other, each to its end, and a line of JSON tells how
each of them ended. With `--stuck` they run at once, and each task stops in the middle of its rows
until it is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.session import session
from tests.pipeline.conftest import LOCAL, quick_python
from tests.pipeline.kill_query import QUICK

ROWS_A_BATCH = 5
TASKS = 4
"""Of one query; two queries run at once."""
PIECE = "spark.sql.execution.arrow.maxRecordsPerBatch"
PIECE_ROWS = 50
STUCK_AFTER = 8
"""Pieces of a task's twelve: more than the pipes between Spark's processes hold back."""
STUCK_S = 600.0
"""Longer than anybody waits before the kill."""


def stuck(pieces: Any) -> Any:
    """The first rows, which are stored, and then nothing."""
    yield from islice(pieces, STUCK_AFTER)
    time.sleep(STUCK_S)


def begun(spark: Any, asked: argparse.Namespace, shape: dict[str, Any]) -> Any:
    source = spark.readStream.format("goqueue").option("servers", asked.servers)
    source = source.options(subscribe=asked.topic, startingOffsets="earliest")
    rows = source.option("minPartitions", shape["least"]).load().select("value")
    if shape.get("reshape"):
        method, number = shape["reshape"]
        rows = getattr(rows, method)(number)
    if asked.stuck:
        rows = rows.mapInArrow(stuck, "value binary")
    sink = rows.writeStream.format("goqueue").option("servers", asked.servers)
    sink = sink.options(topic=shape["to"], batchRows=ROWS_A_BATCH)
    if shape.get("told"):
        sink = sink.option("sparkPartitions", shape["told"])
    sink = sink.option("checkpointLocation", str(asked.folder / f"checkpoint-{shape['to']}"))
    return sink.trigger(availableNow=True).start()


def ended(query: Any) -> None:
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        print(json.dumps({"error": str(error)}), flush=True)
    else:
        print(json.dumps({"error": ""}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--shapes", type=json.loads, required=True)
    parser.add_argument("--stuck", action="store_true")
    asked = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = str(quick_python(asked.folder))
    settings = {**LOCAL, **QUICK, PIECE: str(PIECE_ROWS)}
    spark = session("goqueue-reshaped", master=f"local[{2 * TASKS}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    running = []
    for shape in asked.shapes:
        query = begun(spark, asked, shape)
        if asked.stuck:
            running.append(query)
        else:
            ended(query)
    for query in running:
        ended(query)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
