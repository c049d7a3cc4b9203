"""Signs of life: whoever leads the cluster group is told which members were heard of here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from goqueue.wire.errors import GoQueueError, Timeout, Unavailable
from goqueue.wire.types import CLUSTER_GROUP
from node import group_rpc, queue_rpc, rpc
from node.cluster import ClusterHost
from node.errands import Errands
from node.forwarding import Forwarder
from node.group_rpc import HeardAnswer, HeardRequest, SilentAnswer, SilentRequest
from node.group_sessions import GroupSessions

HEARD_DEADLINE_S = 5.0
SILENT_DEADLINE_S = 2.0
TOLD_AGAIN = 10
"""A session is told of this often at most by what is not a heartbeat; the rest of it is left."""
TOLD_MAX = 10_000
DISAGREE_PAUSE_S = 0.05


class SignsOfLife:
    """Any node tells them of the members that ask it. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterHost,
        sessions: GroupSessions,
        forwarder: Forwarder,
        errands: Errands,
    ) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._forwarder = forwarder
        self._errands = errands
        self._told_s: dict[tuple[int, str], float] = {}

    async def tell(self, group: int, member: str) -> bool:
        """Whether there is such a member still. Where there isn't, this node has learnt it, too.
        Raises `Unavailable` where no leader can be told."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + HEARD_DEADLINE_S
        while not await self._told(group, member, end_s - loop.time()):
            await self._cluster.refresh()
            known = self._cluster.state.members.by_group.get(group)
            if known is None or member not in known.members:
                return False
            await asyncio.sleep(DISAGREE_PAUSE_S)  # who answered led no longer, or did not yet
        return True

    def tell_soon(self, group: int, member: str, session_ms: int) -> None:
        """As `tell`, without waiting, and not where it was told a moment ago."""
        now_s = asyncio.get_running_loop().time()
        told_s = self._told_s.pop((group, member), None)
        if told_s is not None and (now_s - told_s) * 1000 * TOLD_AGAIN < session_ms:
            self._told_s[group, member] = told_s
            return
        if len(self._told_s) >= TOLD_MAX:
            del self._told_s[next(iter(self._told_s))]
        self._told_s[group, member] = now_s
        self._errands.send(self._tell(group, member))

    async def silent_ms(self, groups: Sequence[int]) -> dict[int, dict[str, int]]:
        """For how long the members of these groups were not heard of, by group and member; nothing
        where no leader answers."""
        request = SilentRequest(list(groups))

        async def here(_left_s: float) -> dict[int, dict[str, int]]:
            return self._sessions.silent_ms(request.groups)

        try:
            return await self._forwarder.call(
                CLUSTER_GROUP,
                local=here,
                method=group_rpc.SILENT,
                payload=lambda _left_s: rpc.encode(request),
                decode=lambda answer: queue_rpc.decode_answer(answer, SilentAnswer).silent_ms,
                deadline_s=SILENT_DEADLINE_S,
                patience_s=0.0,
            )
        except GoQueueError:
            return {}

    async def _tell(self, group: int, member: str) -> None:
        try:
            await self.tell(group, member)
        except GoQueueError:
            self._told_s.pop((group, member), None)
            raise

    async def _told(self, group: int, member: str, left_s: float) -> bool:
        request = HeardRequest(group, member)

        async def here(_left_s: float) -> bool:
            return self._sessions.heard(group, member)

        try:
            return await self._forwarder.call(
                CLUSTER_GROUP,
                local=here,
                method=group_rpc.HEARD,
                payload=lambda _left_s: rpc.encode(request),
                decode=lambda answer: queue_rpc.decode_answer(answer, HeardAnswer).is_member,
                deadline_s=left_s,
            )
        except Timeout as error:
            raise Unavailable(f"no leader knows of members: {error.message}") from error
