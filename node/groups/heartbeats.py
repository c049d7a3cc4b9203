"""Signs of life: whoever leads the cluster group is told which members were heard of here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, Timeout, Unavailable
from goqueue.wire.types import CLUSTER_GROUP, Index
from node.cluster.host import ClusterHost
from node.groups.sessions import GroupSessions
from node.peers.forwarding import Forwarder
from node.rpc import groups as group_rpc
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.groups import HeardAnswer, HeardRequest, SilentAnswer, SilentRequest
from node.runtime.logger import get_logger

HEARD_DEADLINE_S = 5.0
SILENT_DEADLINE_S = 2.0
TOLD_AGAIN = 10
"""A session is told of this often at most by what is not a heartbeat; the rest of it is left."""
TOLD_MAX = 10_000
DISAGREE_PAUSE_S = 0.05
MEMBERS_A_REQUEST_MAX = 1000
REQUESTS_MAX = 4
"""Out at once. Where they are, members wait for the next one together."""

_Session = tuple[int, str]
_Heard = asyncio.Future[Index | None]
"""Up to where the leader had applied as it heard of a member; None of who is none."""

_log = get_logger("groups")


class SignsOfLife:
    """A service. Any node tells them of the members that ask it. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterHost,
        sessions: GroupSessions,
        forwarder: Forwarder,
        background_tasks: TaskSet,
    ) -> None:
        self._cluster = cluster
        self._sessions = sessions
        self._forwarder = forwarder
        self._background_tasks = background_tasks
        self._told_s: dict[_Session, float] = {}
        self._waiting: dict[_Session, _Heard] = {}
        """Of members that are in no request yet."""
        self._requests = TaskSet("groups", "signs_of_life_not_told")
        self._stopped = False

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        self._stopped = True
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting = {}
        await self._requests.stop()

    async def tell(self, group: int, member: str) -> bool:
        """Whether there is such a member still. Where there isn't, this node has learnt it, too.

        Where there is, this node has applied what the leader had as it heard of the member, unless
        it lags for long: a follower knows that an entry is committed only once it has synced it
        itself, and other nodes may have told of it before. Raises `Unavailable` where no leader
        can be told.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + HEARD_DEADLINE_S
        while (applied := await self._heard((group, member))) is None:
            await self._cluster.refresh()
            known = self._cluster.state.members.by_group.get(group)
            if known is None or member not in known.members:
                return False
            if loop.time() > end_s:
                raise Unavailable("the cluster group's leader does not know of this member")
            await asyncio.sleep(DISAGREE_PAUSE_S)  # who answered led no longer, or did not yet
        await self._cluster.until_applied(applied, max(0.0, end_s - loop.time()))
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
        self._background_tasks.send(self._tell(group, member))

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

    async def _heard(self, session: _Session) -> Index | None:
        """What the leader says, see `_Heard`; members that are told of in one turn of the loop, or
        while enough requests are out, share one."""
        if self._stopped:
            raise Unavailable("this node is stopping")
        waiting = self._waiting.get(session)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._waiting[session] = loop.create_future()
            if len(self._waiting) == 1:
                loop.call_soon(self._send)
        return await asyncio.shield(waiting)

    def _send(self) -> None:
        while not self._stopped and self._waiting and len(self._requests) < REQUESTS_MAX:
            sessions = list(islice(self._waiting, MEMBERS_A_REQUEST_MAX))
            told = {session: self._waiting.pop(session) for session in sessions}
            request = self._requests.begin(self._request(told))
            request.add_done_callback(lambda _request: self._send())

    async def _request(self, told: Mapping[_Session, _Heard]) -> None:
        try:
            answer = await self._ask(list(told))
            gone, applied = set(answer.gone), Index(answer.applied)
            for session, waiting in told.items():
                waiting.set_result(None if session in gone else applied)
        except GoQueueError as error:
            _fail(told, error)
        except Exception:  # noqa: BLE001 - the task's outermost guard
            _log.exception("signs_of_life_not_told")
            _fail(told, Unavailable("the cluster group's leader was not told"))
        finally:
            for waiting in told.values():
                waiting.cancel()

    async def _ask(self, members: list[_Session]) -> HeardAnswer:
        """Raises `Unavailable` where nobody can say."""
        request = HeardRequest(members)

        async def here(_left_s: float) -> HeardAnswer:
            return self._sessions.heard_all(members)

        try:
            return await self._forwarder.call(
                CLUSTER_GROUP,
                local=here,
                method=group_rpc.HEARD,
                payload=lambda _left_s: rpc.encode(request),
                decode=lambda answer: queue_rpc.decode_answer(answer, HeardAnswer),
                deadline_s=HEARD_DEADLINE_S,
            )
        except Timeout as error:
            raise Unavailable(f"no leader knows of members: {error.message}") from error


def _fail(told: Mapping[_Session, _Heard], error: GoQueueError) -> None:
    """Each is told in an error of its own."""
    for waiting in told.values():
        waiting.set_exception(GoQueueError.from_body(error.to_body()))
        waiting.exception()  # who has left does not ask
