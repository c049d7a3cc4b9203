"""Groups: `goqueue_consumer_*` as in GoQueue, and lag under the names of Kafka's exporters."""

from __future__ import annotations

from node.metrics.broker import GROUP_IN_TOPIC
from node.metrics.declare import COUNT_BUCKETS, PAUSE_BUCKETS_S, Declarations
from node.metrics.meaning import Moves, Teller

GROUP = ("consumer_group",)
PLACE = ("topic", "partition", "consumer_group")
LAG_PLACE = ("group", "topic", "partition")


class ConsumerMetrics:
    """Positions and lag are told by leaders of partitions, members by the cluster group's leader,
    requests by the node that was asked."""

    def __init__(self, of: Declarations) -> None:
        self._declare_positions(of)
        self._declare_lag(of)
        self._declare_members(of)
        self._declare_rebalances(of)
        self._declare_requests(of)

    def _declare_positions(self, of: Declarations) -> None:
        self.committed_offset = of.sampled(
            "goqueue_consumer_committed_offset",
            "All below this offset is settled",
            PLACE,
            told=Teller.LEADER,
            moves=Moves.SETTLE,
        )
        self.offset_commits = of.counter(
            "goqueue_consumer_offset_commits_total",
            "Offsets committed, one for each partition of a commit",
            GROUP_IN_TOPIC,
            told=Teller.FRONT,
            moves=Moves.GROUP,
        )
        self.offset_commit_latency = of.histogram(
            "goqueue_consumer_offset_commit_latency_seconds",
            "From a commit's arrival to its end, replicated and synced",
            GROUP,
            told=Teller.FRONT,
            moves=Moves.GROUP,
        )
        self.offset_commit_errors = of.counter(
            "goqueue_consumer_offset_commit_errors_total",
            "Offsets that were not committed, by the error's code",
            (*GROUP_IN_TOPIC, "error_type"),
            told=Teller.FRONT,
            moves=Moves.FAILURE,
        )

    def _declare_lag(self, of: Declarations) -> None:
        leader, publish = Teller.LEADER, Moves.PUBLISH
        self.group_lag = of.sampled(
            "goqueue_consumergroup_group_lag",
            "Messages that are due and not settled by the group",
            LAG_PLACE,
            told=leader,
            moves=publish,
        )
        self.group_lag_seconds = of.sampled(
            "goqueue_consumergroup_group_lag_seconds",
            "How long ago, by the log, the oldest of them could have been delivered: measured, "
            "not interpolated",
            LAG_PLACE,
            told=leader,
            moves=publish,
        )
        self.group_offset = of.sampled(
            "goqueue_consumergroup_group_offset",
            "All below this offset is settled",
            LAG_PLACE,
            told=leader,
            moves=Moves.SETTLE,
            alias="goqueue_consumer_committed_offset",
        )
        self.group_max_lag = of.sampled(
            "goqueue_consumergroup_group_max_lag",
            "The most messages that any partition led here has for the group; take the max "
            "over nodes",
            ("group",),
            told=leader,
            moves=publish,
        )
        self.group_max_lag_seconds = of.sampled(
            "goqueue_consumergroup_group_max_lag_seconds",
            "The longest lag of any partition led here; take the max over nodes",
            ("group",),
            told=leader,
            moves=publish,
        )
        self.group_sum_lag = of.sampled(
            "goqueue_consumergroup_group_sum_lag",
            "Messages not settled by the group, over all partitions led here",
            ("group",),
            told=leader,
            moves=publish,
        )
        self.group_topic_sum_lag = of.sampled(
            "goqueue_consumergroup_group_topic_sum_lag",
            "Messages of a topic not settled by the group, over all partitions led here",
            ("group", "topic"),
            told=leader,
            moves=publish,
        )

    def _declare_members(self, of: Declarations) -> None:
        controller, group = Teller.CONTROLLER, Moves.GROUP
        self.group_members = of.sampled(
            "goqueue_consumer_group_members",
            "Members of a group",
            GROUP,
            told=controller,
            moves=group,
        )
        self.group_generation = of.sampled(
            "goqueue_consumer_group_generation",
            "Generation of a group",
            GROUP,
            told=controller,
            moves=group,
        )
        self.group_state = of.sampled(
            "goqueue_consumer_group_state",
            "1 for the state that a group is in: empty, rebalancing, stable",
            ("consumer_group", "state"),
            told=controller,
            moves=group,
        )
        self.assigned_partitions = of.sampled(
            "goqueue_consumer_assigned_partitions",
            "Partitions that members have",
            GROUP,
            told=controller,
            moves=group,
        )
        self.moving_partitions = of.sampled(
            "goqueue_consumer_moving_partitions",
            "Partitions on their way from one member to another",
            GROUP,
            told=controller,
            moves=Moves.CHANGE,
        )
        self.group_joins = of.counter(
            "goqueue_consumer_group_joins_total",
            "Joins answered, of new members and of those that join again",
            GROUP,
            told=Teller.FRONT,
            moves=group,
        )
        self.group_leaves = of.counter(
            "goqueue_consumer_group_leaves_total",
            "Members gone, by reason: leave is told by the node that was asked, session_timeout "
            "by the leader of the cluster group",
            ("consumer_group", "reason"),
            told=Teller.FRONT,
            moves=group,
        )
        self.session_timeouts = of.counter(
            "goqueue_consumer_session_timeouts_total",
            "Members that were silent for their session timeout, and expired",
            GROUP,
            told=controller,
            moves=Moves.FAILURE,
        )

    def _declare_rebalances(self, of: Declarations) -> None:
        controller, group = Teller.CONTROLLER, Moves.GROUP
        self.rebalances = of.counter(
            "goqueue_consumer_rebalances_total",
            "Rebalances begun, by cause",
            ("consumer_group", "trigger"),
            told=controller,
            moves=group,
        )
        self.rebalance_latency = of.histogram(
            "goqueue_consumer_rebalance_latency_seconds",
            "From the beginning of a rebalance to the last partition's arrival",
            ("consumer_group", "rebalance_type"),
            told=controller,
            moves=group,
            buckets=PAUSE_BUCKETS_S,
        )
        self.partitions_assigned = of.counter(
            "goqueue_consumer_partitions_assigned_total",
            "Partitions given to members",
            GROUP,
            told=controller,
            moves=group,
        )
        self.partitions_revoked = of.counter(
            "goqueue_consumer_partitions_revoked_total",
            "Partitions taken from members",
            GROUP,
            told=controller,
            moves=group,
        )
        self.fenced_partitions = of.counter(
            "goqueue_consumer_partitions_fenced_total",
            "Partitions taken from members that did not let go",
            GROUP,
            told=controller,
            moves=Moves.FAILURE,
        )
        self.partition_pause = of.histogram(
            "goqueue_consumer_partition_pause_seconds",
            "From asking a partition's owner to let go, or last hearing of it, to naming the next",
            told=controller,
            moves=group,
            buckets=PAUSE_BUCKETS_S,
        )
        self.partition_pause_max = of.sampled(
            "goqueue_consumer_partition_pause_max_seconds",
            "The longest pause of a partition so far",
            GROUP,
            told=controller,
            moves=Moves.CHANGE,
        )

    def _declare_requests(self, of: Declarations) -> None:
        front, group = Teller.FRONT, Moves.GROUP
        self.heartbeats = of.counter(
            "goqueue_consumer_heartbeats_sent_total",
            "Heartbeats of members that were answered",
            GROUP,
            told=front,
            moves=group,
        )
        self.heartbeat_latency = of.histogram(
            "goqueue_consumer_heartbeat_latency_seconds",
            "Until the leader of the cluster group had heard of a heartbeat; waiting for news is "
            "not in it",
            GROUP,
            told=front,
            moves=group,
        )
        self.polls = of.counter(
            "goqueue_consumer_polls_total",
            "Polls of members and receives of groups that were answered",
            GROUP,
            told=front,
            moves=Moves.RECEIVE,
        )
        self.polls_empty = of.counter(
            "goqueue_consumer_polls_empty_total",
            "Those that brought nothing",
            GROUP,
            told=front,
            moves=Moves.RECEIVE,
        )
        self.poll_latency = of.histogram(
            "goqueue_consumer_poll_latency_seconds",
            "From a poll's arrival to its answer, with the waiting for messages that it asked for",
            GROUP,
            told=front,
            moves=Moves.RECEIVE,
        )
        self.poll_batch_size = of.histogram(
            "goqueue_consumer_poll_batch_size",
            "Messages of polls that brought any",
            GROUP,
            told=front,
            moves=Moves.RECEIVE,
            buckets=COUNT_BUCKETS,
        )
