"""gRPC through stubs that are made of the facts alone."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import grpc

from tests.cluster.grpc_facts import messages, stub
from tests.protocols.client import ANSWER_S, STREAM_S, Door, Line, Told, Unreachable
from tests.protocols.ledger import Ledger


class Stubs:
    """A publisher with a producer's numbers, so that what it sends again is stored once, or a
    member of the group."""

    stores_once: ClassVar[bool] = True
    sees_values: ClassVar[bool] = True

    def __init__(self, topic: str, group: str, number: int, partition: int = 0) -> None:
        """`partition` 0 is for a topic that has no other one."""
        self._topic, self._group, self._partition = topic, group, partition
        self._classes = messages()
        self._door: Door | None = None
        self._channel: Any = None
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        """Of lines, by their numbers: the same ones when they are sent again."""

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        told = Told()
        try:
            self._producer = self._producer or _producer(door)
        except (OSError, http.client.HTTPException) as error:
            told.refused[type(error).__name__] += 1
            return told
        left = {str(line.number) for line in lines}
        try:
            answers = self._call(door, "PublishService", "PublishStream")(
                self._requests(lines), timeout=ANSWER_S
            )
            for answer in answers:
                left.discard(answer.correlation_id)
                self._note(told, int(answer.correlation_id), answer)
        except grpc.RpcError as error:
            self._broken(error, told)
        told.unknown.update(int(one) for one in left)
        return told

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        request = self._classes("SubscribeRequest")(topics=[self._topic], group_id=self._group)
        request.heartbeat_interval.seconds = 1
        try:
            stream = self._call(door, "ConsumeService", "Subscribe")(request, timeout=STREAM_S)
            for told in stream:
                if told.WhichOneof("payload") == "messages":
                    self._ack(door, ledger, told.messages.messages)
                if is_over.is_set():
                    stream.cancel()
                    return
        except grpc.RpcError as error:
            self._broken(error)
            raise Unreachable(str(error)) from None

    def _requests(self, lines: Sequence[Line]) -> Iterator[Any]:
        assert self._producer is not None
        id, epoch = self._producer
        for line in lines:
            sequence = self._sequences.setdefault(line.number, len(self._sequences))
            yield self._classes("PublishStreamRequest")(
                correlation_id=str(line.number),
                topic=self._topic,
                value=line.value.encode(),
                partition=self._partition,
                producer_id=id,
                producer_epoch=epoch,
                sequence=sequence,
            )

    def _note(self, told: Told, number: int, answer: Any) -> None:
        if not answer.HasField("error"):
            told.stored[number] += 1
            told.places[number] = (answer.partition, answer.offset)
            return
        details = answer.error.details
        told.refused[details["code"]] += 1
        if details["outcome"] != "none":
            told.unknown[number] += 1
        elif details["retriable"] != "true" and details["code"] != "out_of_order":
            # out of order: one before it has failed, and is sent again with it
            told.wrong.append(f"publishing was answered with: {answer.error}")

    def _ack(self, door: Door, ledger: Ledger, found: Any) -> None:
        numbers = {one.receipt_handle: ledger.give(one.value) for one in found}
        request = self._classes("BatchAckRequest")(
            group_id=self._group, receipt_handles=list(numbers)
        )
        try:
            told = self._call(door, "AckService", "BatchAck")(request, timeout=ANSWER_S)
        except grpc.RpcError:
            ledger.ack_unanswered(numbers.values())
            raise
        failed = {one.receipt_handle: one.error.details["outcome"] for one in told.failures}
        ledger.ack_unanswered(numbers[one] for one, how in failed.items() if how == "unknown")
        for receipt, number in numbers.items():
            if receipt not in failed:
                ledger.ack(number)

    def _call(self, door: Door, service: str, method: str) -> Any:
        if door != self._door or self._channel is None:
            if self._channel is not None:
                self._channel.close()
            self._door, self._channel = door, grpc.insecure_channel(f"{door.host}:{door.grpc}")
        return stub(self._channel, self._classes, service, method)

    def _broken(self, error: Any, told: Told | None = None) -> None:
        """A channel that has lost its node waits longer and longer: the next call has a new one."""
        if told is not None:
            told.refused[str(error.code())] += 1
        self._channel.close()
        self._channel = None


def _producer(door: Door) -> tuple[int, int]:
    link = http.client.HTTPConnection(door.host, door.http, timeout=ANSWER_S)
    try:
        headers = {"Content-Type": "application/json"}
        link.request("POST", "/v1/producers/init", "{}", headers)
        answer = link.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise http.client.HTTPException(content.decode())
        told = json.loads(content)
        return int(told["producer_id"]), int(told["epoch"])
    finally:
        link.close()
