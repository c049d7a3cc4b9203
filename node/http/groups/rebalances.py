"""Receipts of rebalances: why each happened, what it moved, and how long each partition paused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiohttp import web
from msgspec import Struct, field

from node.api.members import MembershipView, MoveView, RebalanceView
from node.api.times import format_time
from node.http.request.call import Call, answer

LIMIT = 100


class MoveAnswer(Struct):
    """A partition that went `from` one member `to` another; either may be nobody, as "".

    `pause_ms` is from when the former owner was asked to let go, or was last heard of, to when the
    new one could receive; `in_flight` counts messages that were taken back, `fenced` says that the
    former owner did not let go by itself.
    """

    topic: str
    partition: int
    former: str = field(name="from")
    member: str = field(name="to")
    pause_ms: int
    in_flight: int
    fenced: bool


class RebalanceAnswer(Struct):
    """One rebalance, named by the generation that it began. `cause` is join, leave, expiry,
    subscription, topic or partition_count; `members` are those who caused it."""

    id: int
    generation: int
    cause: str
    members: list[str]
    state: str
    started_at: str
    ended_at: str | None
    duration_ms: int | None
    moved: int
    moves: list[MoveAnswer]


class RebalanceTotals(Struct):
    """Counted since the group was created."""

    total: int
    by_cause: dict[str, int]
    moved: int
    fenced: int
    pause_ms_max: int
    pause_ms_avg: float


class RebalancesAnswer(Struct):
    """The newest first; 100 are remembered."""

    group: str
    rebalances: list[RebalanceAnswer]
    totals: RebalanceTotals


class RebalanceStats(Struct):
    """GoQueue's figures. Revoked partitions and durations are of the rebalances that are remembered
    (100 of a group); a revocation timeout is a partition whose owner had to be fenced."""

    total_rebalances: int
    successful_rebalances: int
    failed_rebalances: int
    total_partitions_revoked: int
    total_partitions_assigned: int
    total_revocation_timeouts: int
    last_rebalance_duration_ms: int
    average_rebalance_duration_ms: float
    last_rebalance_at: str | None
    rebalances_by_reason: dict[str, int]


async def list_rebalances(call: Call) -> web.Response:
    group = call.group()
    limit = call.query_int("limit", LIMIT, 1, LIMIT)
    view = await call.broker.members.membership(group)
    totals = view.totals
    return answer(
        RebalancesAnswer(
            group,
            [_rebalance(one) for one in reversed(view.rebalances[-limit:])],
            RebalanceTotals(
                sum(totals.by_cause.values()),
                dict(totals.by_cause),
                totals.moved,
                totals.fenced,
                totals.pause_ms_max,
                _average(totals.pause_ms_sum, totals.moved),
            ),
        )
    )


async def group_stats(call: Call) -> web.Response:
    return answer(rebalance_stats([await call.broker.members.membership(call.group())]))


async def all_stats(call: Call) -> web.Response:
    return answer(rebalance_stats(await call.broker.members.memberships()))


def rebalance_stats(views: Sequence[MembershipView]) -> RebalanceStats:
    """The figures of these groups taken together."""
    by_cause = Counter[str]()
    for view in views:
        by_cause.update(view.totals.by_cause)
    known = [one for view in views for one in view.rebalances]
    ended = [one for one in known if one.ended_ms]
    durations_ms = [one.ended_ms - one.started_ms for one in ended]
    last = max(known, key=lambda one: one.started_ms, default=None)
    return RebalanceStats(
        total_rebalances=by_cause.total(),
        successful_rebalances=by_cause.total() - (len(known) - len(ended)),
        failed_rebalances=0,
        total_partitions_revoked=sum(bool(move.former) for one in known for move in one.moves),
        total_partitions_assigned=sum(view.totals.moved for view in views),
        total_revocation_timeouts=sum(view.totals.fenced for view in views),
        last_rebalance_duration_ms=max(0, last.ended_ms - last.started_ms) if last else 0,
        average_rebalance_duration_ms=_average(sum(durations_ms), len(durations_ms)),
        last_rebalance_at=format_time(last.started_ms) if last else None,
        rebalances_by_reason=dict(by_cause),
    )


def _rebalance(view: RebalanceView) -> RebalanceAnswer:
    over = bool(view.ended_ms)
    return RebalanceAnswer(
        id=view.id,
        generation=view.id,
        cause=view.cause,
        members=list(view.members),
        state="done" if over else "running",
        started_at=format_time(view.started_ms),
        ended_at=format_time(view.ended_ms) if over else None,
        duration_ms=max(0, view.ended_ms - view.started_ms) if over else None,
        moved=view.moved,
        moves=list(map(_move, view.moves)),
    )


def _move(view: MoveView) -> MoveAnswer:
    return MoveAnswer(
        view.topic,
        view.partition,
        view.former,
        view.member,
        view.pause_ms,
        view.in_flight,
        view.fenced,
    )


def _average(total: int, count: int) -> float:
    return round(total / count, 3) if count else 0.0
