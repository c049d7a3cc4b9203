"""`consume --group` as a member of the group: it takes from the partitions that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cli.consume.group import BATCH_MAX, Taking
from cli.consume.messages import message_row
from cli.output.errors import EXIT_UNAVAILABLE, CliError, explain
from cli.output.terminal import note
from cli.run.session import Json, Session
from goqueue.consume.consumer import AsyncConsumer
from goqueue.errors import GoQueueError, GroupHalted
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received
from goqueue.models.settles import Settle, Settled, SettleResult
from goqueue.transport.http import join

CLIENT_ID = "goqueue-cli"
IDLE_S = 0.1
LOOK_S = 2.0
FOLLOW_LOOK_S = 10.0
"""When so long nothing came, at first and at most, it is asked whether there is anything."""


class Joined:
    """A member of a group, as a source of messages."""

    def __init__(self, session: Session, taking: Taking, consumer: AsyncConsumer) -> None:
        self._session = session
        self._taking = taking
        self._consumer = consumer
        self._held: dict[str, Received] = {}
        self._skipped: set[int] = set()
        self._noted: set[str] = set()
        self._is_quiet = False
        self._look_s = IDLE_S

    async def more(self, count: int) -> list[Json]:
        message = await self._first()
        found: list[Received] = []
        while message is not None:
            found.append(message)
            self._held[message.receipt] = message
            message = await self._next(0.0) if len(found) < count else None
        return list(map(message_row, found))

    async def settle(self, settles: list[Settle]) -> list[SettleResult]:
        return list(await asyncio.gather(*map(self._settle_one, settles)))

    async def skip(self, partition: int) -> None:
        self._skipped.add(partition)
        self._consumer.pause([TopicPartition(self._taking.topic, partition)])

    async def _first(self) -> Received | None:
        """The next message; without `follow`, None when none is ready. Raises `CliError` where some
        are, or may be, and none comes."""
        loop = asyncio.get_running_loop()
        follow, ends_s = self._taking.follow, loop.time() + self._session.timeout_s
        while (message := await self._next(self._look_s)) is None:
            if await self.is_drained():
                return None
            if loop.time() > ends_s and not follow:
                raise CliError(
                    f"nothing came in {self._session.timeout_s:g} s, though not all was delivered",
                    hint=f"see `goqueue-cli group describe {self._taking.group}`",
                    exit_code=EXIT_UNAVAILABLE,
                )
            self._look_s = min(self._look_s * 2, FOLLOW_LOOK_S if follow else LOOK_S)
        if not follow:
            self._look_s = IDLE_S
        return message

    async def _next(self, wait_s: float | None) -> Received | None:
        """Each is asked for in another's name, so that the leases of all are kept up."""
        return await self._consumer.next_for(object(), wait_s)

    async def is_drained(self) -> bool:
        """Whether nothing is ready, or on its way, in the partitions that this member has, or is
        to have soon; never when following. Raises `GroupHalted`."""
        path = join("groups", self._taking.group)
        try:
            group = await self._session.get(path, topic=self._taking.topic)
        except GoQueueError as error:
            if not self._taking.follow or not error.retriable:
                raise
            report = explain(error)
            self._note(f"{report.message if report else error}; trying again")
            return False
        mine = {(one.topic, one.partition) for one in self._consumer.assignment}
        if not self._is_seated(group, mine):
            return False
        if not mine and group["state"] == "stable":
            self._note(f"other members of group {self._taking.group} have all partitions")
        mine -= {(self._taking.topic, partition) for partition in self._skipped}
        wanted = [one for one in group["partitions"] if (one["topic"], one["partition"]) in mine]
        halted = [one for one in wanted if one["halted"]]
        if self._taking.follow:
            for one in halted:
                self._note(f"halted in partition {one['partition']}: {one['halted']}")
            return False
        working = [one for one in wanted if not one["halted"]]
        is_quiet = len(wanted) == len(mine) and not any(one["ready"] for one in working)
        was_quiet, self._is_quiet = self._is_quiet, is_quiet
        if group["mode"] == "shared":  # who has what is in flight is not known
            is_done = was_quiet and is_quiet
        else:
            in_flight = sum(int(one["in_flight"]) for one in wanted)
            is_done = is_quiet and in_flight <= len(self._held) and group["state"] == "stable"
        if is_done and halted:
            raise GroupHalted(reason=halted[0]["halted"])
        return is_done

    def _is_seated(self, group: Json, mine: set[tuple[str, int]]) -> bool:
        """Whether this member is in the group, and has been told what the group gives it."""
        given = [one for one in group["members"] if one["id"] == self._consumer.member_id]
        return bool(given) and mine == {
            (one["topic"], one["partition"]) for one in given[0]["assignment"]
        }

    def _note(self, text: str) -> None:
        """Once."""
        if text not in self._noted:
            self._noted.add(text)
            note(text)

    async def _settle_one(self, settle: Settle) -> SettleResult:
        message = self._held[settle.receipt]
        try:
            result = await self._act(message, settle)
        except GoQueueError as error:
            return error
        if settle.action != "extend":
            del self._held[settle.receipt]
        return result

    async def _act(self, message: Received, settle: Settle) -> Settled:
        if settle.action == "extend":
            return await message.extend(settle.visibility or 0.0)
        return await (message.ack() if settle.action == "ack" else message.release())


@asynccontextmanager
async def joined(session: Session, taking: Taking) -> AsyncIterator[Joined]:
    """A member, as long as it is used; it leaves, and gives back what it still has."""
    prefetch = BATCH_MAX if taking.limit is None else min(BATCH_MAX, taking.limit)
    consumer = AsyncConsumer(
        session.client,
        taking.group,
        taking.topic,
        client_id=CLIENT_ID,
        prefetch=prefetch,
        visibility=taking.visibility,
    )
    async with consumer:
        yield Joined(session, taking, consumer)
