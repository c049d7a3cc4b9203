"""What is put into a queue, as the bytes of a message, and what is taken out of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec

from goqueue.blocking.received import BlockingReceived
from goqueue.models.messages import Message
from goqueue.models.settles import Settled
from goqueue.models.times import Duration
from goqueue.publish.outgoing import Text
from goqueue.wire.errors import BadRequest
from goqueue.wire.unreadable import UNREADABLE

T = TypeVar("T")

TextHeaders = dict[str, Text]
TEXT_HEADER, TEXT_TYPE = "content-type", b"text/plain"
"""What is put as `str` says so, where the queue has no type."""


class Unfit(BadRequest):
    """A message that is no item of the queue's type."""

    code, text = "unfit_item", "the message is no item of this queue"


@dataclass(frozen=True, slots=True)
class Item(Generic[T]):
    """Something that was taken out, and is this program's until it is acked: then it is done."""

    value: T
    message: BlockingReceived
    """Beside the value: its offset, attempt, headers, times, and until when it is leased."""

    def ack(self) -> Settled:
        """Done: it never comes again. Raises ReceiptExpired where its time was over, NotInFlight
        where it was settled before."""
        return self.message.ack()

    def nack(self, delay: Duration | None = None, reason: str = "") -> Settled:
        """Failed: it comes again after `delay`, or after the group's backoff; or it is dead if it
        has failed too often. Raises as `ack` does."""
        return self.message.nack(reason, delay=delay)

    def extend(self, visibility: Duration) -> Settled:
        """Needs longer: it is this program's for so long from now on. Raises as `ack` does."""
        return self.message.extend(visibility)


class Items(Generic[T]):
    """Items of one type as messages: bytes and str as they are, all else as JSON."""

    def __init__(self, type: type[T] | None = None) -> None:
        """None: bytes and str, each told from the other when it is taken out. Else a dataclass, a
        msgspec Struct, what else msgspec makes JSON of, or a model of pydantic 2. Raises TypeError
        for another one."""
        self._type: Any = type
        self._is_plain = type in (None, bytes, str)
        self._encode: Callable[[Any], bytes] = msgspec.json.encode
        self._decode: Callable[[bytes], Any] | None = None
        if _is_model(type):
            self._encode, self._decode = _of_model, cast(Any, type).model_validate_json
        elif not self._is_plain:
            self._decode = msgspec.json.Decoder(self._type).decode
        self._class = self._type if inspect.isclass(type) else None

    def encode(self, item: T) -> tuple[bytes, TextHeaders | None]:
        """The message's value and headers. Raises BadRequest where it is of another type."""
        if self._type is None and isinstance(item, str):
            return item.encode(), {TEXT_HEADER: TEXT_TYPE}
        wanted = (bytes, str) if self._type is None else self._class
        if wanted is not None and not isinstance(item, wanted):
            raise BadRequest(f"{type(item).__name__} was put: {self._wanted}")
        if self._is_plain:
            return (item.encode() if isinstance(item, str) else cast(bytes, item)), None
        try:
            return self._encode(item), None
        except (TypeError, ValueError) as error:
            raise BadRequest(f"no JSON can be made of {type(item).__name__}: {error}") from None

    def encode_all(self, items: list[T]) -> tuple[list[bytes], list[TextHeaders | None] | None]:
        """Values and headers of the messages, in the items' order; None where none has headers.
        Raises as `encode`."""
        if self._type in (None, bytes) and set(map(type, items)) == {bytes}:
            return cast("list[bytes]", items), None
        encoded = [self.encode(item) for item in items]
        headers = [told for _value, told in encoded]
        return [value for value, _told in encoded], headers if any(headers) else None

    def decode(self, message: Message) -> T:
        """The message's item. Raises Unfit where it is none."""
        value = message.value or b""
        if self._type in (None, bytes) and not message.headers:
            return cast(T, value)
        try:
            if self._decode is not None:
                return cast(T, self._decode(value))
            if self._type is str or (self._type is None and _is_text(message)):
                return cast(T, value.decode())
        except (*UNREADABLE, ValueError) as error:  # pydantic's are ValueErrors
            raise Unfit(f"no {self._name}: {error}") from None
        return cast(T, value)

    @property
    def _name(self) -> str:
        return str(getattr(self._type, "__name__", self._type))

    @property
    def _wanted(self) -> str:
        if self._type is None:
            return "a queue without a type takes bytes and str"
        return f"this queue takes {self._name}"


def _is_model(type: object) -> bool:
    """By what it does: pydantic is imported by whoever has a model of it, and by nobody else."""
    return inspect.isclass(type) and all(
        callable(getattr(type, name, None)) for name in ("model_dump_json", "model_validate_json")
    )


def _of_model(item: Any) -> bytes:
    return cast(str, item.model_dump_json()).encode()


def _is_text(message: Message) -> bool:
    return (TEXT_HEADER, TEXT_TYPE) in message.headers
