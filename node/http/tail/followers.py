"""The ends of logs, read once for all who tail them.

A follower reads the end of one partition for as long as somebody is near it, and keeps what it has
read of late: readers take it from there, each at its own pace, and what they send was encoded once.
A reader that falls behind what is kept leaves, and reads by itself until it has come to the end
again. So neither a slow reader nor many of them cost more than one window a partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, OverBudget, ServerError
from goqueue.wire.types import Offset
from node.api.records import Records, Slice
from node.http.budget.memory import Budgets, Held, Kind, Owner, Reserved
from node.http.budget.slices import SHARE
from node.http.request.call import FrontMetrics
from node.http.tail.lines import READ_BYTES, ROWS_MAX, Portion, portion_of

WINDOW_BYTES = 2 * 1024 * 1024
"""Of one partition's newest messages, the last read not counted: so far may a reader lag behind."""
FOLLOW_WAIT_S = 30.0
"""How long one read waits for messages."""
RETRY_S = 0.5
"""Between reads that fail, or that no leader confirms."""
OWNER = "tails"
"""Who holds the memory of windows, among those who hold answers: one holder for all of them."""

log = logging.getLogger(__name__)


class Follower:
    """Reads the end of one partition. Loop thread only."""

    def __init__(
        self, topic: str, partition: int, position: int, charge: Callable[[], Held]
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = position
        """The first offset that it can give."""
        self.end = position
        """Where it goes on reading."""
        self.failure: GoQueueError | None = None
        """Why it has ended; whoever is there ends, too."""
        self.trouble = ""
        """Why nothing comes just now."""
        self.readers: set[asyncio.Event] = set()
        """What is set when there is news."""
        self._charge = charge
        self._portions: deque[tuple[Portion, Reserved]] = deque()

    def holds(self, position: int) -> bool:
        """Whether a reader that is there can go on from here."""
        return self.failure is None and self.start <= position <= self.end

    def portion(self, position: int) -> Portion | None:
        """What follows there, which `holds`; None at the end. Its first lines may be before it."""
        for portion, _ in self._portions:
            if portion.following > position:
                return portion
        return None

    async def take(self, found: Slice) -> None:
        """What was read at `end` is kept, and readers are told."""
        self.trouble = "no leader confirms that there is no more" if found.stale else ""
        if found.log_start > self.end:  # readers find out for themselves what is gone
            self._begin_again(found.log_start)
            return
        held = Reserved(self._charge())
        try:
            portion = await portion_of(found, self.partition, self.end, held)
            held.grow(max(0, portion.held_bytes - held.used))
        except OverBudget:
            held.release()
            self._begin_again(found.next_offset)
            return
        except BaseException:
            held.release()
            raise
        if portion.following == self.end:
            held.release()
            return
        self.end = portion.following
        self._keep(portion, held)
        self.tell()

    def tell(self) -> None:
        """There is news."""
        for wake in self.readers:
            wake.set()

    def close(self) -> None:
        """Nothing is kept any more."""
        while self._portions:
            self._portions.pop()[1].release()

    def _begin_again(self, position: int) -> None:
        self.close()
        self.start = self.end = max(self.end, position)
        self.tell()

    def _keep(self, portion: Portion, held: Reserved) -> None:
        self._portions.append((portion, held))
        kept = sum(one.used for _, one in self._portions)
        while kept > WINDOW_BYTES and len(self._portions) > 1:
            gone, charge = self._portions.popleft()
            kept -= charge.used
            charge.release()
            self.start = gone.following


class Followers:
    """Those of one front. Loop thread only."""

    def __init__(self, records: Records, budgets: Budgets, figures: FrontMetrics) -> None:
        self.figures = figures
        self._records = records
        self._budgets = budgets
        self._all: dict[tuple[str, int], Follower] = {}
        self._tasks: dict[Follower, TaskSet] = {}
        self._wakes: set[asyncio.Event] = set()

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, wake: asyncio.Event) -> None:
        """A tail begins; it is woken by `wake`."""
        self._wakes.add(wake)
        self.figures.tails_open(len(self._wakes))

    def exit(self, wake: asyncio.Event) -> None:
        """It has ended, and left its followers. Idempotent."""
        self._wakes.discard(wake)
        self.figures.tails_open(len(self._wakes))

    def holds(self, topic: str, partition: int, position: int) -> bool:
        """Whether a reader at this position can go on from what is kept."""
        found = self._all.get((topic, partition))
        return found is not None and found.holds(position)

    def join(
        self, topic: str, partition: int, position: int, wake: asyncio.Event
    ) -> Follower | None:
        """The follower that goes on from this position, which `leave` is called for; None where the
        one that there is has come further, and keeps nothing of it."""
        key = (topic, partition)
        follower = self._all.get(key)
        if follower is None:
            owner = Owner(OWNER, key)
            follower = Follower(
                topic, partition, position, lambda: self._budgets.hold(Kind.ANSWERS, owner)
            )
            self._all[key] = follower
            tasks = self._tasks[follower] = TaskSet("node", "follower_failed")
            tasks.begin(self._follow(follower), f"tail-{topic}:{partition}")
        elif position < follower.start:
            return None
        follower.readers.add(wake)
        return follower

    def leave(self, follower: Follower, wake: asyncio.Event) -> None:
        """The last one stops the reading. Idempotent."""
        follower.readers.discard(wake)
        if not follower.readers and follower in self._tasks:
            self._drop(follower)
            tasks = self._tasks.pop(follower)
            follower.close()
            tasks.cancel()

    def wake(self) -> None:
        """All tails look what is up."""
        for wake in self._wakes:
            wake.set()

    async def stop(self) -> None:
        """Nothing is read any more. Idempotent."""
        for follower in list(self._tasks):
            self._drop(follower)
            await self._tasks.pop(follower).stop()
            follower.close()

    # private

    def _drop(self, follower: Follower) -> None:
        key = (follower.topic, follower.partition)
        if self._all.get(key) is follower:
            del self._all[key]

    async def _follow(self, follower: Follower) -> None:
        SHARE.set(None)  # it is nobody's work more than another's
        try:
            while True:
                await self._read_once(follower)
        except GoQueueError as error:
            follower.failure = error
        except Exception:
            log.exception("follower failed")
            follower.failure = ServerError()
        self._drop(follower)
        follower.tell()

    async def _read_once(self, follower: Follower) -> None:
        """Raises GoQueueError where reading again is of no use."""
        try:
            found = await self._records.read(
                follower.topic,
                follower.partition,
                Offset(follower.end),
                max_records=ROWS_MAX,
                max_bytes=READ_BYTES,
                wait_s=FOLLOW_WAIT_S,
            )
            self.figures.tail_read("shared")
            await follower.take(found)
        except GoQueueError as error:
            if not error.retriable:
                raise
            follower.trouble = error.message
            await asyncio.sleep(RETRY_S)
        else:
            if found.stale and not found.batches:
                await asyncio.sleep(RETRY_S)
