"""Frames of clients: read, or refused with the name that is meant."""

from __future__ import annotations

import pytest

from goqueue.wire.errors import BadRequest, NoQuorum
from node.http.queue.settle import SettleItem
from node.http.stream.frames import (
    Credit,
    CreditTotals,
    Heartbeat,
    Settle,
    Subscribe,
    error_frame,
    id_of,
    said,
)


def test_frames_are_told_apart_by_their_type():
    assert said(b'{"type":"subscribe","topics":["t"]}') == Subscribe(topics=["t"])
    assert said(b'{"bytes":7,"type":"credit","messages":1}') == Credit(1, 7)
    assert said(b'{"type":"heartbeat"}') == Heartbeat()
    settle = said(b'{"type":"settle","id":3,"settles":[{"receipt":"r","action":"ack"}]}')
    assert settle == Settle(3, [SettleItem(receipt="r", action="ack")])
    assert Subscribe().credit == CreditTotals(100, 4 << 20)


REFUSED = (
    (b"[]", "bad_request", "expected `object`"),
    (b"{", "bad_request", "invalid JSON"),
    (b"\xff\xfe", "bad_request", "not UTF-8"),
    (b'{"type":"credit","messages":1,"bytes":1}x', "bad_request", "invalid JSON"),
    (b"[" * 100_000, "bad_request", "nested deeper"),
    (b"{}", "bad_request", "type is required"),
    (b'{"type":7}', "bad_request", "type is required"),
    (b'{"type":"setle","id":1}', "unknown_type", "did you mean `settle`"),
    (b'{"type":"publish"}', "unknown_type", "want one of subscribe, credit, settle, heartbeat"),
    (b'{"type":"settle","id":1,"settels":[]}', "unknown_field", "did you mean `settles`"),
    (b'{"type":"subscribe","visibility_timeout":1}', "unknown_field", "`visibility_timeout_ms`"),
    (b'{"type":"settle","id":1,"settles":[]}', "bad_request", "settles"),
    (b'{"type":"settle","settles":[{}]}', "bad_request", "id is required"),
    (b'{"type":"settle","id":-1,"settles":[{}]}', "bad_request", "id"),
    (b'{"type":"settle","id":1,"settles":[{"recept":"r"}]}', "unknown_field", "settles[0]"),
    (b'{"type":"credit","messages":-1,"bytes":1}', "bad_request", "messages"),
    (b'{"type":"credit","messages":10001,"bytes":1}', "bad_request", "messages"),
    (b'{"type":"credit","messages":1}', "bad_request", "bytes is required"),
    (b'{"type":"subscribe","credit":{"message":1}}', "unknown_field", "credit: unknown"),
)


@pytest.mark.parametrize(("text", "code", "told"), REFUSED)
def test_what_is_not_understood_is_refused_by_name(text, code, told):
    with pytest.raises(BadRequest) as refused:
        said(text)

    assert refused.value.code == code and told in refused.value.message


def test_the_id_of_a_frame_that_is_not_understood_is_found():
    assert id_of(b'{"type":"settle","id":7,"oops":1}') == 7
    for text in (b'{"id":"7"}', b'{"id":-1}', b'{"id":true}', b"[7]", b"\xff", b"{"):
        assert id_of(text) is None


def test_an_error_is_told_as_http_tells_it():
    told = error_frame(NoQuorum("no majority"), 4)

    assert told.startswith(b'{"type":"error","id":4,')
    for part in (b'"code":"no_quorum"', b'"status":503', b'"retriable":true', b'"no majority"'):
        assert part in told
