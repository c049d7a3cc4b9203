"""The format `goqueue.events` on a real cluster: what it tells of messages, in batches and streams,
while brokers die and retention goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, StructField, StructType

from goqueue import Client, OutgoingMessage
from pipeline.events.datasource import EventsStreamReader
from pipeline.options import Options
from pipeline.source.options import parse
from tests.cluster.processes import Cluster
from tests.pipeline.messages import trim

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

TOPIC, COUNT = "events-orders", 300
JOIN = ["topic", "partition", "offset"]


@pytest.fixture(scope="module")
def client(servers: str) -> Iterator[Client]:
    with Client(servers.split(",")) as client:
        yield client


@pytest.fixture(scope="module")
def worked(client: Client) -> str:
    """Messages of two partitions: all received, some failed once, the rest acked."""
    client.create_topic(TOPIC, partitions=2, replication_factor=3)
    publish(client, 0, COUNT)
    work(client, COUNT)
    return TOPIC


def publish(client: Client, first: int, count: int) -> None:
    client.publish_many(
        TOPIC,
        [
            OutgoingMessage(f"v{n}", partition=n % 2, message_id=f"m{n}")
            for n in range(first, first + count)
        ],
    )


def work(client: Client, count: int) -> None:
    """One in ten fails at first."""
    done = 0
    while done < count:
        found = client.receive("g", TOPIC, limit=100, wait="5s")
        failed = [m for m in found if m.offset % 10 == 0 and m.attempt == 1]
        fine = [m for m in found if m not in failed]
        if failed:
            client.nack(failed, reason="broken")
        client.ack(fine)
        done += len(fine)


def events(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    given = {"servers": servers, "subscribe": TOPIC, **options}
    return spark.read.format("goqueue.events").options(**given).load()


def name(row: Row) -> tuple[Any, ...]:
    return row["partition"], row["index"], row["offset"], row["seq"]


def test_a_batch_tells_what_the_timelines_tell_and_joins_with_the_messages(
    spark: SparkSession, servers: str, client: Client, worked: str
) -> None:
    found = events(spark, servers)
    rows = found.collect()

    types = Counter(row["event_type"] for row in rows)
    failed = COUNT // 10
    assert types == {
        "PUBLISHED": COUNT,
        "REPLICATED": COUNT,
        "DELIVERED": COUNT + failed,
        "NACKED": failed,
        "ACKNOWLEDGED": COUNT,
    }
    assert len({name(row) for row in rows}) == len(rows)
    for offset in (0, 7):
        told = client.timeline(f"{TOPIC}:1:{offset}")
        mine = [row for row in rows if (row["partition"], row["offset"]) == (1, offset)]
        assert {(e.time, e.type) for e in told if e.type != "RETAINED"} == {
            (row["timestamp"].astimezone(UTC), row["event_type"]) for row in mine
        }
    nacked = next(row for row in rows if row["event_type"] == "NACKED")
    assert (nacked["group"], nacked["reason"], nacked["attempt"]) == ("g", "broken", 1)
    published = next(row for row in rows if row["event_type"] == "PUBLISHED")
    assert (published["lane"], published["key"]) == ("normal", None)
    assert published["attributes"]["produced_at_ms"].isdigit()

    messages = spark.read.format("goqueue").options(servers=servers, subscribe=TOPIC).load()
    joined = found.filter("event_type = 'PUBLISHED'").join(
        messages.withColumnRenamed("message_id", "id"), JOIN
    )
    assert joined.filter("id = message_id").count() == COUNT


def test_filters_on_partitions_leave_the_others_unread(
    spark: SparkSession, servers: str, worked: str
) -> None:
    found = events(spark, servers).filter("partition = 1 and event_type = 'NACKED'").collect()

    assert {row["partition"] for row in found} == {1}
    assert len(found) == COUNT // 20


def test_a_stream_has_each_event_once_though_it_stops_and_a_broker_dies(
    spark: SparkSession,
    servers: str,
    cluster: Cluster,
    client: Client,
    worked: str,
    tmp_path: Path,
) -> None:
    def run() -> None:
        stream = (
            spark.readStream.format("goqueue.events")
            .options(servers=servers, subscribe=TOPIC, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "8")
            .load()
        )
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    node = cluster.leader(TOPIC, 0)
    node.kill()
    publish(client, COUNT, 100)
    work(client, 100)
    run()
    node.start()
    cluster.wait_until_ready()

    batch = {name(row): row["event_type"] for row in events(spark, servers).collect()}
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len(rows) == len({name(row) for row in rows})
    streamed = {name(row): row["event_type"] for row in rows}
    assert streamed.items() <= batch.items()
    missing = batch.keys() - streamed.keys()
    assert {batch[one] for one in missing} <= {"REPLICATED"}, "told by an entry that came since"


def test_events_that_retention_took_are_missed_by_name(
    spark: SparkSession, servers: str, client: Client
) -> None:
    topic = "events-trimmed"
    client.create_topic(topic, partitions=2, replication_factor=3)
    for _ in range(12):
        client.publish_many(
            topic, [OutgoingMessage(b"x" * 10_000, partition=n % 2) for n in range(100)]
        )
    trim(client, topic, 300_000)
    client.publish_many(topic, [OutgoingMessage(b"kept", partition=n % 2) for n in range(10)])
    given = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1, "1": 1}}}}'}

    with pytest.raises(Exception, match=r"the events of entries 1 to .* failOnDataLoss"):
        events(spark, servers, **given).count()
    left = events(spark, servers, **given, failOnDataLoss="false").filter(
        "event_type = 'PUBLISHED'"
    )

    def earliest() -> dict[int, int]:
        return {part.partition: part.earliest for part in client.partitions(topic)}

    before = earliest()
    found = {row[0]: row[1] for row in left.groupBy("partition").min("offset").collect()}
    assert found.keys() == {0, 1}
    assert all(before[at] <= found[at] <= last for at, last in earliest().items())


def test_new_partitions_of_a_stream_begin_with_their_first_event(
    cluster: Cluster, servers: str, client: Client
) -> None:
    """As Spark calls it, without a session."""
    topic = "events-grows"
    client.create_topic(topic, partitions=1)
    client.publish_many(topic, [b"a", b"b"])
    told = Options({"servers": servers, "subscribe": topic, "startingOffsets": "earliest"})
    schema = StructType(
        [StructField("partition", IntegerType()), StructField("seq", IntegerType())]
    )
    reader = EventsStreamReader(parse(told, streaming=True), schema)
    start = reader.initialOffset()
    body = {"count": 2}
    assert cluster.nodes[0].ask("POST", f"/admin/topics/{topic}/partitions", body).status == 200
    client.publish(topic, b"c", partition=1)

    end = reader.latestOffset(start, ReadAllAvailable())
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    reader.stop()

    assert (start[topic]["offsets"], {*end[topic]["offsets"]}) == ({"0": 1}, {"0", "1"})
    found = Counter(row["partition"] for batch in batches for row in batch.to_pylist())
    assert found[0] >= 2 and found[1] >= 1


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("startingTimestamp", "0", "startingTimestamp: events are read by entry"),
        ("minPartitions", "4", "minPartitions: events are read by entry"),
        ("subscrib", "x", "subscrib: there is no such option; is subscribe meant"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name(
    spark: SparkSession, servers: str, option: str, value: str, told: str
) -> None:
    with pytest.raises(Exception, match=told):
        events(spark, servers, **{option: value}).count()
