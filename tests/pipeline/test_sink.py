"""DataFrames and streams into topics of a real cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goqueue import Client
from tests.cluster.processes import Cluster

TaskContext = pytest.importorskip("pyspark").TaskContext


def made(cluster: Cluster, topic: str, partitions: int = 3) -> str:
    body: dict[str, object] = {"name": topic, "partitions": partitions}
    assert cluster.nodes[0].ask("POST", "/topics", body).status == 201
    return topic


def stored(servers: str, topic: str) -> list[Any]:
    with Client(servers) as client:
        return list(client.messages(topic))


def write(df: Any, servers: str, **options: object) -> None:
    writer = df.write.format("goqueue").mode("append").option("servers", servers)
    writer.options(**options).save()


def test_rows_become_messages_with_all_that_their_columns_say(
    spark: Any, cluster: Cluster, servers: str
) -> None:
    made(cluster, "sink-columns")
    df = spark.sql(
        "SELECT 'v1' AS value, 'k' AS key, 'low' AS lane, 'id-1' AS message_id, "
        "array(named_struct('key', 'h', 'value', binary('x'))) AS headers, 'sink-columns' AS topic"
    )

    write(df, servers)
    write(df.selectExpr("'v2' AS value", "'sink-columns' AS topic", "1 AS partition"), servers)

    first, second = sorted(stored(servers, "sink-columns"), key=lambda message: message.value)
    assert (first.value, first.key, first.message_id) == (b"v1", b"k", "id-1")
    assert (first.headers, first.priority) == ((("h", b"x"),), "low")
    assert (second.value, second.key, second.partition) == (b"v2", None, 1)


def test_a_repeated_write_id_adds_only_what_is_missing(
    spark: Any, cluster: Cluster, servers: str
) -> None:
    """The second time in another order, as a shuffle may bring it, and with equal rows."""
    made(cluster, "sink-write-id")
    rows = spark.range(0, 900, 1, 2).selectExpr("cast(id % 300 AS string) AS value")
    half = rows.where("spark_partition_id() = 0")
    same = {"topic": "sink-write-id", "writeId": "load-7", "batchRows": 40}

    write(half, servers, **same)
    write(rows.sortWithinPartitions("value"), servers, **same)

    wanted = Counter(str(number % 300).encode() for number in range(900))
    assert Counter(message.value for message in stored(servers, "sink-write-id")) == wanted


def test_what_is_wrong_is_told_before_a_row_is_written(
    spark: Any, cluster: Cluster, servers: str
) -> None:
    df = spark.sql("SELECT 'v' AS value")

    with pytest.raises(Exception, match="topic sink-missing: there is no such topic"):
        write(df, servers, topic="sink-missing")

    made(cluster, "sink-refused", 1)
    with pytest.raises(Exception, match=r"row 0 of Spark partition 0.*column partition"):
        write(df.selectExpr("value", "5 AS partition"), servers, topic="sink-refused")
    assert stored(servers, "sink-refused") == []


def test_a_task_that_dies_is_repeated_without_a_double(
    spark: Any, cluster: Cluster, servers: str, tmp_path: Path
) -> None:
    """A streaming query falls in the middle of a micro-batch, and goes on from its checkpoint."""
    made(cluster, "sink-from", 2)
    made(cluster, "sink-to", 2)
    numbers = spark.range(0, 400, 1, 2).selectExpr("cast(id AS string) AS value")
    write(numbers.selectExpr("value", "value AS key"), servers, topic="sink-from")
    tripwire = tmp_path / "fell"

    def fall(batches: Any) -> Any:
        """The second task, once the first has written something."""
        for batch in batches:
            if TaskContext.get().partitionId() == 1 and not tripwire.exists():
                ends_s = time.monotonic() + 30
                while not stored(servers, "sink-to") and time.monotonic() < ends_s:
                    time.sleep(0.05)
                tripwire.touch()
                raise RuntimeError("killed by the test")
            yield batch

    def run() -> Any:
        source = spark.readStream.format("goqueue").option("servers", servers)
        read = source.options(subscribe="sink-from", startingOffsets="earliest").load()
        sink = read.select("value", "key").mapInArrow(fall, "value binary, key binary").writeStream
        sink = sink.format("goqueue").option("servers", servers).option("topic", "sink-to")
        sink = sink.options(batchRows=25, checkpointLocation=str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return query.exception()

    with pytest.raises(Exception, match="killed by the test"):
        run()
    before = len(stored(servers, "sink-to"))
    run()

    assert 0 < before < 400
    wanted = Counter(str(number).encode() for number in range(400))
    assert Counter(message.value for message in stored(servers, "sink-to")) == wanted


class Interrupted:
    """A streaming query from one topic into another that falls in its first micro-batch: once the
    first row of Spark partition `at` comes by and something is stored."""

    def __init__(self, spark: Any, servers: str, name: str, folder: Path) -> None:
        self._spark, self._servers, self._name, self._folder = spark, servers, name, folder

    def run(
        self,
        *,
        falls: bool = False,
        reads: dict[str, object] | None = None,
        reshape: Callable[[Any], Any] = lambda df: df,
        at: int = 1,
    ) -> None:
        """To the end of what there is. Raises what the query ended with."""
        servers, target = self._servers, f"{self._name}-to"

        def fall(batches: Any) -> Any:
            for batch in batches:
                if falls and TaskContext.get().partitionId() == at:
                    ends_s = time.monotonic() + 30
                    while not stored(servers, target) and time.monotonic() < ends_s:
                        time.sleep(0.05)
                    raise RuntimeError("killed by the test")
                yield batch

        source = self._spark.readStream.format("goqueue").option("servers", servers)
        source = source.options(subscribe=f"{self._name}-from", startingOffsets="earliest")
        read = reshape(source.options(**(reads or {})).load().select("value", "key"))
        sink = read.mapInArrow(fall, "value binary, key binary").writeStream.format("goqueue")
        sink = sink.option("servers", servers).option("topic", target)
        sink = sink.options(batchRows=25, checkpointLocation=str(self._folder / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        if query.exception() is not None:
            raise query.exception()


@pytest.fixture
def numbers(spark: Any, cluster: Cluster, servers: str, tmp_path: Path) -> Callable[..., Any]:
    """400 keyed numbers in a topic of so many partitions, and an empty topic."""

    def make(name: str, source: int, target: int) -> Interrupted:
        made(cluster, f"{name}-from", source)
        made(cluster, f"{name}-to", target)
        rows = spark.range(0, 400, 1, 2).selectExpr("cast(id AS string) AS value")
        rows = rows.selectExpr("value", "value AS key")
        write(rows, servers, topic=f"{name}-from")
        return Interrupted(spark, servers, name, tmp_path)

    return make


WANTED = Counter(str(number).encode() for number in range(400))


def test_a_batch_that_comes_again_is_split_as_it_was_whatever_the_options_say(
    servers: str, numbers: Callable[..., Interrupted]
) -> None:
    """One partition in four tasks; killed, and started again without `minPartitions`."""
    query = numbers("sink-split", 1, 2)
    with pytest.raises(Exception, match="killed by the test"):
        query.run(falls=True, reads={"minPartitions": 4}, at=3)
    before = len(stored(servers, "sink-split-to"))

    query.run(reads={"minPartitions": 1})

    assert 0 < before < 400
    assert Counter(message.value for message in stored(servers, "sink-split-to")) == WANTED


def test_partitions_that_the_topic_gets_between_attempts_move_no_row(
    cluster: Cluster, servers: str, numbers: Callable[..., Interrupted]
) -> None:
    query = numbers("sink-grows", 2, 3)
    with pytest.raises(Exception, match="killed by the test"):
        query.run(falls=True)
    before = len(stored(servers, "sink-grows-to"))
    with Client(servers) as client:
        client.admin.add_partitions("sink-grows-to", 4)

    query.run()

    assert 0 < before < 400
    assert Counter(message.value for message in stored(servers, "sink-grows-to")) == WANTED


@pytest.mark.parametrize("reshape", ["coalesce", "repartition"])
def test_fewer_spark_partitions_than_before_are_never_passed_over(
    spark: Any, cluster: Cluster, servers: str, reshape: str
) -> None:
    """Four tasks wrote all rows, one is to repeat the write: the job fails."""
    topic = made(cluster, f"sink-fewer-{reshape}")
    rows = spark.range(0, 400, 1, 4).selectExpr("cast(id AS string) AS value")
    same = {"topic": topic, "writeId": "load-8", "batchRows": 40}
    write(rows, servers, **same)
    assert len(stored(servers, topic)) == 400

    with pytest.raises(Exception, match=r"stored rows of Spark partition \d+, and this one has \d"):
        write(getattr(rows, reshape)(1), servers, **same)


@pytest.mark.parametrize("reshape", ["coalesce", "repartition"])
def test_fewer_spark_partitions_than_before_write_nothing_where_their_number_is_told(
    spark: Any, cluster: Cluster, servers: str, reshape: str
) -> None:
    topic = made(cluster, f"sink-told-{reshape}")
    rows = spark.range(0, 400, 1, 4).selectExpr("cast(id AS string) AS value")
    same = {"topic": topic, "writeId": "load-9", "batchRows": 40}
    write(rows.where("id < 350"), servers, **same, sparkPartitions=4)
    before = len(stored(servers, topic))

    with pytest.raises(Exception, match=r"stored rows of Spark partition 2, and this one has 2 "):
        write(getattr(rows, reshape)(2), servers, **same, sparkPartitions=2)

    assert len(stored(servers, topic)) == before == 350
    write(rows, servers, **same, sparkPartitions=4)
    assert Counter(message.value for message in stored(servers, topic)) == WANTED
