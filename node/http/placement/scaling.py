"""A topic grows: partitions are added to it, and what of it is on its way is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from goqueue.wire.errors import BadRequest, GoQueueError
from node.api.placement import MovingView
from node.http.placement.plans import BrokerNames
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body

_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class AddPartitionsBody(Body):
    """`count` is the number of partitions in all. `replica_assignments` are the brokers of the new
    ones: by partition, or in their order; null leaves the choice to the cluster."""

    count: _Count
    replica_assignments: (
        dict[str, BrokerNames] | Annotated[list[BrokerNames], Meta(max_length=1024)] | None
    ) = None


class PartitionsAddedAnswer(Struct):
    """How many partitions there were and are; asking for as many as there are adds none."""

    success: bool
    topic_name: str
    old_partition_count: int
    new_partition_count: int
    partitions_added: list[int]


class MovingPartition(Struct, rename={"from_": "from"}):
    """A partition that is on its way, from who takes part in it now to who should."""

    partition: int
    from_: list[str]
    to: list[str]
    waiting: str | None
    bytes_left: int | None


class ScalingAnswer(Struct):
    """`unplanned` partitions have another number of replicas than they should, and wait for a plan.
    Scaling is in progress while any partition moves or is unplanned."""

    topic: str
    scaling_in_progress: bool
    partitions: int
    replication_factor: int
    moving: list[MovingPartition]
    unplanned: list[int]


_ADD = msgspec.json.Decoder(AddPartitionsBody)


async def add(call: Call) -> web.Response:
    """Errors tell GoQueue's fields too."""
    try:
        topic = call.topic()
        wanted = await call.document(_ADD)
        before = await call.readable_partition_count(topic)
        placed = _assignments(wanted, before)
        grown = await call.broker.placement.add_partitions(topic, wanted.count, placed)
    except GoQueueError as error:
        error.data.update(success=False, topic_name=call.params["topic"])
        raise
    added = list(range(grown.before, grown.partitions))
    return answer(PartitionsAddedAnswer(True, grown.topic, grown.before, grown.partitions, added))


async def status(call: Call) -> web.Response:
    view = await call.broker.placement.scaling(call.topic())
    return answer(
        ScalingAnswer(
            view.topic,
            bool(view.moving or view.unplanned),
            view.partitions,
            view.replication_factor,
            list(map(_moving, view.moving)),
            list(view.unplanned),
        )
    )


def _assignments(wanted: AddPartitionsBody, before: int) -> Sequence[Sequence[str]]:
    """The brokers of each new partition in turn. Raises BadRequest."""
    given = wanted.replica_assignments
    if not isinstance(given, dict):
        return given or ()
    numbers = [str(number) for number in range(before, min(wanted.count, before + len(given) + 1))]
    if given and set(given) != set(numbers):
        raise BadRequest(
            f"replica_assignments: name exactly the new partitions, {before} to {wanted.count - 1}"
            if wanted.count > before
            else "replica_assignments: there are no new partitions"
        )
    return [given[number] for number in numbers if number in given]


def _moving(view: MovingView) -> MovingPartition:
    return MovingPartition(
        view.partition,
        list(view.before),
        list(view.after),
        view.waiting or None,
        view.bytes_left,
    )
