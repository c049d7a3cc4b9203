"""Every Prometheus metric of a node, declared once, in a registry of the node's own.

No label is per record, key or member. Each metric here is set by code; a test holds us to it.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

LATENCY_BUCKETS_S = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.0,
    5.0,
)
PAUSE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods shown by name; a client may invent others without end."""


class Metrics:
    """The metrics of one node; parts get this object and set what they know."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"goqueue_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"goqueue_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"goqueue_{name}", text, registry=registry, buckets=LATENCY_BUCKETS_S)

        topic = ("topic",)
        self.published_messages = counter(
            "published_messages", "Messages acked to publishers by this leader", topic
        )
        self.published_bytes = counter(
            "published_bytes", "Bytes of batches acked to publishers by this leader", topic
        )
        self.duplicates = counter(
            "duplicate_batches", "Batches answered with their original offset", topic
        )
        self.duplicate_messages = counter(
            "duplicate_messages", "Messages that were stored already, by whatever told so", topic
        )
        self.read_messages = counter("read_messages", "Messages read from this replica", topic)
        self.read_bytes = counter("read_bytes", "Bytes of batches read here", topic)
        self.refused = counter("refused_requests", "Appends refused, by error code", ("code",))
        self.forwarded = counter("forwarded_requests", "Requests sent on to a leader", ("method",))
        self.retried = counter("retried_requests", "Attempts repeated within a deadline")
        self.append_latency = histogram(
            "append_latency_seconds", "From a batch's arrival at its leader to its ack"
        )
        self.forward_latency = histogram(
            "forward_latency_seconds", "From sending a request on to its answer"
        )
        self.fsync_latency = histogram(
            "fsync_latency_seconds", "One write and fdatasync of the write-ahead log"
        )
        self.fsyncs = counter("wal_flushes", "Blocks written to the write-ahead log")
        self.loop_lag = histogram("loop_lag_seconds", "How late the event loop runs a timer")
        self.loop_lag_worst = gauge(
            "loop_lag_worst_seconds", "The latest timer of the last ten seconds"
        )
        self.elections = counter("elections_won", "Leaderships this node has taken")
        self.pending_bytes = gauge("pending_bytes", "Appends in flight on this node")
        self.led_partitions = gauge("led_partitions", "Partitions this node leads")
        self.replicas = gauge("replicas", "Partition replicas on this node")
        self.leaderless_partitions = gauge(
            "leaderless_partitions", "Replicas here that know no leader"
        )
        self.under_replicated_partitions = gauge(
            "under_replicated_partitions", "Led partitions with a replica that can't be reached"
        )
        self.cluster_term = gauge("cluster_term", "Raft term of the cluster group")
        self.cluster_commit_index = gauge(
            "cluster_commit_index", "Committed Raft index of the cluster group"
        )
        self.is_controller = gauge("is_controller", "1 where this node leads the cluster group")
        self.connected_peers = gauge("connected_peers", "Peers with a live link")
        self.stored_bytes = gauge("stored_bytes", "Bytes of all replicas' logs on this node")
        self.up = gauge("up", "1 while the node serves")

        self._declare_queue()
        self._declare_compaction()
        self._declare_groups()
        self._declare_copies()
        self._declare_disk()
        self._declare_http()
        self._before_render: list[Callable[[], None]] = []

    def _declare_queue(self) -> None:
        """Counters begin anew with each leader; what they count is kept in the log."""
        registry, topic = self.registry, ("topic",)

        def counter(name: str, text: str, labels: tuple[str, ...] = topic) -> Counter:
            return Counter(f"goqueue_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = topic) -> Gauge:
            return Gauge(f"goqueue_{name}", text, labels, registry=registry)

        self.delivered_messages = counter("delivered_messages", "Messages leased to consumers")
        self.redelivered_messages = counter(
            "redelivered_messages", "Deliveries of messages that had failed before"
        )
        self.settled_messages = counter(
            "settled_messages", "Receipts settled, by action", ("topic", "action")
        )
        self.expired_leases = counter("expired_leases", "Leases whose visibility timeout ran out")
        self.died_messages = counter("died_messages", "Messages that became dead letters")
        self.withdrawn_messages = counter(
            "withdrawn_messages", "Messages of a group cancelled or expired before it settled them"
        )
        self.fallen_messages = counter(
            "fallen_messages", "Messages of a group taken by retention before it settled them"
        )
        self.in_flight_messages = gauge(
            "in_flight_messages", "Messages leased and not settled", ("topic", "group")
        )
        self.dead_letters = gauge("dead_letters", "Dead letters", ("topic", "group"))
        self.delayed_messages = gauge("delayed_messages", "Delayed messages that are not due")
        self.ready_messages = gauge(
            "ready_messages", "Messages ready to be delivered, over all groups", ("topic", "lane")
        )
        self.lane_head_wait_seconds = gauge(
            "lane_head_wait_seconds", "How long the oldest ready message waits", ("topic", "lane")
        )
        self.lane_longest_wait_seconds = gauge(
            "lane_longest_wait_seconds", "The longest wait so far for delivery", ("topic", "lane")
        )
        self.delay_lateness = Histogram(
            "goqueue_delay_lateness_seconds",
            "How late the first due message of an entry became ready",
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self.waiting_receives = Gauge(
            "goqueue_waiting_receives", "Long polls that wait on this node", registry=registry
        )

    def _declare_disk(self) -> None:
        """What the disk keeps waiting."""

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"goqueue_{name}", text, registry=self.registry)

        self.disk_free_bytes = gauge("disk_free_bytes", "Free space of the data directory")
        self.wal_durable_lsn = gauge("wal_durable_lsn", "Write-ahead log position on disk")
        self.disk_stuck = gauge("disk_stuck", "1 while the disk is full and confirms nothing")
        self.disk_slow = gauge("disk_slow", "1 while the disk is slow and other nodes lead")
        self.flush_waiting = gauge(
            "flush_waiting_seconds", "How long the flush that is out has been waiting for the disk"
        )

    def _declare_compaction(self) -> None:
        """Of topics that keep the last value of each key, where their partitions are led."""
        registry, topic = self.registry, ("topic",)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"goqueue_compaction_{name}", text, topic, registry=registry)

        self.compaction_runs = counter("runs", "Runs that dropped or moved anything")
        self.compaction_dropped = counter("dropped_messages", "Messages superseded, and dropped")
        self.compaction_freed_bytes = counter(
            "freed_bytes", "Bytes that runs took less than before"
        )
        self.compaction_dirty_ratio = Gauge(
            "goqueue_compaction_dirty_ratio",
            "Of what a run would look at, how much is not compacted: the most of any partition",
            topic,
            registry=registry,
        )

    def _declare_copies(self) -> None:
        """Whole replicas copied between nodes."""
        registry = self.registry
        self.transferred_bytes = Counter(
            "goqueue_transferred_bytes",
            "Bytes of whole replicas copied to or from here",
            ("direction",),
            registry=registry,
        )
        self.transfers = Gauge(
            "goqueue_transfers", "Replicas being copied to this node", registry=registry
        )
        self.damaged_chunks = Counter(
            "goqueue_damaged_chunks",
            "Chunks of copied replicas that did not arrive as they were sent",
            registry=registry,
        )
        self._declare_moves()
        self._declare_scrub()

    def _declare_scrub(self) -> None:
        """What is read again from the disk, and what comes of it."""

        def counter(name: str, text: str) -> Counter:
            return Counter(f"goqueue_scrub_{name}", text, registry=self.registry)

        self.scrub_rounds = counter("rounds", "Rounds in which everything here was read again")
        self.scrub_bytes = counter("bytes", "Bytes read again")
        self.scrub_damaged_entries = counter("damaged_entries", "Entries found damaged")
        self.scrub_mended_files = counter(
            "mended_files", "Files written again because they disagreed with sound entries"
        )
        self.scrub_diverged = counter(
            "diverged", "Ranges of entries that differ between replicas, though all are sound"
        )

    def _declare_moves(self) -> None:
        """Replicas on their way to where they should be: told where the cluster group is led, the
        steps where the partitions are."""
        registry = self.registry

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"goqueue_{name}", text, registry=registry)

        self.partitions_under_way = gauge(
            "partitions_under_way", "Partitions whose replicas are not where they should be"
        )
        self.waiting_moves = gauge("waiting_moves", "Partitions under way that wait for something")
        self.move_bytes_left = gauge(
            "move_bytes_left", "Bytes that the replicas under way have yet to get"
        )
        self.move_steps = Counter(
            "goqueue_move_steps",
            "Changes of replicas made by leaders here",
            ("step",),
            registry=registry,
        )
        self.move_steps_refused = Counter(
            "goqueue_move_steps_refused", "Changes of replicas not made here", registry=registry
        )

    def _declare_groups(self) -> None:
        """Positions are told by leaders of partitions, all else by the cluster group's leader."""
        registry, group = self.registry, ("consumer_group",)

        def counter(name: str, text: str, labels: tuple[str, ...] = group) -> Counter:
            return Counter(f"goqueue_consumer_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = group) -> Gauge:
            return Gauge(f"goqueue_consumer_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
            return Histogram(
                f"goqueue_consumer_{name}", text, labels, registry=registry, buckets=PAUSE_BUCKETS_S
            )

        self.active_consumers = Gauge(
            "goqueue_broker_active_consumers",
            "Members that consume a topic",
            ("topic", "consumer_group"),
            registry=registry,
        )
        self.group_members = gauge("group_members", "Members of a group")
        self.group_generation = gauge("group_generation", "Generation of a group")
        self.group_state = gauge(
            "group_state", "1 for the state that a group is in", ("consumer_group", "state")
        )
        self.assigned_partitions = gauge("assigned_partitions", "Partitions that members have")
        self.moving_partitions = gauge(
            "moving_partitions", "Partitions on their way from one member to another"
        )
        self.rebalances = counter(
            "rebalances", "Rebalances begun, by cause", ("consumer_group", "trigger")
        )
        self.partitions_assigned = counter("partitions_assigned", "Partitions given to members")
        self.partitions_revoked = counter("partitions_revoked", "Partitions taken from members")
        self.fenced_partitions = counter(
            "partitions_fenced", "Partitions taken from members that did not let go"
        )
        self.rebalance_latency = histogram(
            "rebalance_latency_seconds",
            "From the beginning of a rebalance to the last partition's arrival",
            ("consumer_group", "rebalance_type"),
        )
        self.partition_pause = histogram(
            "partition_pause_seconds",
            "From asking a partition's owner to let go, or last hearing of it, to naming the next",
        )
        self.partition_pause_max = gauge(
            "partition_pause_max_seconds", "The longest pause of a partition so far"
        )
        place = ("topic", "partition", "consumer_group")
        self.committed_offset = gauge("committed_offset", "All below is settled", place)
        self.lag_messages = gauge("lag_messages", "Messages that are due and not settled", place)
        self.lag_seconds = gauge(
            "lag_seconds", "For how long the oldest of them could have been delivered", place
        )

    def _declare_http(self) -> None:
        registry = self.registry
        self.http_requests = Counter(
            "goqueue_http_requests",
            "Answers of the HTTP front",
            ("method", "route", "status"),
            registry=registry,
        )
        self.http_latency = Histogram(
            "goqueue_http_request_seconds",
            "From a request's head to its answer",
            ("route",),
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self._http: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """One HTTP answer; `route` is the template. Children are kept: labels cost a lookup."""
        key = (method if method in METHODS else "other", route, status)
        known = self._http.get(key)
        if known is None:
            known = self._http[key] = (
                self.http_requests.labels(key[0], route, str(status)),
                self.http_latency.labels(route),
            )
        known[0].inc()
        known[1].observe(seconds)

    def before_render(self, refresh: Callable[[], None]) -> None:
        """`refresh` sets gauges that nobody needs between two looks at them."""
        self._before_render.append(refresh)

    def render(self) -> tuple[bytes, str]:
        """The text exposition of everything in the registry, and its content type."""
        for refresh in self._before_render:
            refresh()
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4
