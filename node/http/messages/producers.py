"""Producer identities: an id and an epoch, by which the log knows a retry from a new message."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from goqueue.wire.errors import BadRequest
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body


class InitProducer(Body):
    """A named producer keeps its id over restarts and fences its predecessor by the epoch."""

    transactional_id: Annotated[str, Meta(max_length=249)] | None = None
    transaction_timeout_ms: int | None = None


class ProducerIdentity(Struct):
    producer_id: int
    epoch: int


class ProducerBeat(Body):
    """`transactional_id` is accepted, the producer is found by its id."""

    epoch: Annotated[int, Meta(ge=0, lt=2**32)]
    transactional_id: str | None = None


class ProducerAlive(Struct):
    status: str
    success: bool


_INIT = msgspec.json.Decoder(InitProducer)
_BEAT = msgspec.json.Decoder(ProducerBeat)


async def init(call: Call) -> web.Response:
    wanted = await call.document(_INIT, empty=b"{}")
    producer_id, epoch = await call.broker.records.init_producer(wanted.transactional_id or None)
    return answer(ProducerIdentity(producer_id, epoch))


async def heartbeat(call: Call) -> web.Response:
    """Says whether the identity still holds; nothing expires for want of it."""
    text = call.params["producer"]
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadRequest(f"bad producer id {text[:40]!r}: want a number")
    beat = await call.document(_BEAT)
    await call.broker.records.check_producer(int(text), beat.epoch)
    return answer(ProducerAlive("ok", True))
