"""`spark.read` and `spark.readStream` of the format `goqueue`, from a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from goqueue import Client, OutgoingMessage
from pipeline.session import LOGGING
from tests.cluster.processes import Cluster
from tests.pipeline.conftest import QUICK_JAVA, ROOT_PATHS, quick_python
from tests.pipeline.source_reads import Row

TRACE = "0af7651916cd43dd8448eb211c80319c"


def made(cluster: Cluster, topic: str, partitions: int = 2) -> str:
    body = {"name": topic, "partitions": partitions}
    assert cluster.nodes[0].ask("POST", "/topics", body).status == 201
    return topic


def fill(servers: str, topic: str, first: int, count: int) -> None:
    messages = [
        OutgoingMessage(b"value-%d" % number, b"key-%d" % number, partition=number % 2)
        for number in range(first, first + count)
    ]
    with Client(servers) as client:
        client.publish_many(topic, messages)


def stored(servers: str, topic: str) -> list[Row]:
    with Client(servers) as client:
        return sorted((topic, m.partition, m.offset, m.value) for m in client.messages(topic))


def rows(df: Any) -> list[Row]:
    found = df.select("topic", "partition", "offset", "value").collect()
    return sorted((r[0], r[1], r[2], bytes(r[3])) for r in found)


def test_a_topic_is_a_dataframe_with_all_that_its_messages_hold(
    spark: Any, cluster: Cluster, servers: str
) -> None:
    topic = made(cluster, "source-columns", partitions=1)
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "n": b"\xff"}
    with Client(servers) as client:
        first = client.publish(
            topic, b"v", key=b"k", headers=headers, priority="low", message_id="id-1", delay="1h"
        )
        client.publish(topic, b"", key=None)
        message, _ = client.messages(topic)

    df = spark.read.format("goqueue").option("servers", servers).option("subscribe", topic)
    plain, full = df.load(), df.option("includeHeaders", "true").load()
    one, two = full.orderBy("offset").collect()

    assert plain.columns == [name for name in full.columns if name != "headers"]
    assert full.columns[:8] == [
        *("key", "value", "topic", "partition", "offset"),
        *("timestamp", "timestampType", "headers"),
    ]
    assert (bytes(one.key), bytes(one.value), one.offset) == (b"k", b"v", 0)
    assert one.timestamp.timestamp() * 1000 == pytest.approx(message.timestamp_ms)
    assert one.deliver_at.timestamp() * 1000 == pytest.approx(first.deliver_at_ms)
    assert [(h.key, bytes(h.value)) for h in one.headers] == list(message.headers)
    assert (one.message_id, one.lane, one.trace_id) == ("id-1", "low", TRACE)
    assert (two.key, bytes(two.value), two.headers, two.trace_id) == (None, b"", [], None)
    assert (two.timestampType, two.attempts, two.message_id) == (1, None, None)


def test_explain_shows_the_filters_that_brokers_are_spared(
    spark: Any, cluster: Cluster, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(cluster, "source-filters")
    fill(servers, topic, 0, 40)
    df = spark.read.format("goqueue").option("servers", servers).option("subscribe", topic).load()

    found = df.where("partition = 1 AND offset >= 15 AND timestamp > '2020-01-01' AND key <> 'x'")
    found.explain("formatted")

    told = capsys.readouterr().out
    (pushed,) = [line for line in told.splitlines() if line.startswith("PushedFilters")]
    assert "EqualTo(partition,1)" in pushed and "GreaterThanOrEqual(offset,15)" in pushed
    assert "GreaterThan(timestamp," in pushed and "key" not in pushed
    assert [row[1:3] for row in rows(found)] == [(1, offset) for offset in range(15, 20)]


def test_a_stopped_stream_goes_on_from_its_checkpoint_without_a_gap_or_a_double(
    spark: Any, cluster: Cluster, servers: str, tmp_path: Path
) -> None:
    topic = made(cluster, "source-stream")
    fill(servers, topic, 0, 30)

    def run() -> int:
        reader = spark.readStream.format("goqueue").option("servers", servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        writer = reader.option("maxOffsetsPerTrigger", 20).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        return len([p for p in query.recentProgress if p.numInputRows])

    assert run() == 2
    fill(servers, topic, 30, 15)
    assert run() == 1

    assert rows(spark.read.parquet(str(tmp_path / "out"))) == stored(servers, topic)


def test_a_mistake_is_told_in_a_sentence_that_names_the_option(spark: Any, servers: str) -> None:
    read = spark.read.format("goqueue").option("servers", servers)

    with pytest.raises(Exception, match="subscribe: there is no topic no-such-topic"):
        read.option("subscribe", "no-such-topic").load().collect()


def test_plans_do_not_show_the_api_key(spark: Any) -> None:
    conf = spark._jsparkSession.sessionState().conf()
    options = {"topic": "orders", "apiKey": "hidden", "APIKEY": "hidden"}

    told = conf.redactOptions(spark._jvm.PythonUtils.toScalaMap(options)).toString()

    assert "orders" in told and "hidden" not in told


def test_a_session_says_nothing_that_every_start_says(spark: Any) -> None:
    told = spark._jvm.java.lang.System.getProperty("log4j2.configurationFile")

    assert Path(told.removeprefix("file://")).samefile(LOGGING)
    assert "NativeCodeLoader" in LOGGING.read_text()


APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]").appName("goqueue-local-cluster")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", sys.argv[3])
    .config("spark.executor.extraJavaOptions", sys.argv[3]).getOrCreate()
)
df = spark.read.format("goqueue").option("servers", sys.argv[1]).option("subscribe", sys.argv[2])
for row in df.option("minPartitions", 4).load().select("partition", "offset", "value").collect():
    print("ROW", row.partition, row.offset, bytes(row.value).decode())
spark.stop()
"""


def test_executors_of_their_own_read_and_nobody_has_registered_the_format(
    spark: Any, cluster: Cluster, servers: str, tmp_path: Path
) -> None:
    topic = made(cluster, "source-executors")
    fill(servers, topic, 0, 30)
    (tmp_path / "application.py").write_text(APPLICATION)
    python = str(quick_python(tmp_path))
    around = {**os.environ, "PYTHONPATH": ROOT_PATHS, "PYSPARK_PYTHON": python}

    ended = subprocess.run(
        [sys.executable, str(tmp_path / "application.py"), servers, topic, QUICK_JAVA],
        cwd=tmp_path,
        env={**around, "SPARK_LOCAL_DIRS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-3000:]
    told = [line.split() for line in ended.stdout.splitlines() if line.startswith("ROW ")]
    found = sorted((topic, int(p), int(o), value.encode()) for _, p, o, value in told)
    assert found == stored(servers, topic)
