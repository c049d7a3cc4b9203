"""The scrubs of all nodes, asked and told over the peer link: a part of the node's broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import msgspec

from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId
from node.api.scrub import ScrubView
from node.peers.link import PeerLink
from node.rpc import partitions as rpc
from node.rpc.scrub import SCRUB, ScrubRequest
from node.storage.repair.scrub import Scrub
from raft.link import RemoteError

ASK_TIMEOUT_S = 5.0
_views = msgspec.msgpack.Decoder(ScrubView)


class NodeScrubs:
    """Implements `node.api.scrub.Scrubs`, for the nodes that `scrubbed` names. Loop
    thread only."""

    def __init__(
        self,
        me: NodeId,
        scrub: Scrub,
        link: PeerLink,
        scrubbed: Callable[[], Collection[NodeId]],
    ) -> None:
        self._me = me
        self._scrubbed = scrubbed
        self._scrub = scrub
        self._link = link
        link.handle(SCRUB, self._serve_scrub)

    async def scrub(self, *, begin: bool) -> dict[str, ScrubView | None]:
        nodes = sorted(self._link.connected())
        views = await asyncio.gather(*(self._ask_scrub(node, begin=begin) for node in nodes))
        told: dict[str, ScrubView | None] = dict.fromkeys(self._scrubbed())
        told.update(zip(nodes, views, strict=True))
        return {**told, self._me: self._here(begin=begin)}

    def _here(self, *, begin: bool) -> ScrubView:
        if begin:
            self._scrub.begin()
        return self._scrub.status()

    async def _ask_scrub(self, node: NodeId, *, begin: bool) -> ScrubView | None:
        payload = rpc.encode(ScrubRequest(begin))
        try:
            return _views.decode(await self._link.request(node, SCRUB, payload, ASK_TIMEOUT_S))
        except (GoQueueError, RemoteError, msgspec.DecodeError):
            return None

    async def _serve_scrub(self, _peer: NodeId, payload: bytes) -> bytes:
        request = msgspec.msgpack.decode(payload, type=ScrubRequest)
        return rpc.encode(self._here(begin=request.begin))
