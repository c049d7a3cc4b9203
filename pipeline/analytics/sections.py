"""The report's sections: which plot and tables each has, and what a reader should know of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.analytics import plots
from pipeline.analytics.analysis import Goals

Rows = list[dict[str, Any]]
Drawing = Callable[[Mapping[str, Rows], Goals], str]


@dataclass(frozen=True, slots=True)
class Section:
    """`tables` are names of queries, whose headers say what they compute; `reading` says what to
    make of it, `nothing` what it means that the first table is empty."""

    title: str
    tables: Sequence[str]
    reading: str
    nothing: str
    draw: Drawing | None = None


SECTIONS = (
    Section(
        "How long messages took",
        ("latency",),
        "A group that began after messages were published counts from their publishing, so it "
        "shows how far behind it was. Delayed messages count from when they were due. A long tail "
        "in publish to delivery asks for more consumers; one in delivery to ack, for faster ones.",
        "No message was delivered to a group.",
        lambda rows, goals: plots.latency(rows["latency"]),
    ),
    Section(
        "Lag in time against its objective",
        ("lag_slo",),
        "Lag is the age of a group's oldest message that is due and not done: settled, dead, "
        "skipped, expired or cancelled. What was redriven or replayed does not count again. Burn "
        "above 1 uses up the error budget faster than the target allows.",
        "No group had anything to do with the topic.",
        lambda rows, goals: plots.lag(rows["lag_series"], goals.lag_objective_ms / 1000),
    ),
    Section(
        "Attempts and redeliveries",
        ("attempts", "redeliveries"),
        "Messages that took one delivery went well. Many REDELIVERED with visibility_timeout mean "
        "that consumers take longer than the visibility timeout, or die.",
        "No message was delivered to a group.",
        lambda rows, goals: plots.attempts(rows["attempts"]),
    ),
    Section(
        "Dead letters",
        ("dead_letters",),
        "One key with most deaths points at its data, one reason over many keys at what consumers "
        "depend on.",
        "No message died.",
        lambda rows, goals: plots.dead_letters(rows["dead_letters"]),
    ),
    Section(
        "Lanes, and the bound on their waits",
        ("lane_waits",),
        "Higher lanes go first; below the highest, no message waits longer than its bound. A wait "
        "near its bound means that the lane lives from its share alone: the group takes fewer "
        "messages than come in higher lanes.",
        "No message was delivered to a group.",
        lambda rows, goals: plots.lane_waits(rows["lane_waits"]),
    ),
    Section(
        "Delayed messages",
        ("delay_accuracy",),
        "Early must be 0. Late deliveries with prompt brokers mean that no consumer was waiting.",
        "No delayed message came due.",
        lambda rows, goals: plots.delays(rows["delay_accuracy"]),
    ),
    Section(
        "Rebalances",
        ("rebalance_pauses",),
        "Partitions that did not move went on without a pause. Fenced ones waited for the session "
        "of an owner that did not let go.",
        "No rebalance is known. Brokers remember the last 100 of a group; archives hold none.",
        lambda rows, goals: plots.pauses(rows["rebalance_pauses"]),
    ),
    Section(
        "Hot keys",
        ("hot_keys", "key_spread"),
        "A key has one partition, and in groups that keep the order of keys one consumer at a "
        "time: a key with a large share bounds what more partitions and consumers can bring.",
        "No message has a key.",
        lambda rows, goals: plots.hot_keys(rows["hot_keys"]),
    ),
    Section(
        "Partitions",
        ("partition_skew",),
        "A skew of 2 means twice the mean. Skew with many keys comes from hot keys; with few, from "
        "their number.",
        "There are no messages.",
        lambda rows, goals: plots.partitions(rows["partition_skew"]),
    ),
    Section(
        "Audit: gaps, duplicates, order",
        ("audit", "audit_findings"),
        "Holes in compacted topics are as they should be, and are not looked for. Where the log "
        "begins after its first message, what retention has deleted is no gap.",
        "Nothing was checked.",
    ),
    Section(
        "What replays changed",
        ("replays", "replay_changes"),
        "Restored messages name their original in a header. Where it is not among the messages "
        "that this report read, nothing can be compared.",
        "No message was restored by a replay.",
    ),
)
