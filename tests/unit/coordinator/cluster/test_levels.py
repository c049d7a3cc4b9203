"""Feature levels in the cluster's state: who may be a broker, and when a level is finished."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands import codec as commands
from coordinator.commands.codec import (
    BrokerRegistered,
    Command,
    CreateTopic,
    RegisterBroker,
    decode_command,
    encode_command,
    feature_of,
)
from coordinator.commands.placement import AddPartitions, FinishLevel, LevelFinished
from coordinator.errors import CommandUnreadable, LevelNotSpoken, LevelRefused, SnapshotUnreadable
from goqueue.wire.types import NodeId
from log.levels import Feature, Unspoken
from tests.unit.coordinator.cluster_group import Cluster


def broker(name: str, lowest: int, highest: int) -> RegisterBroker:
    return RegisterBroker(name, 7, lowest_level=lowest, highest_level=highest)


def two(highest: int = 2, other: int = 2) -> Cluster:
    cluster = Cluster(0)
    cluster.do(broker("a", 1, highest))
    cluster.do(broker("b", 1, other))
    return cluster


def test_level_is_finished_once_everybody_speaks_it_and_then_for_good() -> None:
    cluster = two()

    assert cluster.do(FinishLevel(2)) == LevelFinished(2, 1)
    assert cluster.do(FinishLevel(2)) == LevelFinished(2, 2)
    assert cluster.do(FinishLevel(1)) == LevelFinished(2, 2)
    assert ClusterState.restore(cluster.state.snapshot()).layout.brokers.level == 2


def test_level_that_a_broker_does_not_speak_is_refused_by_name() -> None:
    cluster = two(other=1)

    error = cluster.refuses(FinishLevel(2), LevelNotSpoken)

    assert error.message.startswith("level 2 is not spoken by b (level 1)")
    assert error.data["brokers"] == ["b"]


def test_broker_that_does_not_speak_the_finished_level_is_not_registered() -> None:
    cluster = two()
    cluster.do(FinishLevel(2))

    cluster.refuses(broker("a", 1, 1), LevelRefused)
    cluster.refuses(broker("c", 3, 4), LevelRefused)

    assert cluster.do(broker("c", 2, 4)) == BrokerRegistered("c", True)


def test_broker_that_comes_back_with_another_build_tells_its_levels_anew() -> None:
    cluster = two(other=1)

    assert cluster.do(broker("b", 1, 2)) == BrokerRegistered("b", True)

    assert cluster.state.brokers[NodeId("b")].spoken.highest == 2
    assert cluster.do(FinishLevel(2)) == LevelFinished(2, 1)


def test_registration_of_the_first_release_speaks_level_one() -> None:
    """Its entries may be in the log that is replayed."""
    written = msgspec.msgpack.encode({"type": "register_broker", "node": "a", "incarnation": 7})

    cluster = Cluster(0)
    cluster.do(decode_command(written))

    assert str(cluster.state.brokers[NodeId("a")].spoken) == "level 1"


def test_command_with_an_unknown_field_is_refused_not_misread() -> None:
    written = msgspec.msgpack.decode(encode_command(FinishLevel(2)))
    written["unless"] = "b speaks it not"

    with pytest.raises(CommandUnreadable, match="unless") as refused:
        decode_command(msgspec.msgpack.encode(written))
    assert isinstance(refused.value, Unspoken)


def test_unknown_command_is_refused_as_of_a_later_version() -> None:
    with pytest.raises(Unspoken):
        decode_command(msgspec.msgpack.encode({"type": "of_a_later_version"}))


def test_snapshot_with_an_unknown_field_is_refused_not_misread() -> None:
    fields = msgspec.msgpack.decode(two().state.snapshot())

    with pytest.raises(SnapshotUnreadable, match="at most length"):
        ClusterState.restore(msgspec.msgpack.encode([*fields, "of a later version"]))


def test_snapshot_of_the_first_release_is_of_level_one() -> None:
    fields = msgspec.msgpack.decode(two().state.snapshot())
    layout = next(field for field in fields if isinstance(field, dict) and "level" in field)
    del layout["level"]
    for one in fields[3]:
        del one["lowest_level"], one["highest_level"]

    restored = ClusterState.restore(msgspec.msgpack.encode(fields))

    assert restored.layout.brokers.level == 1
    assert {str(one.spoken) for one in restored.brokers.values()} == {"level 1"}


def test_command_of_a_higher_level_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert feature_of(FinishLevel(2)) == 1

    monkeypatch.setattr(commands, "FEATURES", {FinishLevel: 2})

    assert feature_of(FinishLevel(2)) == 2


@pytest.mark.parametrize(
    ("command", "feature"),
    [
        (CreateTopic("t"), Feature.BASE),
        (CreateTopic("t", {"partitions": 1024}), Feature.BASE),
        (CreateTopic("t", {"partitions": 1025}), Feature.MANY_PARTITIONS),
        (CreateTopic("t", {"partitions": "many"}), Feature.BASE),
        (AddPartitions("t", 1024), Feature.BASE),
        (AddPartitions("t", 10_000), Feature.MANY_PARTITIONS),
        (AddPartitions("t", 10_001), Feature.BASE),
    ],
)
def test_more_partitions_than_the_first_level_has_need_the_next(
    command: Command, feature: Feature
) -> None:
    assert feature_of(command) == feature


def test_levels_change_nothing_else_of_a_broker() -> None:
    cluster = two()
    before = cluster.state.brokers[NodeId("a")]

    cluster.do(broker("a", 1, 3))

    assert cluster.state.brokers[NodeId("a")] == replace(before, highest_level=3)


def test_snapshot_of_level_two_is_written_once_that_is_finished() -> None:
    cluster = two()
    before = msgspec.msgpack.decode(cluster.state.snapshot())
    cluster.do(FinishLevel(2))

    after = cluster.state.snapshot()

    assert (before[0], len(before)) == (4, 14)
    assert msgspec.msgpack.decode(after)[0] == 5
    assert ClusterState.restore(after).snapshot() == after
