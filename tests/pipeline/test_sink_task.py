"""Where a task's rows go, and in how many requests: a cluster without Spark."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from goqueue import Client  # noqa: E402
from goqueue.wire.partitioner import partition_for  # noqa: E402
from pipeline.sink import task as task_module  # noqa: E402
from pipeline.sink.columns import Columns  # noqa: E402
from pipeline.sink.errors import SinkError  # noqa: E402
from pipeline.sink.identity import (  # noqa: E402
    BATCH_ID,
    QUERY_ID,
    RUN_ID,
    Identity,
    of_stream,
    of_write,
)
from pipeline.sink.options import SinkOptions  # noqa: E402
from pipeline.sink.sequence import Tally  # noqa: E402
from pipeline.sink.task import TaskWrite  # noqa: E402
from tests.cluster.processes import Cluster  # noqa: E402


def wrote(servers: str, identity: Identity, columns: dict[str, list[Any]], **options: str) -> Tally:
    """One task that gets its rows in Arrow batches of seven."""
    kinds = {"partition": types.IntegerType()}
    schema = types.StructType()
    for name in columns:
        schema.add(name, kinds.get(name, types.StringType()))
    table = pa.table(columns)
    told = SinkOptions.of({"servers": servers, **options}, streaming=False)
    with TaskWrite(identity, Columns.of(schema), told) as task:
        for batch in table.to_batches(max_chunksize=7):
            task.write(batch)
        return task.finish()


def places(servers: str, topic: str) -> dict[str, int]:
    with Client(servers) as client:
        return {message.value.decode(): message.partition for message in client.messages(topic)}


def made(cluster: Cluster, topic: str) -> str:
    body: dict[str, object] = {"name": topic, "partitions": 3}
    assert cluster.nodes[0].ask("POST", "/topics", body).status == 201
    return topic


def test_a_row_goes_where_every_attempt_looks_for_it(cluster: Cluster, servers: str) -> None:
    topic = made(cluster, "sink-task-places")
    values = [f"v{number}" for number in range(40)]
    columns: dict[str, list[Any]] = {
        "value": values,
        "partition": [2 if number < 5 else None for number in range(40)],
        "key": [f"k{number}" if number < 15 else None for number in range(40)],
        "message_id": [f"m{number}" if number < 25 else None for number in range(40)],
    }
    identity = of_write("places", 4)(6)

    assert wrote(servers, identity, columns, topic=topic) == Tally(40, 0)
    backwards = {name: column[::-1] for name, column in columns.items()}
    assert wrote(servers, identity, backwards, topic=topic, batchRows="4") == Tally(0, 40)

    found = places(servers, topic)
    assert [found[value] for value in values[:5]] == [2] * 5
    assert [found[f"v{n}"] for n in range(5, 15)] == [
        partition_for(f"k{n}".encode(), 3) for n in range(5, 15)
    ]
    assert [found[f"v{n}"] for n in range(15, 25)] == [
        partition_for(f"m{n}".encode(), 3) for n in range(15, 25)
    ]
    assert {found[f"v{n}"] for n in range(25, 40)} == {(6 + 4) % 3}


def test_rows_go_to_the_topics_that_they_name(cluster: Cluster, servers: str) -> None:
    topics = [made(cluster, "sink-task-a"), made(cluster, "sink-task-b")]
    columns: dict[str, list[Any]] = {
        "value": [f"v{number}" for number in range(30)],
        "topic": [topics[number % 2] for number in range(30)],
    }

    wrote(servers, of_write(None, 0)(0), columns)

    assert set(places(servers, topics[0])) == {f"v{number}" for number in range(0, 30, 2)}
    assert set(places(servers, topics[1])) == {f"v{number}" for number in range(1, 30, 2)}


def test_a_row_that_the_servers_refuse_is_named(cluster: Cluster, servers: str) -> None:
    topic = made(cluster, "sink-task-refused")
    columns: dict[str, list[Any]] = {"value": ["a", "b", None], "partition": [0, 0, 0]}

    with pytest.raises(SinkError, match=r"row 2 of Spark partition 3, partition 0 of topic sink"):
        wrote(servers, of_write(None, 0)(3), columns, topic=topic)


@pytest.mark.parametrize("kind", ["key", "message_id", "neither"])
def test_a_repeated_task_puts_its_rows_where_the_first_did_though_the_topic_has_grown(
    cluster: Cluster, servers: str, kind: str
) -> None:
    topic = made(cluster, f"sink-task-grows-{kind.replace('_', '-')}")
    values = [f"v{number}" for number in range(60)]
    columns: dict[str, list[Any]] = {"value": values}
    if kind != "neither":
        columns[kind] = [f"k{number}" for number in range(60)]
    first = {name: column[:40] for name, column in columns.items()}
    identity = of_write("grows", 4)(6)
    wrote(servers, identity, first, topic=topic)
    with Client(servers) as client:
        client.admin.add_partitions(topic, 7)

    assert wrote(servers, identity, columns, topic=topic, batchRows="4") == Tally(20, 40)

    assert sorted(places(servers, topic)) == sorted(values)
    with Client(servers) as client:
        assert sum(1 for _ in client.messages(topic)) == 60


def test_rows_in_partitions_that_a_repeated_task_never_comes_to_are_noticed(
    cluster: Cluster, servers: str
) -> None:
    topic = made(cluster, "sink-task-elsewhere")
    identity = of_write("elsewhere", 0)(0)
    wrote(servers, identity, {"value": ["a"], "partition": [0]}, topic=topic)

    with pytest.raises(SinkError, match=r"partition 0 .* stored rows there, and this one has none"):
        wrote(servers, identity, {"value": ["b"], "partition": [1]}, topic=topic)


def test_a_first_attempt_asks_nothing_and_neither_does_a_later_micro_batch_of_the_run(
    cluster: Cluster, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(cluster, "sink-task-asks")
    asked = list[int]()
    standings = task_module.standings

    def counted(broker: Any, facts: Any, identity: Identity) -> Any:
        asked.append(identity.epoch)
        return standings(broker, facts, identity)

    monkeypatch.setattr(task_module, "standings", counted)
    columns: dict[str, list[Any]] = {"value": ["a"], "key": ["k"]}

    def of_batch(number: int, run: str) -> Identity:
        told = {QUERY_ID: "q", BATCH_ID: str(number), RUN_ID: run}
        return of_stream(told.get, 0)

    wrote(servers, of_write(None, 0)(0, True), columns, topic=topic)
    for number, run in ((5, "a"), (6, "a"), (7, "a"), (7, "b"), (7, "b"), (8, "b")):
        wrote(servers, of_batch(number, run), columns, topic=topic)

    assert asked == [5, 7, 7]


def test_a_task_beyond_the_number_that_is_told_writes_nothing(
    cluster: Cluster, servers: str
) -> None:
    topic = made(cluster, "sink-task-beyond")

    with pytest.raises(SinkError, match="sparkPartitions: it tells 2, and there is a Spark part"):
        wrote(servers, of_write("b", 0)(2), {"value": ["a"]}, topic=topic, sparkPartitions="2")

    assert places(servers, topic) == {}


def test_rows_of_a_task_beyond_the_number_that_is_told_refuse_all_others(
    cluster: Cluster, servers: str
) -> None:
    topic = made(cluster, "sink-task-told")
    wrote(servers, of_write("told", 0)(3), {"value": ["a"]}, topic=topic, sparkPartitions="4")

    with pytest.raises(SinkError, match="stored rows of Spark partition 3, and this one has 2 "):
        wrote(servers, of_write("told", 0)(0), {"value": ["a"]}, topic=topic, sparkPartitions="2")

    assert list(places(servers, topic)) == ["a"]
