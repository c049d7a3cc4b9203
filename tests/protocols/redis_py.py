"""Redis' own client for Python: XADD in pipelines, XREADGROUP and XACK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import redis

from tests.protocols.client import ANSWER_S, WAIT_S, Door, Line, Told, Unreachable
from tests.protocols.ledger import Ledger
from tests.protocols.redis_words import note_failure

COUNT = 100
T = TypeVar("T")


class RedisPy:
    """A stream's publisher or consumer, by RESP3."""

    stores_once: ClassVar[bool] = False
    sees_values: ClassVar[bool] = True

    def __init__(self, topic: str, group: str, number: int) -> None:
        self._topic, self._group, self._name = topic, group, f"py-{number}"
        self._door: Door | None = None
        self._client: Any = None

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        told = Told()
        try:
            pipeline = self._at(door).pipeline(transaction=False)
            for line in lines:
                pipeline.xadd(self._topic, {"value": line.value})
            answers = pipeline.execute(raise_on_error=False)
        except redis.RedisError as error:
            told.refused[type(error).__name__] += 1
            if not _is_unsent(error):
                told.unknown.update(line.number for line in lines)
            return told
        for line, answer in zip(lines, answers, strict=True):
            if isinstance(answer, redis.ResponseError):
                note_failure(told, _text(answer), [line.number])
            else:
                told.stored[line.number] += 1
                told.places[line.number] = (0, int(answer.partition("-")[2]))
        return told

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        """What it had before comes first: pending entries outlive connections and nodes."""
        client = self._at(door)
        self._make_group(client)
        while not is_over.is_set():
            for start in ("0", ">"):
                found = _asked(
                    lambda start=start: client.xreadgroup(
                        self._group,
                        self._name,
                        {self._topic: start},
                        count=COUNT,
                        block=int(WAIT_S * 1000) if start == ">" else None,
                    )
                )
                entries = [one for rows in (found or {}).values() for part in rows for one in part]
                self._ack(client, ledger, entries)

    def _make_group(self, client: Any) -> None:
        try:
            client.xgroup_create(self._topic, self._group, id="0")
        except redis.RedisError as error:
            if "BUSYGROUP" not in str(error):
                raise Unreachable(str(error)) from None

    def _ack(self, client: Any, ledger: Ledger, entries: list[tuple[str, Any]]) -> None:
        numbers = [ledger.give(fields["value"].encode()) for _, fields in entries]
        pipeline = client.pipeline(transaction=False)
        for id, _ in entries:
            pipeline.xack(self._topic, self._group, id)
        try:
            answers = pipeline.execute(raise_on_error=False)
        except redis.RedisError as error:
            ledger.ack_unanswered(numbers)
            raise Unreachable(str(error)) from None
        for number, answer in zip(numbers, answers, strict=True):
            if answer == 1:
                ledger.ack(number)
            elif isinstance(answer, redis.ResponseError):
                ledger.ack_unanswered([number])

    def _at(self, door: Door) -> Any:
        if door != self._door:
            if self._client is not None:
                self._client.close()
            self._door = door
            self._client = redis.Redis(
                host=door.host,
                port=door.redis,
                decode_responses=True,
                socket_timeout=ANSWER_S,
                retry=None,
                protocol=3,
            )
        return self._client


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except redis.RedisError as error:
        raise Unreachable(str(error)) from None


def _is_unsent(error: redis.RedisError) -> bool:
    return isinstance(error, redis.ConnectionError) and "refused" in str(error)


def _text(error: redis.ResponseError) -> str:
    """redis-py takes the code away from errors that it has a class for, and tells of a pipeline
    which command it was."""
    text = str(error)
    if text.startswith("Command # "):
        text = text.partition("caused error: ")[2] or text
    code = {"TryAgainError": "TRYAGAIN "}.get(type(error).__name__, "")
    return code + text
