"""Figures that are gathered at a look: each is moved by what it tells of, and by nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, PartitionId, TopicId
from log.disk.memory import MemoryDisk
from log.segments.counters import LOOKUPS_KEPT_MAX, LogCounters
from node.api.members import JoinRequest
from node.metrics import Metrics
from node.observe.link_metrics import LinkFigures
from node.observe.log_metrics import Counted, LogFigures
from node.observe.replica_metrics import ReplicaFigures
from node.peers.link import NoPeers
from raft.link import FailedHandshakes, Traffic
from raft.link.failed import Failure
from tests.unit.node.queue.test_whole_node import publish, receive, settle
from tests.unit.node.test_node import batch, in_segments, running


def text(metrics: Metrics) -> str:
    return metrics.render()[0].decode()


def test_who_falls_out_of_sync_and_comes_back_is_counted_from_the_leaderships_begin_on() -> None:
    metrics, there = Metrics(), ["n1", "n2"]
    host = SimpleNamespace(
        id=PartitionId(TopicId(1, 1), 3), topic="t", is_leader=True, in_sync=lambda: list(there)
    )
    hosts = cast(Any, SimpleNamespace(all=lambda: [host]))
    figures = ReplicaFigures(NodeId("n1"), hosts, metrics, lambda _host: False, lambda _host: [])

    list(figures.note_in_sync())
    there.append("n3")
    list(figures.note_in_sync())
    del there[1:]
    list(figures.note_in_sync())
    list(figures.note_in_sync())

    assert 'goqueue_cluster_isr_expands_total{partition="3",topic="t"} 1.0' in text(metrics)
    assert 'goqueue_cluster_isr_shrinks_total{partition="3",topic="t"} 2.0' in text(metrics)


def test_links_tell_what_they_counted_and_sums_outlive_a_peer() -> None:
    traffic = {NodeId("n2"): Traffic(100, 40, 7, 5, 2, 1, 9, 3)}

    failed = FailedHandshakes()
    failed.add(Failure.PROOF, "another secret", ("10.0.0.9", 4711))

    class Link(NoPeers):
        @property
        def traffic(self) -> dict[NodeId, Traffic]:
            return traffic

        @property
        def failed_handshakes(self) -> FailedHandshakes:
            return failed

    metrics = Metrics()
    figures = LinkFigures(Link(), metrics)

    figures.tell()
    found = text(metrics)
    traffic.clear()
    figures.tell()

    for line in (
        'goqueue_cluster_heartbeats_received_total{node_id="n2"} 9.0',
        'goqueue_cluster_heartbeats_missed_total{node_id="n2"} 3.0',
        'goqueue_cluster_failure_detections_total{node_id="n2"} 1.0',
        'goqueue_link_connects_total{node_id="n2"} 2.0',
        'goqueue_link_frames_total{direction="in",node_id="n2"} 5.0',
        'goqueue_link_frames_total{direction="out",node_id="n2"} 7.0',
        'goqueue_peer_handshakes_failed_total{failure="proof"} 1.0',
        'goqueue_peer_handshakes_failed_total{failure="tls"} 0.0',
    ):
        assert line in found
    assert "goqueue_cluster_inter_broker_network_out_bytes_total 100.0" in text(metrics)
    assert "goqueue_cluster_inter_broker_network_in_bytes_total 40.0" in text(metrics)


def test_a_logs_counts_are_added_to_its_topic_once() -> None:
    metrics, counters, counted = Metrics(), LogCounters(), Counted()
    segments = SimpleNamespace(counters=counters, chain=(1, 2), size_bytes=70)
    replica = cast(
        Any,
        SimpleNamespace(
            id=PartitionId(TopicId(1, 1), 0), topic="t", log=SimpleNamespace(disk_segments=segments)
        ),
    )
    figures = LogFigures(metrics)
    counters.segments_created, counters.index_rebuilds = 3, 1
    for number in range(LOOKUPS_KEPT_MAX + 5):
        counters.looked_up("offset", number / 1e6)

    def tell() -> None:
        figures.tell(replica, counted)

    metrics.before_render(tell)
    text(metrics)
    found = text(metrics)

    assert 'goqueue_storage_segments_created_total{topic="t"} 3.0' in found
    assert 'goqueue_storage_segments_total{partition="0",topic="t"} 2.0' in found
    assert 'goqueue_storage_index_rebuilds_total{topic="t"} 1.0' in found
    labels = 'index_type="offset",topic="t"'
    assert f"goqueue_storage_index_lookup_latency_seconds_count{{{labels}}} 1000.0" in found


async def test_a_node_counts_what_it_was_asked_by_groups_and_what_it_could_not_store() -> None:
    async with running(MemoryDisk(), segment_bytes=4096) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "max_message_bytes": 1000})
        for _ in range(10):
            await publish(node, *["x" * 100] * 10)
        with pytest.raises(GoQueueError):
            await node.broker.records.append("never", 0, batch("a", "b"), deadline_s=1)
        member = await node.broker.members.join("crew", JoinRequest("c", topics=["t"]), wait_s=5)
        await node.broker.members.heartbeat("crew", member.member)
        polled = await node.broker.polls.poll(
            "crew", member.member, generation=member.generation, limit=3, wait_s=5
        )
        found = await receive(node, limit=5)
        await settle(node, found[:2])
        await settle(node, found[2:3], "extend")
        assert await node.broker.positions.commit("later", "t", {0: 7})
        await node.broker.members.leave("crew", member.member)
        await in_segments(node)

        seen = text(node.metrics)

    crew, one = 'consumer_group="crew"', 'consumer_group="g"'
    assert len(polled) == 3
    for line in (
        'goqueue_broker_messages_failed_total{error_type="unknown_topic",topic="_other"} 2.0',
        f"goqueue_consumer_group_joins_total{{{crew}}} 1.0",
        f'goqueue_consumer_group_leaves_total{{{crew},reason="leave"}} 1.0',
        f"goqueue_consumer_heartbeats_sent_total{{{crew}}} 1.0",
        f"goqueue_consumer_polls_total{{{crew}}} 1.0",
        f"goqueue_consumer_poll_batch_size_sum{{{crew}}} 3.0",
        f"goqueue_consumer_polls_total{{{one}}} 1.0",
        'goqueue_consumer_offset_commits_total{consumer_group="later",topic="t"} 1.0',
        'goqueue_consumer_committed_offset{consumer_group="later",partition="0",topic="t"} 7.0',
        f'goqueue_broker_bytes_consumed_total{{{one},topic="t"}} 500.0',
        'goqueue_broker_ack_latency_seconds_count{ack_type="extend",topic="t"} 1.0',
        'goqueue_broker_ack_latency_seconds_count{ack_type="commit",topic="t"} 1.0',
        f'goqueue_extended_leases_total{{{one},topic="t"}} 1.0',
        'goqueue_broker_priority_messages_published_total{priority="normal",topic="t"} 100.0',
        'goqueue_cluster_leader_elections_total{election_type="elected",topic="t"} 1.0',
        'goqueue_partition_latest_offset{partition="0",topic="t"} 100.0',
        "goqueue_cluster_is_controller 1.0",
        "goqueue_cluster_nodes_healthy 1.0",
        "goqueue_cluster_offline_partitions 0.0",
    ):
        assert line in seen, line
    created = next(
        float(line.split()[-1])
        for line in seen.splitlines()
        if line.startswith('goqueue_storage_segments_created_total{topic="t"}')
    )
    assert created > 2


async def test_nothing_is_left_of_a_deleted_topic() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {"partitions": 2})
        await publish(node, "a")
        assert 'topic="t"' in text(node.metrics)

        await node.broker.topics.delete_topic("t")

        assert 'topic="t"' not in text(node.metrics)
