"""Queues where their partitions are led: leases, failures, lanes and dead letters."""

from __future__ import annotations

from node.metrics.broker import GROUP_IN_TOPIC, LANE_IN_TOPIC
from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller


class QueueMetrics:
    """What is counted is kept in the log; each leader adds up what happens in its own time."""

    def __init__(self, of: Declarations) -> None:
        self._declare_counters(of)
        self._declare_depths(of)
        self.waiting_receives = of.gauge(
            "goqueue_waiting_receives",
            "Receives that wait for messages, where they were asked",
            told=Teller.NODE,
            moves=Moves.LOADED,
        )

    def _declare_counters(self, of: Declarations) -> None:
        leader = Teller.LEADER
        self.redelivered_messages = of.counter(
            "goqueue_redelivered_messages_total",
            "Deliveries of messages that had failed before",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.SETTLE,
        )
        self.extended_leases = of.counter(
            "goqueue_extended_leases_total",
            "Leases that their holders prolonged",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.SETTLE,
        )
        self.expired_leases = of.counter(
            "goqueue_expired_leases_total",
            "Leases whose visibility timeout ran out",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.fenced_leases = of.counter(
            "goqueue_fenced_leases_total",
            "Leases that ended with their consumer: it lost the partition without letting go, or"
            " its stream broke",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.died_messages = of.counter(
            "goqueue_died_messages_total",
            "Messages that became dead letters",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.SETTLE,
        )
        self.withdrawn_messages = of.counter(
            "goqueue_withdrawn_messages_total",
            "Messages of a group cancelled or expired before it settled them",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.fallen_messages = of.counter(
            "goqueue_fallen_messages_total",
            "Messages of a group taken by retention before it settled them",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.lane_wait_seconds = of.counter(
            "goqueue_lane_wait_seconds_total",
            "For how long the first message of each delivery had been ready, in all",
            LANE_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )
        self.lane_waits = of.counter(
            "goqueue_lane_waits_total",
            "Deliveries from a lane: what the seconds are divided by",
            LANE_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )

    def _declare_depths(self, of: Declarations) -> None:
        leader = Teller.LEADER
        self.in_flight_messages = of.sampled(
            "goqueue_in_flight_messages",
            "Messages leased and not settled",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )
        self.dead_letters = of.sampled(
            "goqueue_dead_letters",
            "Dead letters",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.SETTLE,
        )
        self.halted_partitions = of.sampled(
            "goqueue_halted_partitions",
            "Partitions in which a group is given nothing until somebody lets it go on",
            GROUP_IN_TOPIC,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.ready_messages = of.sampled(
            "goqueue_ready_messages",
            "Messages ready to be delivered, over all groups",
            LANE_IN_TOPIC,
            told=leader,
            moves=Moves.PUBLISH,
        )
        self.lane_head_wait = of.sampled(
            "goqueue_lane_head_wait_seconds",
            "For how long the oldest ready message has been waiting; the most of any group",
            LANE_IN_TOPIC,
            told=leader,
            moves=Moves.PUBLISH,
        )
        self.lane_longest_wait = of.sampled(
            "goqueue_lane_longest_wait_seconds",
            "The longest that a message was ready before its delivery, so far",
            LANE_IN_TOPIC,
            told=leader,
            moves=Moves.RECEIVE,
        )
