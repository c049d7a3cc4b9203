"""Frames of one connection, spoken to by h2's own client."""

from __future__ import annotations

import random

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, SettingsAcknowledged
from h2.settings import SettingCodes

from node.listeners.h2.bounds import H2Bounds
from node.listeners.h2.frame_checks import Broken, Flood
from node.listeners.h2.multiplexer import (
    PREFACE,
    Asked,
    Came,
    Eased,
    Ended,
    Gone,
    Left,
    Multiplexer,
    Told,
)

REQUEST = [(":method", "POST"), (":path", "/publish/a"), (":scheme", "http"), (":authority", "x")]


class Pair:
    """A client of h2's, and what is tested."""

    def __init__(self, **bounds: int) -> None:
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.served = Multiplexer(H2Bounds(**bounds))

    def sent(self) -> list[Told]:
        """What the client has said."""
        return self.served.receive(self.client.data_to_send(), 1.0)

    def heard(self) -> list[object]:
        """What it is told."""
        return list(self.client.receive_data(self.served.output()))


def test_a_request_and_its_answer() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.send_data(1, b"hello", end_stream=True)

    asked, came, ended = [one for one in pair.sent() if not isinstance(one, Eased)]
    assert isinstance(asked, Asked) and (b":path", b"/publish/a") in asked.fields
    assert came == Came(1, b"hello", 5)
    assert ended == Ended(1)
    pair.served.took(1, 5)
    pair.served.begin(1, [(b":status", b"201")])
    pair.served.send(1, b"ok", is_last=True)

    told = pair.heard()
    assert any(isinstance(one, ResponseReceived) for one in told)
    assert [one.data for one in told if isinstance(one, DataReceived)] == [b"ok"]
    assert any(isinstance(one, SettingsAcknowledged) for one in told)


def test_a_client_is_told_the_bounds() -> None:
    pair = Pair(streams_max=7)
    pair.sent()
    pair.heard()

    settings = pair.client.remote_settings
    assert settings.max_concurrent_streams == 7
    assert settings.max_frame_size == 16_384
    assert settings[SettingCodes.MAX_HEADER_LIST_SIZE] == 65_536
    assert pair.client.outbound_flow_control_window == 1 << 20


def test_windows_are_the_clients_and_shut() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    pair.client.send_headers(1, REQUEST)
    pair.sent()
    pair.served.begin(1, [(b":status", b"200")])

    assert pair.served.room(1) == 10
    pair.served.send(1, b"0123456789")
    assert pair.served.room(1) == 0
    pair.heard()
    pair.client.increment_flow_control_window(5, 1)
    assert pair.sent() == [Eased(1)]
    assert pair.served.room(1) == 5


def test_a_request_that_is_taken_back_and_a_client_that_goes() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.reset_stream(1, ErrorCodes.CANCEL)
    assert pair.sent()[-1] == Gone(1)
    pair.client.close_connection()
    assert pair.sent() == [Left()]


def test_what_is_no_http2_is_told_before_anything_is_answered() -> None:
    served = Multiplexer(H2Bounds())
    with pytest.raises(Broken, match="preface"):
        served.receive(b"POST /publish/a HTTP/1.1\r\n", 1.0)

    for cut in range(1, len(PREFACE)):
        served = Multiplexer(H2Bounds())
        assert served.receive(PREFACE[:cut], 1.0) == []
        assert served.receive(PREFACE[cut:] + bytes.fromhex("000000040000000000"), 1.0) == [
            Eased(0)
        ]


def test_a_flood_ends_the_connection_with_its_reason() -> None:
    pair = Pair(cheap_frames=10)
    for _ in range(20):
        pair.client.ping(b"01234567")

    with pytest.raises(Flood):
        pair.sent()

    (ended,) = [one for one in pair.heard() if isinstance(one, ConnectionTerminated)]
    assert ended.error_code == ErrorCodes.ENHANCE_YOUR_CALM
    assert b"too many pings" in (ended.additional_data or b"")


