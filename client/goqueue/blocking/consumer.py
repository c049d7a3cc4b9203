"""The blocking consumer: the asynchronous one, run on a client's thread; its handlers run in
threads of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar, Unpack

from goqueue.blocking.client import Client
from goqueue.blocking.received import BlockingReceived, blocking_received
from goqueue.consume.consumer import AsyncConsumer
from goqueue.consume.sigterm import ending_by_sigterm
from goqueue.models.failures import Closed
from goqueue.models.groups import TopicPartition
from goqueue.models.options import ConsumerOptions, check_options
from goqueue.models.queued import Leased, Received
from goqueue.models.settles import Settled
from goqueue.models.times import Duration
from goqueue.transport.spans import SPANS

T = TypeVar("T")

BlockingHandler = Callable[[BlockingReceived], object]
BlockingListener = Callable[[list[TopicPartition]], object]


class Consumer:
    """As `AsyncConsumer`, blocking. Use as `with`, and iterate over it or `run` a handler:

        with Consumer(urls, "billing", "orders") as consumer:
            for message in consumer:
                message.ack()

    Calls may come from any thread; each thread that iterates has its own message in work.
    """

    def __init__(
        self,
        client: Client | str | Sequence[str],
        group: str,
        topics: str | Sequence[str] = (),
        *,
        rebalance_on_assign: BlockingListener | None = None,
        rebalance_on_revoke: BlockingListener | None = None,
        rebalance_on_lost: BlockingListener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """With the options of `AsyncConsumer`. The callbacks are called in a thread."""
        check_options("Consumer()", options, ConsumerOptions)
        self._own_client = None if isinstance(client, Client) else Client(client)
        clients = client if isinstance(client, Client) else self._own_client
        assert clients is not None
        self._thread = clients._thread
        self._consumer = AsyncConsumer(
            clients._twin,
            group,
            topics,
            rebalance_on_assign=_in_thread(rebalance_on_assign),
            rebalance_on_revoke=_in_thread(rebalance_on_revoke),
            rebalance_on_lost=_in_thread(rebalance_on_lost),
            **options,
        )

    def __enter__(self) -> Consumer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._consumer.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Join the group. See `AsyncConsumer.start`."""
        try:
            self._thread.run(self._consumer.start())
        except BaseException:
            if self._own_client is not None:
                self._own_client.close()
            raise

    def close(self) -> None:
        """Let handlers end, give back the rest, and leave. See `AsyncConsumer.close`."""
        self._end(self._consumer.close())

    def stop(self) -> None:
        """Hand out nothing more: iteration and `run` end, in all threads."""
        with suppress(Closed):
            self._call(self._consumer.stop)

    # -- messages

    def next(self, wait: Duration | None = None) -> BlockingReceived | None:
        """The next message, within `wait`; None where none came, or the consumer was stopped.
        Raises what made it fail, such as `GroupHalted`."""
        found = self._thread.run(self._consumer.next_for(threading.get_ident(), wait))
        return None if found is None else blocking_received(found, self)

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> BlockingReceived:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def run(self, handler: BlockingHandler, *, concurrency: int = 1) -> None:
        """Call the handler with each message, in `concurrency` threads, until the consumer is
        stopped or closed. Interrupting it waits for the handlers that run.

        A message whose handler returns is acked, one whose handler raises is nacked (`Retry` says
        when it comes again, `Reject` that it does not), unless the handler has settled it. Raises
        what made the consumer fail.

        In the main thread of a program that does not handle SIGTERM by itself, one SIGTERM lets the
        handlers that run end, leaves the group and returns; a second one ends the process at once.
        """
        with ending_by_sigterm(self.stop) as ending:
            self.start()
            self._run(handler, concurrency)
        if ending.is_told:
            self.close()
        if (failure := self._consumer.failure) is not None:
            raise failure

    def settle_one(
        self,
        message: Leased,
        action: str,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: str | None = None,
        visibility: Duration | None = None,
    ) -> Settled:
        """What a message's own methods do. Raises its error."""
        return self._thread.run(
            self._consumer.settle_one(
                message,
                action,
                reason=reason,
                delay=delay,
                position=position,
                visibility=visibility,
            )
        )

    # -- partitions

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are this consumer's now, in order."""
        return self._call(lambda: self._consumer.assignment)

    @property
    def member_id(self) -> str:
        """Its name in the group, "" before it has joined."""
        return self._consumer.member_id

    @property
    def generation(self) -> int:
        """Of the group, as far as it was told."""
        return self._consumer.generation

    @property
    def paused(self) -> list[TopicPartition]:
        """What is not received from, in order."""
        return self._call(lambda: self._consumer.paused)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Receive nothing from these partitions, or all. See `AsyncConsumer.pause`."""
        self._call(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on with these partitions, or all."""
        self._call(lambda: self._consumer.resume(partitions))

    # -- private

    def _run(self, handler: BlockingHandler, concurrency: int) -> None:
        with ThreadPoolExecutor(concurrency, thread_name_prefix="goqueue-handler") as pool:
            workers = [pool.submit(self._handle_all, handler) for _ in range(concurrency)]
            try:
                wait(workers, return_when=FIRST_EXCEPTION)
            finally:
                self.stop()
            for worker in workers:
                worker.result()

    def _handle_all(self, handler: BlockingHandler) -> None:
        while (message := self._thread.run(self._consumer.take_to_handle())) is not None:
            failure: BaseException | None = None
            try:
                with SPANS.processing(message):
                    handler(blocking_received(message, self))
            except BaseException as error:
                failure = error
                if not isinstance(error, Exception):
                    raise
            finally:
                self._finish(message, failure)

    def _finish(self, message: Received, failure: BaseException | None) -> None:
        with suppress(Closed):
            self._call(lambda: self._consumer.finish(message, failure))

    def _call(self, act: Callable[[], T]) -> T:
        async def call() -> T:
            return act()

        return self._thread.run(call())

    def _end(self, closing: Coroutine[Any, Any, None]) -> None:
        try:
            self._thread.run(closing)
        except Closed:
            return
        if self._own_client is not None:
            self._own_client.close()


def _in_thread(
    listener: BlockingListener | None,
) -> Callable[[list[TopicPartition]], Awaitable[None]] | None:
    if listener is None:
        return None

    async def tell(partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(listener, partitions)

    return tell
