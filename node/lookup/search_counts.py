"""What search hashes take on each node, asked over the peer link."""

from __future__ import annotations

import asyncio

import msgspec

from delivery.lookup.message_states import stored
from delivery.lookup.search_hashes import ITEMS_MAX, KINDS
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId
from node.peers.link import PeerLink
from node.replicas.local import Replicas
from node.rpc import partitions as rpc
from node.rpc.search import HASHES, HashesAnswer
from raft.link import RemoteError

ASK_TIMEOUT_S = 2.0
_decoder = msgspec.msgpack.Decoder(HashesAnswer)


class SearchCounts:
    """Of this node, and of all that can be reached."""

    def __init__(self, replicas: Replicas, link: PeerLink) -> None:
        self._replicas = replicas
        self._link = link
        link.handle(HASHES, self._serve)

    def here(self) -> HashesAnswer:
        hosts = list(self._replicas.all())
        books = [host.hashes.bookkeeping() for host in hosts]
        return HashesAnswer(
            items=sum(book.items for book in books),
            disk_bytes=sum(book.disk_bytes for book in books),
            ram_bytes=sum(book.ram_bytes for book in books),
            behind_entries=sum(book.behind_entries for book in books),
            segments=sum(book.segments for book in books),
            replicas=len(hosts),
            ram_items=sum(book.ram_items for book in books),
            ram_items_max=KINDS * ITEMS_MAX * len(hosts),
            messages=sum(len(stored(host.state.queue)) for host in hosts if host.is_leader),
        )

    async def of_all_nodes(self) -> list[HashesAnswer]:
        """Of those that answer, this one first."""
        told = await asyncio.gather(*(self._ask(node) for node in sorted(self._link.connected())))
        return [self.here(), *(answer for answer in told if answer is not None)]

    async def _ask(self, node: NodeId) -> HashesAnswer | None:
        try:
            return _decoder.decode(await self._link.request(node, HASHES, b"", ASK_TIMEOUT_S))
        except (GoQueueError, RemoteError, msgspec.DecodeError):
            return None

    async def _serve(self, _peer: NodeId, _payload: bytes) -> bytes:
        return rpc.encode(self.here())
