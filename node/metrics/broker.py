"""Messages in and out: `goqueue_broker_*` as in GoQueue, and what it has no name for."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller

TOPIC = ("topic",)
GROUP_IN_TOPIC = ("topic", "consumer_group")
LANE_IN_TOPIC = ("topic", "lane")


class BrokerMetrics:
    """What passes through topics. Counters are added up by each leader for its own time."""

    def __init__(self, of: Declarations) -> None:
        self._declare_publishing(of)
        self._declare_delays(of)
        self._declare_refusals(of)
        self._declare_consuming(of)
        self._declare_places(of)

    def _declare_publishing(self, of: Declarations) -> None:
        leader, publish = Teller.LEADER, Moves.PUBLISH
        self.messages_published = of.counter(
            "goqueue_broker_messages_published_total",
            "Messages acked to publishers, without duplicates",
            TOPIC,
            told=leader,
            moves=publish,
        )
        self.bytes_published = of.counter(
            "goqueue_broker_bytes_published_total",
            "Bytes of batches acked to publishers, as they are stored",
            TOPIC,
            told=leader,
            moves=publish,
        )
        self.priority_messages_published = of.counter(
            "goqueue_broker_priority_messages_published_total",
            "Messages stored, by lane: critical, high, normal, low, background",
            ("topic", "priority"),
            told=leader,
            moves=publish,
        )
        self.messages_failed = of.counter(
            "goqueue_broker_messages_failed_total",
            "Messages that were to be stored and were not, or nobody can say, by the error's code; "
            "malformed requests are not in it",
            ("topic", "error_type"),
            told=Teller.FRONT,
            moves=Moves.FAILURE,
        )
        self.publish_latency = of.histogram(
            "goqueue_broker_publish_latency_seconds",
            "From a batch's arrival at its leader to its ack, replicated and synced",
            TOPIC,
            told=leader,
            moves=publish,
        )

    def _declare_delays(self, of: Declarations) -> None:
        leader = Teller.LEADER
        self.delayed_scheduled = of.counter(
            "goqueue_broker_delayed_messages_scheduled_total",
            "Messages stored with a delay",
            TOPIC,
            told=leader,
            moves=Moves.DELAY,
        )
        self.delayed_fired = of.counter(
            "goqueue_broker_delayed_messages_fired_total",
            "Delayed messages that became due",
            TOPIC,
            told=leader,
            moves=Moves.DELAY,
        )
        self.delayed_pending = of.sampled(
            "goqueue_broker_delayed_messages_pending",
            "Delayed messages that are not due",
            TOPIC,
            told=leader,
            moves=Moves.DELAY,
        )
        self.delay_lateness = of.histogram(
            "goqueue_delay_lateness_seconds",
            "How late the first due message of an entry became ready",
            told=leader,
            moves=Moves.DELAY,
        )

    def _declare_refusals(self, of: Declarations) -> None:
        leader = Teller.LEADER
        self.duplicate_batches = of.counter(
            "goqueue_duplicate_batches_total",
            "Batches answered with their original's offset",
            TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.duplicate_messages = of.counter(
            "goqueue_duplicate_messages_total",
            "Messages that were stored already, by whatever told so",
            TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.dedup_evictions = of.counter(
            "goqueue_dedup_evictions_total",
            "What was forgotten against duplicates before its time, for want of room: producers "
            "within 7 days, requests within a minute, message ids within their window, results of "
            "receives, settles and other changes within 10 minutes",
            (*TOPIC, "kind"),
            told=leader,
            moves=Moves.FAILURE,
        )
        self.refused_requests = of.counter(
            "goqueue_refused_requests_total",
            "Appends that a leader refused, by the error's code; many are repeated elsewhere",
            ("code",),
            told=leader,
            moves=Moves.FAILURE,
        )
        self.pending_bytes = of.gauge(
            "goqueue_pending_bytes",
            "Appends in flight",
            told=Teller.NODE,
            moves=Moves.LOADED,
        )

    def _declare_consuming(self, of: Declarations) -> None:
        leader, settle = Teller.LEADER, Moves.SETTLE
        self.messages_consumed = of.counter(
            "goqueue_broker_messages_consumed_total",
            "Messages leased to a group's consumers, each time",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )
        self.bytes_consumed = of.counter(
            "goqueue_broker_bytes_consumed_total",
            "Bytes of the values of messages leased to a group's consumers",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )
        self.fetch_latency = of.histogram(
            "goqueue_broker_fetch_latency_seconds",
            "Of receives that got something: from the leader's choice to its answer, leases "
            "replicated and synced; waiting for messages is not in it",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )
        self.ack_latency = of.histogram(
            "goqueue_broker_ack_latency_seconds",
            "From a settle's arrival at the leader to its end, replicated and synced",
            ("topic", "ack_type"),
            told=leader,
            moves=settle,
        )
        self.messages_acked = of.counter(
            "goqueue_broker_messages_acked_total",
            "Messages acked",
            GROUP_IN_TOPIC,
            told=leader,
            moves=settle,
        )
        self.messages_nacked = of.counter(
            "goqueue_broker_messages_nacked_total",
            "Deliveries nacked",
            GROUP_IN_TOPIC,
            told=leader,
            moves=settle,
        )
        self.messages_rejected = of.counter(
            "goqueue_broker_messages_rejected_total",
            "Messages rejected by consumers",
            GROUP_IN_TOPIC,
            told=leader,
            moves=settle,
        )
        self.read_messages = of.counter(
            "goqueue_read_messages_total",
            "Messages read by offset, without a group",
            TOPIC,
            told=Teller.FRONT,
            moves=Moves.READ,
        )
        self.read_bytes = of.counter(
            "goqueue_read_bytes_total",
            "Bytes of batches read by offset, without a group",
            TOPIC,
            told=Teller.FRONT,
            moves=Moves.READ,
        )

    def _declare_places(self, of: Declarations) -> None:
        self.active_connections = of.gauge(
            "goqueue_broker_active_connections",
            "Connections of HTTP clients",
            told=Teller.NODE,
            moves=Moves.HTTP,
        )
        self.active_consumers = of.sampled(
            "goqueue_broker_active_consumers",
            "Members that consume a topic",
            GROUP_IN_TOPIC,
            told=Teller.CONTROLLER,
            moves=Moves.GROUP,
        )
        self.topic_partitions = of.sampled(
            "goqueue_broker_topic_partitions",
            "Partitions of a topic",
            TOPIC,
            told=Teller.CONTROLLER,
            moves=Moves.PUBLISH,
        )
        self.topic_count = of.gauge(
            "goqueue_broker_topic_count",
            "Topics",
            told=Teller.VIEW,
            moves=Moves.PUBLISH,
        )
