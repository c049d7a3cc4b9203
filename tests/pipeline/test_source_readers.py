"""Where reads begin and end, what they survive and what they tell, on a real cluster."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from goqueue import Client
from goqueue.errors import ConnectionFailed
from pipeline.broker import Broker
from pipeline.broker_access import Access
from pipeline.options import OptionError
from pipeline.source.data_loss import DataLoss
from tests.cluster.processes import Cluster
from tests.pipeline.messages import trim
from tests.pipeline.source_reads import batch, places, rows, stream
from tests.ports import free_ports

ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as client:
        yield client


def made(cluster: Cluster, topic: str, partitions: int = 2, **settings: object) -> str:
    body = {"name": topic, "partitions": partitions, **settings}
    assert cluster.nodes[0].ask("POST", "/topics", body).status == 201
    return topic


def fill(client: Client, topic: str, partition: int, count: int, size: int = 10) -> None:
    with client.producer() as producer:
        for number in range(count):
            producer.send(topic, b"%d:" % number + b"x" * size, partition=partition)


def all_places(sizes: dict[int, int]) -> list[tuple[int, int]]:
    return [(number, offset) for number, size in sorted(sizes.items()) for offset in range(size)]


def test_a_batch_reads_from_the_earliest_to_the_latest_in_as_many_tasks_as_asked_for(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "read-all")
    fill(client, topic, 0, 90)
    fill(client, topic, 1, 10)

    reader = batch(servers, subscribe=topic, minPartitions=10)
    parts = pickle.loads(pickle.dumps(reader.partitions()))

    assert len(parts) == 10
    assert places(rows(pickle.loads(pickle.dumps(reader)), parts)) == all_places({0: 90, 1: 10})


def test_a_read_lies_between_offsets_named_by_partition(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "read-between")
    fill(client, topic, 0, 20)
    fill(client, topic, 1, 20)

    found = rows(
        batch(
            servers,
            assign=json.dumps({topic: [0, 1]}),
            startingOffsets=json.dumps({topic: {"0": 18, "1": -2}}),
            endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
        )
    )

    assert places(found) == [(0, 18), (0, 19), (1, 0), (1, 1)]
    for places_told in ({"0": 1}, {"0": 1, "1": 1, "2": 1}, {"0": 1, "1": 21}):
        told = json.dumps({topic: places_told})
        with pytest.raises(OptionError, match=r"^startingOffsets: .*read-between:[12]"):
            batch(servers, subscribe=topic, startingOffsets=told).partitions()


def test_a_time_stands_for_the_first_message_at_or_after_it(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "read-times", partitions=1)
    fill(client, topic, 0, 5)
    time.sleep(0.01)
    middle = client.publish(topic, b"middle", partition=0).offset
    (message,) = client.read(topic, 0, middle, limit=1)
    late = str(message.timestamp_ms + 10**9)

    after = rows(batch(servers, subscribe=topic, startingTimestamp=message.timestamp_ms))
    before = rows(batch(servers, subscribe=topic, endingTimestamp=message.timestamp_ms))
    by_place = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": int(late)}})}

    assert places(after) == [(0, 5)]
    assert places(before) == all_places({0: 5})
    assert rows(batch(servers, subscribe=topic, endingTimestamp=late))[-1][2] == 5
    with pytest.raises(OptionError, match=r"^startingOffsetsByTimestamp: .* has no message"):
        batch(servers, subscribe=topic, **by_place).partitions()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert rows(batch(servers, subscribe=topic, **by_place, **strategy)) == []


def test_pushed_filters_spare_the_brokers_what_they_leave_out(
    cluster: Cluster, servers: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(cluster, "read-filtered")
    for partition in (0, 1):
        for _ in range(10):  # a batch each
            fill(client, topic, partition, 10, size=1000)
    taken: list[int] = []
    read = Broker.read

    def counting(*arguments: object, **named: object) -> object:
        page = read(*arguments, **named)  # type: ignore[arg-type]
        taken.append(len(page.body))
        return page

    monkeypatch.setattr(Broker, "read", counting)
    plain, pushed = batch(servers, subscribe=topic), batch(servers, subscribe=topic)
    filters = [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 80)]

    assert list(pushed.pushFilters([*filters, EqualTo(("value",), b"x")])) == [
        EqualTo(("value",), b"x")
    ]
    everything = rows(plain)
    whole_bytes = sum(taken)
    taken.clear()
    found = rows(pushed)

    assert found == [row for row in everything if row[1] == 1 and row[2] >= 80]
    assert 0 < sum(taken) < whole_bytes / 5
    future = batch(servers, subscribe=topic)
    assert not list(
        future.pushFilters([GreaterThanOrEqual(("timestamp",), datetime(2100, 1, 1, tzinfo=UTC))])
    )
    assert rows(future) == []


def test_a_topic_that_does_not_exist_is_named(servers: str) -> None:
    with pytest.raises(OptionError, match="subscribe: there is no topic no-such-topic"):
        batch(servers, subscribe="no-such-topic").partitions()
    assert batch(servers, subscribePattern="no-such-.*").partitions() == []


def test_what_retention_took_is_an_error_that_says_which_offsets_or_a_warning(
    cluster: Cluster, servers: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(cluster, "read-lost", partitions=1)
    for _ in range(10):
        fill(client, topic, 0, 100, size=1000)
    planned = batch(servers, subscribe=topic).partitions()
    reader = stream(servers, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    trim(client, topic, 300_000)
    with Broker(Access(tuple(servers.split(",")))) as broker:
        log_start = broker.spans(topic, [0])[0].start
    lost = f"read-lost:0: offsets 0 to {log_start - 1} are deleted"

    for failing in (
        lambda: rows(batch(servers, subscribe=topic), planned),
        lambda: batch(
            servers, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}})
        ).partitions(),
        lambda: reader.latestOffset(start, ALL),
    ):
        with pytest.raises(DataLoss, match=f"{lost}.*failOnDataLoss"):
            failing()

    lenient = batch(servers, subscribe=topic, failOnDataLoss="false")
    assert places(rows(lenient, planned)) == [(0, n) for n in range(log_start, 1000)]
    assert lost in capsys.readouterr().err


def test_a_stream_takes_its_share_a_trigger_and_reads_the_same_for_the_same_batch(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-shares")
    fill(client, topic, 0, 60)
    fill(client, topic, 1, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    reader = stream(servers, **options)

    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    end = reader.latestOffset(middle, ReadAllAvailable())

    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    assert middle[topic]["offsets"] == {"0": 30, "1": 10}
    assert end[topic]["offsets"] == {"0": 60, "1": 20}
    assert reader.latestOffset(end, ALL) == end
    first = rows(reader, reader.partitions(start, middle))
    reader.stop()
    again = stream(servers, **options)  # as after a restart: positions come from the checkpoint
    assert rows(again, again.partitions(start, middle)) == first
    rest = rows(again, again.partitions(middle, end))
    assert sorted(places(first + rest)) == all_places({0: 60, 1: 20})


def test_an_available_now_stream_ends_where_the_topic_ended_when_it_began(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-now", partitions=1)
    fill(client, topic, 0, 10)
    reader = stream(servers, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=1000)
    start = reader.initialOffset()

    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start  # too little to begin
    reader.prepareForTriggerAvailableNow()
    fill(client, topic, 0, 5)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    assert end[topic]["offsets"] == {"0": 10}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_new_partitions_and_new_topics_begin_with_their_first_message(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-grows-1", partitions=1)
    fill(client, topic, 0, 3)
    reader = stream(servers, subscribePattern="stream-grows-.*")  # from the latest
    start = reader.initialOffset()
    body = {"count": 2}
    assert cluster.nodes[0].ask("POST", f"/admin/topics/{topic}/partitions", body).status == 200
    made(cluster, "stream-grows-2", partitions=1)
    fill(client, topic, 1, 2)
    fill(client, "stream-grows-2", 0, 4)

    end = reader.latestOffset(start, ALL)
    found = rows(reader, reader.partitions(start, end))

    assert [row[:3] for row in found] == [
        *((topic, 1, offset) for offset in range(2)),
        *(("stream-grows-2", 0, offset) for offset in range(4)),
    ]


def test_a_partition_that_is_no_longer_chosen_keeps_its_place(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-narrowed")
    fill(client, topic, 0, 6)
    fill(client, topic, 1, 6)
    both, one = json.dumps({topic: [0, 1]}), json.dumps({topic: [0]})
    wide = stream(servers, assign=both, startingOffsets="earliest")
    end = wide.latestOffset(wide.initialOffset(), ALL)
    fill(client, topic, 1, 2)

    narrow = stream(servers, assign=one)
    later = narrow.latestOffset(end, ALL)
    back = wide.latestOffset(later, ALL)

    assert later == end
    assert places(rows(wide, wide.partitions(later, back))) == [(1, 6), (1, 7)]


def test_a_recreated_topic_is_told_from_the_old_one(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-again", partitions=1)
    fill(client, topic, 0, 8)
    reader = stream(servers, subscribe=topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    client.delete_topic(topic)
    with pytest.raises(DataLoss, match="stream-again was deleted"):
        reader.latestOffset(end, ALL)
    with pytest.raises(DataLoss, match="stream-again was deleted"):
        rows(reader, reader.partitions(start, end))
    made(cluster, topic, partitions=1)
    fill(client, topic, 0, 12)

    with pytest.raises(DataLoss, match="stream-again was deleted and created again"):
        reader.latestOffset(end, ALL)
    with pytest.raises(DataLoss, match="stream-again was deleted and created again"):
        rows(reader, reader.partitions(start, end))
    lenient = stream(servers, subscribe=topic, failOnDataLoss="false")
    assert rows(lenient, lenient.partitions(start, end)) == []
    now = lenient.latestOffset(end, ALL)
    assert places(rows(lenient, lenient.partitions(end, now))) == all_places({0: 12})


def test_a_range_is_read_whole_while_its_leader_is_killed(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "read-killed", partitions=1)
    for _ in range(20):  # a batch each
        fill(client, topic, 0, 20, size=1000)
    reader = batch(servers, subscribe=topic, maxBytesPerSecond=160_000)
    (part,) = reader.partitions()
    leader = cluster.leader(topic)

    batches = reader.read(part)
    offsets = next(batches).column("offset").to_pylist()
    leader.kill()
    try:
        offsets += [row["offset"] for batch in batches for row in batch.to_pylist()]
    finally:
        leader.start()
        cluster.wait_until_ready()

    assert offsets == list(range(400))


def test_a_read_is_planned_while_brokers_are_down_and_names_one_when_none_answers(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "plan-down")
    for partition in (0, 1):
        fill(client, topic, partition, 5)
    killed = cluster.leader(topic)
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"

    killed.kill()
    try:
        found = rows(batch(f"{nowhere},{killed.url},{servers}", subscribe=topic))
    finally:
        killed.start()
        cluster.wait_until_ready()
    with pytest.raises(ConnectionFailed, match=nowhere):
        batch(nowhere, subscribe=topic, requestTimeout="1s").partitions()

    assert places(found) == all_places({0: 5, 1: 5})


def test_a_rate_bounds_how_fast_a_task_reads(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "read-paced", partitions=1)
    for _ in range(10):  # a batch each
        fill(client, topic, 0, 10, size=1000)

    began_s = time.monotonic()
    found = rows(batch(servers, subscribe=topic, maxBytesPerSecond=100_000))

    assert len(found) == 100
    assert time.monotonic() - began_s > 0.6, "100 kB, of which the last quarter is waited for"


def test_a_stream_begins_at_a_time_and_where_no_message_is_so_late_as_it_is_told(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-times")
    fill(client, topic, 0, 5)
    time.sleep(0.01)
    fill(client, topic, 1, 3)
    (message,) = client.read(topic, 1, 0, limit=1)
    late = {"subscribe": topic, "startingTimestamp": message.timestamp_ms}

    with pytest.raises(OptionError, match=rf"^startingTimestamp: {topic}:0 has no message"):
        stream(servers, **late).initialOffset()
    begun = stream(servers, **late, startingOffsetsByTimestampStrategy="latest").initialOffset()

    assert begun[topic]["offsets"] == {"0": 5, "1": 0}


def test_a_stream_that_waits_for_more_waits_no_longer_than_it_may(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-waits", partitions=1)
    fill(client, topic, 0, 10)
    least = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 20}
    reader, hasty = stream(servers, **least), stream(servers, **least, maxTriggerDelay="1ms")
    start = reader.initialOffset()

    waiting = reader.latestOffset(start, reader.getDefaultReadLimit())
    some = hasty.latestOffset(start, hasty.getDefaultReadLimit())
    fill(client, topic, 0, 10)
    enough = reader.latestOffset(start, reader.getDefaultReadLimit())

    assert waiting == start
    assert [at[topic]["offsets"]["0"] for at in (some, enough)] == [10, 20]


def test_a_log_that_has_become_shorter_is_a_loss_or_read_on_from_its_end(
    cluster: Cluster, servers: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = made(cluster, "stream-shorter", partitions=1)
    fill(client, topic, 0, 8)
    lenient = stream(servers, subscribe=topic, failOnDataLoss="false")
    strict = stream(servers, subscribe=topic)
    beyond = {topic: {**lenient.initialOffset()[topic], "offsets": {"0": 12}}}

    with pytest.raises(DataLoss, match=r"had come to offset 12, but the log ends at 8"):
        strict.latestOffset(beyond, ALL)
    end = lenient.latestOffset(beyond, ALL)
    nothing = rows(lenient, lenient.partitions(beyond, end))
    fill(client, topic, 0, 2)
    after = lenient.latestOffset(end, ALL)

    assert nothing == [] and "the log ends at 8" in capsys.readouterr().err
    assert places(rows(lenient, lenient.partitions(end, after))) == [(0, 8), (0, 9)]


def test_a_restarted_stream_refuses_a_name_that_is_none_and_a_checkpoint_that_is_not_its_own(
    cluster: Cluster, servers: str, client: Client
) -> None:
    topic = made(cluster, "stream-restarted", partitions=1)
    place = stream(servers, subscribe=topic).initialOffset()

    with pytest.raises(OptionError, match=r"^subscribe: there is no topic stream-restrated$"):
        stream(servers, subscribe=f"{topic},stream-restrated").latestOffset(place, ALL)
    for strange in ({topic: {"0": 12}}, {"number": 7}):  # of Kafka's connector, of another source
        with pytest.raises(OptionError, match=r"^checkpointLocation: .*another source"):
            stream(servers, subscribe=topic).latestOffset(strange, ALL)
