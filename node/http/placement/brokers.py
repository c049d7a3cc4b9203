"""Brokers: who is in the cluster, how much each holds, and how one leaves it."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web
from msgspec import Struct

from goqueue.wire.errors import BadName
from goqueue.wire.ids import is_name
from node.api.placement import BrokerView, DrainView
from node.api.times import format_time
from node.http.placement.plans import ReassignmentAnswer, Throttle, plan_answer, reassignment_answer
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body


class DrainProgress(Struct):
    """How far a drain is. `problem` says why it can't go on; `waiting` names partitions and what
    each waits for; `bytes_left` are those of partitions that are being copied now."""

    started_at: str
    replicas_at_start: int
    replicas_left: int
    throttle_bytes_per_sec: int
    problem: str | None
    waiting: list[str]
    bytes_left: int | None
    bytes_per_sec: int


class BrokerAnswer(Struct):
    """A broker. `state` is active, draining or drained; `status` is alive, dead or wiped, as seen
    by the node that answers. `replicas` are those it should have, `held` those that it should have
    or still has; `leaders` is what it leads."""

    id: str
    state: str
    zone: str
    incarnation: str
    url: str
    peer_address: str
    up: bool
    status: str
    replicas: int
    leaders: int
    held: int
    drain: DrainProgress | None


class BrokersAnswer(Struct):
    brokers: list[BrokerAnswer]


class ClusterOverview(Struct):
    """The brokers, and the reassignments that run."""

    cluster_id: str
    controller: str | None
    brokers: list[BrokerAnswer]
    reassignments: list[ReassignmentAnswer]
    under_replicated_partitions: int
    leaderless_partitions: int
    problems: list[str]


class DrainBody(Body):
    dry_run: bool | None = None
    throttle_bytes_per_sec: Throttle | None = None


class DrainStarted(BrokerAnswer, kw_only=True):
    """The broker whose replicas move to others from now on."""

    replicas_left: int


class BrokerRemoved(Struct):
    """`state` is gone: the cluster has forgotten it."""

    id: str
    state: str


_DRAIN = msgspec.json.Decoder(DrainBody)


async def overview(call: Call) -> web.Response:
    brokers, running = await asyncio.gather(
        call.broker.placement.brokers(), call.broker.placement.reassignments(running_only=True)
    )
    view = call.broker.node.cluster_view()
    return answer(
        ClusterOverview(
            view.cluster_id,
            view.controller,
            list(map(_broker, brokers)),
            list(map(reassignment_answer, running)),
            view.under_replicated,
            view.leaderless,
            list(view.problems),
        )
    )


async def list_all(call: Call) -> web.Response:
    return answer(BrokersAnswer(list(map(_broker, await call.broker.placement.brokers()))))


async def describe(call: Call) -> web.Response:
    return answer(_broker(await call.broker.placement.broker(_name(call))))


async def drain(call: Call) -> web.Response:
    """202 and the broker; 200 and the plan of a dry run. Again, it changes nothing."""
    name = _name(call)
    wanted = await call.document(_DRAIN, empty=b"{}")
    if wanted.dry_run:
        return answer(plan_answer(await call.broker.placement.plan_drain(name)))
    throttle = wanted.throttle_bytes_per_sec or 0
    view = await call.broker.placement.drain(name, throttle_bytes_s=throttle)
    fields = msgspec.structs.asdict(_broker(view))
    return answer(DrainStarted(**fields, replicas_left=view.held), 202)


async def undrain(call: Call) -> web.Response:
    return answer(_broker(await call.broker.placement.undrain(_name(call))))


async def remove(call: Call) -> web.Response:
    """Only one that is drained."""
    name = _name(call)
    await call.broker.placement.remove_broker(name)
    return answer(BrokerRemoved(name, "gone"))


def _name(call: Call) -> str:
    name = call.params["broker"]
    if not is_name(name):
        raise BadName(f"bad broker name {name[:64]!r}", name=name[:64])
    return name


def _broker(view: BrokerView) -> BrokerAnswer:
    return BrokerAnswer(
        id=view.id,
        state=view.state,
        zone=view.zone,
        incarnation=f"{view.incarnation:016x}",
        url=view.url,
        peer_address=view.peer_address,
        up=view.status == "alive",
        status=view.status,
        replicas=view.replicas,
        leaders=view.leaders,
        held=view.held,
        drain=None if view.drain is None else _drain_progress(view.drain),
    )


def _drain_progress(view: DrainView) -> DrainProgress:
    return DrainProgress(
        started_at=format_time(view.started_ms),
        replicas_at_start=view.replicas_at_start,
        replicas_left=view.replicas_left,
        throttle_bytes_per_sec=view.throttle_bytes_s,
        problem=view.problem or None,
        waiting=list(view.waiting),
        bytes_left=view.bytes_left,
        bytes_per_sec=view.rate_bytes_s,
    )
