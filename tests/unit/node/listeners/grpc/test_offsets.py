"""OffsetService: where groups stand and go on, as HTTP's routes have it; and TransactionService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from goqueue.wire.batch import encode_columns
from node.api.members import JoinRequest
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.unit.node.listeners.grpc.client import Served, served


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    async with served() as found:
        await found.broker.topics.create_topic("orders", {"partitions": 2})
        for partition in (0, 1):
            batch = encode_columns([b"v"] * 5, None)
            await found.broker.records.append("orders", partition, batch, deadline_s=30)
        yield found


def place(partition: int, topic: str = "orders") -> pb.TopicPartition:
    return pb.TopicPartition(topic=topic, partition=partition)


def at(partition: int, offset: int, topic: str = "orders") -> pb.OffsetCommit:
    return pb.OffsetCommit(topic=topic, partition=partition, offset=offset, metadata="mine")


async def fetched(node: Served, *places: Any) -> list[tuple[int, int]]:
    told = await node.client.ask("FetchOffsets", group_id="g", partitions=places)
    return [(one.partition, one.offset) for one in told.offsets]


async def test_what_is_committed_is_fetched(node: Served) -> None:
    told = await node.client.ask("CommitOffsets", group_id="g", offsets=[at(0, 3), at(1, 2)])

    assert [(one.partition, one.success) for one in told.results] == [(0, True), (1, True)]
    assert await fetched(node, place(1), place(0)) == [(1, 2), (0, 3)]
    assert await fetched(node) == [(0, 3), (1, 2)]


async def test_each_commit_has_its_own_end(node: Served) -> None:
    offsets = [at(0, 3), at(0, 1, "nowhere"), at(-1, 1), at(1, -1), at(0, 1, "no way")]
    told = await node.client.ask("CommitOffsets", group_id="g", offsets=offsets)

    codes = [one.error.details.get("code") for one in told.results]
    assert codes == [None, "unknown_topic", "invalid_partition", "bad_request", "invalid_name"]
    assert await fetched(node, place(0)) == [(0, 3)]


async def test_a_member_commits_what_is_its_own_and_others_may_not(node: Served) -> None:
    wanted = JoinRequest("a", ["orders"])
    joined = await node.broker.members.join("g", wanted, wait_s=5.0)
    mine = {"group_id": "g", "offsets": [at(0, 3)]}

    other = await node.client.ask("CommitOffsets", **mine)
    own = await node.client.ask("CommitOffsets", **mine, member_id=joined.member)
    stale = await node.client.refused(
        "CommitOffsets", **mine, member_id=joined.member, generation=joined.generation + 1
    )
    unknown = await node.client.refused("CommitOffsets", **mine, member_id="b")
    nobody = await node.client.refused("CommitOffsets", **mine, generation=1)

    assert other.results[0].error.code == pb.ERROR_CODE_INVALID_GENERATION
    assert own.results[0].success
    assert (stale.family, unknown.family) == ("INVALID_GENERATION", "NOT_GROUP_MEMBER")
    assert nobody.code == "bad_request"


async def test_what_is_not_there_is_told_in_its_place(node: Served) -> None:
    await node.client.ask("CommitOffsets", group_id="g", offsets=[at(0, 3)])
    told = await node.client.ask("FetchOffsets", group_id="g", partitions=[place(7), place(0)])
    unknown = await node.client.refused("FetchOffsets", group_id="nobody")

    assert told.offsets[0].error.code == pb.ERROR_CODE_PARTITION_NOT_FOUND
    assert (told.offsets[1].offset, told.offsets[1].HasField("error")) == (3, False)
    assert unknown.family == "GROUP_NOT_FOUND"


async def test_positions_are_set_by_every_strategy(node: Served) -> None:
    await node.client.ask("CommitOffsets", group_id="g", offsets=[at(0, 3), at(1, 2)])
    found = {}
    for strategy, fields in {
        "LATEST": {},
        "EARLIEST": {"partitions": [place(1)]},
        "TIMESTAMP": {"timestamp": Timestamp(seconds=1), "partitions": [place(0)]},
        "OFFSET": {"offsets": [at(0, 4), at(1, 1)]},
    }.items():
        told = await node.client.ask(
            "ResetOffsets", group_id="g", strategy=f"OFFSET_RESET_STRATEGY_{strategy}", **fields
        )
        found[strategy] = [(one.partition, one.old_offset, one.new_offset) for one in told.results]

    assert found == {
        "LATEST": [(0, 3, 5), (1, 2, 5)],
        "EARLIEST": [(1, 5, 0)],
        "TIMESTAMP": [(0, 5, 0)],
        "OFFSET": [(0, 0, 4), (1, 0, 1)],
    }


async def test_a_group_with_members_is_not_moved(node: Served) -> None:
    await node.broker.members.join("g", JoinRequest("a", ["orders"]), wait_s=5.0)

    told = await node.client.ask(
        "ResetOffsets",
        group_id="g",
        strategy=pb.OFFSET_RESET_STRATEGY_EARLIEST,
        partitions=[place(0)],
    )

    assert told.results[0].error.details["code"] == "group_active"


async def test_what_can_t_be_asked_is_refused(node: Served) -> None:
    for name, fields in (
        ("CommitOffsets", {}),
        ("CommitOffsets", {"offsets": [at(0, 1), at(0, 2)]}),
        ("CommitOffsets", {"offsets": [at(0, 1)] * 10_001}),
        ("FetchOffsets", {"partitions": [place(0)] * 10_001}),
        ("ResetOffsets", {}),
        ("ResetOffsets", {"strategy": pb.OFFSET_RESET_STRATEGY_TIMESTAMP}),
        ("ResetOffsets", {"strategy": pb.OFFSET_RESET_STRATEGY_OFFSET}),
    ):
        refused = await node.client.refused(name, group_id="g", **fields)
        assert (refused.status, refused.code) == ("INVALID_ARGUMENT", "bad_request"), name


async def test_no_transaction_is_begun_and_nobody_is_told_that_one_was(node: Served) -> None:
    for method in pb.DESCRIPTOR.services_by_name["TransactionService"].methods:
        refused = await node.client.refused(method.name)
        assert (refused.status, refused.code) == ("UNIMPLEMENTED", "not_implemented")