def test_streams_that_are_reset_for_what_the_client_sends_are_counted() -> None:
    pair = Pair(resets=3)
    pair.client.send_headers(1, REQUEST, end_stream=True)
    pair.sent()
    for stream in (3, 5, 7, 9):
        pair.client.send_headers(stream, REQUEST, end_stream=True)
    data = pair.client.data_to_send()
    late = b"".join(
        (1).to_bytes(3, "big") + b"\0\0" + stream.to_bytes(4, "big") + b"x"
        for stream in (3, 5, 7, 9)
    )

    with pytest.raises(Broken):
        pair.served.receive(data + late, 1.0)


def test_headers_that_unpack_to_much_end_the_connection() -> None:
    """Each byte names 4 KiB that were sent once."""
    served = Multiplexer(H2Bounds())
    served.receive(PREFACE + bytes.fromhex("000000040000000000"), 1.0)
    literal = (
        b"\x40\x01x\x7f" + bytes([0x80 | (3900 - 127) & 0x7F, (3900 - 127) >> 7]) + b"y" * 3900
    )
    block = b"\x83\x84\x86" + literal + b"\xbe" * 10_000
    frame = len(block).to_bytes(3, "big") + b"\x01\x05" + (1).to_bytes(4, "big") + block

    with pytest.raises(Broken) as ended:
        served.receive(frame, 1.0)

    assert ended.value.goaway == ErrorCodes.ENHANCE_YOUR_CALM


BROKEN_FIELDS = [
    [*REQUEST, ("X-Upper", "a")],
    [*REQUEST, ("", "a")],
    [*REQUEST, ("x", "a\nb")],
    [*REQUEST, ("connection", "close")],
    [*REQUEST, ("te", "gzip")],
    [*REQUEST, ("host", "y")],
    [*REQUEST, (":path", "/publish/b")],
    [*REQUEST, (":other", "a")],
    [*REQUEST, (":status", "200")],
    [REQUEST[0], *REQUEST[2:]],
    [("x", "a"), *REQUEST],
    [REQUEST[0], (":path", ""), *REQUEST[2:]],
]


@pytest.mark.parametrize("after_good_ones", [False, True])
@pytest.mark.parametrize("fields", BROKEN_FIELDS)
def test_fields_against_the_protocol_end_the_connection(fields, after_good_ones: bool) -> None:
    pair = Pair()
    pair.client.config.validate_outbound_headers = False
    pair.client.config.normalize_outbound_headers = False
    for stream in (1, 3, 5) if after_good_ones else ():
        pair.client.send_headers(stream, REQUEST)
        assert any(isinstance(one, Asked) for one in pair.sent())
    pair.client.send_headers(7, fields)

    with pytest.raises(Broken) as ended:
        pair.sent()

    assert ended.value.goaway == ErrorCodes.PROTOCOL_ERROR
    assert any(isinstance(one, ConnectionTerminated) for one in pair.heard())


@pytest.mark.parametrize("fields", [[(":path", "/a")], [("X", "a")], [("x", "a\0")]])
def test_trailers_against_the_protocol_end_the_connection(fields) -> None:
    pair = Pair()
    pair.client.config.validate_outbound_headers = False
    pair.client.config.normalize_outbound_headers = False
    pair.client.send_headers(1, REQUEST)
    pair.sent()
    pair.client.send_headers(1, fields, end_stream=True)

    with pytest.raises(Broken):
        pair.sent()


def test_what_a_client_would_keep_of_headers_is_not_kept() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 1 << 30})
    pair.client.send_headers(1, REQUEST)
    pair.sent()
    for n in range(300):
        pair.served.begin(1, [(b":status", b"103"), (b"x-%d" % n, b"y" * 100)])
    pair.heard()

    assert not pair.client.decoder.header_table.dynamic_entries


def test_broken_bytes_end_a_connection_by_name() -> None:
    rng = random.Random(1)
    for _ in range(150):
        pair = Pair()
        pair.client.send_headers(1, REQUEST)
        pair.client.send_data(1, b"hello" * 20)
        pair.client.increment_flow_control_window(10)
        pair.client.ping(b"01234567")
        data = bytearray(pair.client.data_to_send())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(24, len(data))] = rng.randrange(256)
        try:
            pair.served.receive(bytes(data), 1.0)
        except Broken:
            assert pair.served.output()
