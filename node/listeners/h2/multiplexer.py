"""The frames of one connection: bytes in, what they say out, and answers as bytes again.

No socket and no clock: the `h2` library keeps streams and windows, `FrameChecks` the
bounds. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes, Settings
from h2.utilities import HeaderValidationFlags, validate_headers
from hpack import Decoder, Encoder
from hpack.struct import Header

from node.listeners.h2.bounds import H2Bounds
from node.listeners.h2.fields import FieldDecoder, FieldEncoder, Fields
from node.listeners.h2.frame_checks import Broken, FrameChecks

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW_BYTES = (1 << 16) - 1
TEXT_BYTES_MAX = 256
"""Of why a connection ends."""
REQUEST = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)
TRAILERS = REQUEST._replace(is_trailer=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request begins, with these headers."""

    stream: int
    fields: Fields


@dataclass(frozen=True, slots=True)
class Came:
    """A piece of a request's body; with `size`, its padding too, the window is opened again."""

    stream: int
    data: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The client has sent all of a request."""

    stream: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A request was reset, by the client or for what it has sent."""

    stream: int


@dataclass(frozen=True, slots=True)
class Eased:
    """The client takes more: of one answer, or of any where `stream` is 0."""

    stream: int


@dataclass(frozen=True, slots=True)
class Left:
    """The client says that it goes."""


Told = Asked | Came | Ended | Gone | Eased | Left


class Multiplexer:
    """Of one connection."""

    def __init__(self, bounds: H2Bounds) -> None:
        self._bounds = bounds
        self._checks = FrameChecks(bounds)
        self._last_asked: Fields = ()
        self._preface = PREFACE
        self._h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                # `_check` does it, once for what is sent again and again
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
                # what this node says itself is well-formed
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: bounds.streams_max,
                SettingCodes.INITIAL_WINDOW_SIZE: bounds.window_bytes,
                SettingCodes.MAX_FRAME_SIZE: bounds.frame_bytes_max,
                SettingCodes.MAX_HEADER_LIST_SIZE: bounds.block_bytes_max,
                SettingCodes.HEADER_TABLE_SIZE: bounds.table_bytes,
            },
        )
        self._h2.encoder = cast(Encoder, FieldEncoder())
        self._h2.decoder = cast(Decoder, FieldDecoder(bounds.block_bytes_max))
        self._h2.initiate_connection()
        more = bounds.connection_window_bytes - DEFAULT_WINDOW_BYTES
        if more > 0:
            self._h2.increment_flow_control_window(more)

    @property
    def partial_since_s(self) -> float:
        """See `FrameChecks`."""
        return self._checks.partial_since_s

    def receive(self, data: bytes, now_s: float) -> list[Told]:
        """What the bytes say, in order. Raises Broken, once the client's end is among `output`."""
        if self._preface:
            size = min(len(data), len(self._preface))
            if data[:size] != self._preface[:size]:
                raise Broken("this is not HTTP/2: a connection begins with its preface")
            self._preface = self._preface[size:]
            self._h2.receive_data(data[:size])
            data = data[size:]
        try:
            self._checks.look(data, now_s)
            return list(self._told(self._h2.receive_data(data), now_s))
        except Broken as error:
            self.end(error.goaway, error.message)
            raise
        except ProtocolError as error:  # GOAWAY is among the output
            raise Broken(str(error)[:TEXT_BYTES_MAX], error.error_code) from error

    def output(self) -> bytes:
        """What is to be sent by now."""
        return self._h2.data_to_send()

    def begin(self, stream: int, fields: Fields, *, is_last: bool = False) -> None:
        """The head of an answer; all of it where it is the last."""
        self._h2.send_headers(stream, fields, end_stream=is_last)
        self._checks.earn(self._bounds.cheap_per_answer)

    def room(self, stream: int) -> int:
        """How many bytes the client takes of this answer now; less than 0 where it has taken back
        what it allowed."""
        return self._h2.local_flow_control_window(stream)

    def send(self, stream: int, data: bytes | memoryview, *, is_last: bool = False) -> None:
        """A piece of an answer: no more than there is room for, and than a frame may hold."""
        self._h2.send_data(stream, data, end_stream=is_last)
        if is_last or len(data) >= self._bounds.small_bytes:
            self._checks.earn(self._bounds.cheap_per_answer)

    def earn(self) -> None:
        """Something small was answered as a whole, such as one message."""
        self._checks.earn(self._bounds.cheap_per_answer)

    def took(self, stream: int, size: int) -> None:
        """So much of a body was read, and as much more may come."""
        self._h2.acknowledge_received_data(size, stream)

    def reset(self, stream: int, code: ErrorCodes) -> None:
        """Nothing more is said, nor heard, of this request. Nothing where it is over."""
        try:
            self._h2.reset_stream(stream, code)
        except H2Error:
            return

    def ping(self) -> None:
        self._h2.ping(b"goqueue.")

    def end(self, code: int = ErrorCodes.NO_ERROR, text: str = "") -> None:
        """The last that is said on this connection. Idempotent."""
        try:
            self._h2.close_connection(
                error_code=ErrorCodes(code), additional_data=text.encode()[:TEXT_BYTES_MAX] or None
            )
        except H2Error:
            return

    # private

    def _told(self, events: Sequence[Event], now_s: float) -> Iterator[Told]:
        for event in events:
            if isinstance(event, DataReceived):
                yield Came(event.stream_id, event.data, event.flow_controlled_length or 0)
            elif isinstance(event, WindowUpdated):
                yield Eased(event.stream_id or 0)
            elif isinstance(event, RequestReceived):
                yield Asked(event.stream_id, self._checked(event.headers))
            elif isinstance(event, TrailersReceived):
                _check(event.headers or (), TRAILERS)
            elif isinstance(event, StreamEnded):
                yield Ended(event.stream_id)
            elif isinstance(event, StreamReset):
                if not event.remote_reset:  # others were counted as frames
                    self._checks.reset(now_s)
                yield Gone(event.stream_id)
            elif isinstance(event, RemoteSettingsChanged):
                yield Eased(0)
            elif isinstance(event, ConnectionTerminated):
                yield Left()

    def _checked(self, fields: Sequence[Header] | None) -> Fields:
        """The fields of a request; most often they are the last one's. Raises Broken."""
        found = fields or ()
        if found != self._last_asked:
            _check(found, REQUEST)
            self._last_asked = found
        return found


def _check(fields: Fields, of: HeaderValidationFlags) -> None:
    """Raises Broken where they are against RFC 9113, 8.2 and 8.3."""
    try:
        list(validate_headers(fields, of))
    except ProtocolError as error:
        raise Broken(str(error)[:TEXT_BYTES_MAX], error.error_code) from error
