"""A topic's compression is state of level 2: below it, snapshots are as they were."""

from __future__ import annotations

import pytest

from coordinator.cluster.snapshot import read_snapshot
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import AlterTopic, CreateTopic, DeleteTopic, RegisterBroker
from coordinator.commands.placement import FinishLevel
from coordinator.errors import BadConfig
from tests.unit.coordinator.cluster_group import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_topic_has_the_codec_that_it_was_given_until_it_is_changed(cluster: Cluster) -> None:
    cluster.do(CreateTopic("t", {"partitions": 1, "compression": "zstd"}))
    topic = cluster.state.topics["t"]
    assert cluster.state.compressions.of(topic.id) == "zstd"

    cluster.do(AlterTopic("t", {"retention_ms": 1000}))
    assert cluster.state.compressions.of(topic.id) == "zstd"
    cluster.do(AlterTopic("t", {"compression": "lz4"}))
    assert cluster.state.compressions.of(topic.id) == "lz4"
    cluster.do(AlterTopic("t", {"compression": "none"}))

    assert cluster.state.compressions.dump() == []


def test_a_codec_that_is_none_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    refused = cluster.do(CreateTopic("t", {"partitions": 1, "compression": "snappy"}))
    assert isinstance(refused, BadConfig)
    assert "snappy" in refused.message

    cluster.do(CreateTopic("t", {"partitions": 1}))
    both = cluster.do(AlterTopic("t", {"compression": "zstd", "retention_ms": -5}))

    assert isinstance(both, BadConfig)
    assert cluster.state.compressions.dump() == []


def test_a_deleted_topics_codec_goes_with_it(cluster: Cluster) -> None:
    cluster.do(CreateTopic("t", {"partitions": 1, "compression": "gzip"}))
    cluster.do(DeleteTopic("t"))

    assert cluster.state.compressions.dump() == []


def test_it_is_in_the_snapshot_of_level_2_alone(cluster: Cluster) -> None:
    cluster.do(CreateTopic("t", {"partitions": 1}))
    before = cluster.state.snapshot()
    assert b"compression" not in before

    for number in range(3):
        cluster.do(RegisterBroker(f"n{number}", 7, highest_level=2, replaces=True))
    cluster.do(FinishLevel(2))
    cluster.do(AlterTopic("t", {"compression": "zstd"}))
    after = cluster.state.snapshot()

    assert [codec for _, codec in read_snapshot(after)[1].topic_compression] == ["zstd"]
    restored = ClusterState.restore(after)
    assert restored.compressions.of(restored.topics["t"].id) == "zstd"
    assert restored.snapshot() == after
