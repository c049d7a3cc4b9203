"""What a request asks, from its headers."""

from __future__ import annotations

import pytest

from goqueue.wire.errors import GoQueueError, Unauthenticated
from node.http.text.errors import HeadTooLarge
from node.listeners.h2.heads import CREDIT_MAX, OPERATIONS, Asks, Head, Wanted, head_of, wanted_of


def head(method: str, path: str, *fields: tuple[str, str]) -> Head:
    given = [(":method", method), (":path", path), (":scheme", "http"), *fields]
    return head_of([(n.encode(), v.encode("latin-1")) for n, v in given], 32_768, 100)


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("POST", "/publish/foo", Wanted(Asks.PUBLISH, "foo")),
        ("POST", "/publish/a-b.c_1", Wanted(Asks.PUBLISH, "a-b.c_1")),
        ("POST", "/subscribe/foo", Wanted(Asks.SUBSCRIBE, "foo", "foo.miniqueue", 1)),
        ("POST", "/subscribe/f%6Fo?credit=9", Wanted(Asks.SUBSCRIBE, "foo", "foo.miniqueue", 9)),
        ("POST", "/subscribe/foo?group=g", Wanted(Asks.SUBSCRIBE, "foo", "g", 1)),
        ("DELETE", "/foo", Wanted(Asks.DELETE, "foo")),
        ("DELETE", "/publish", Wanted(Asks.DELETE, "publish")),
    ],
)
def test_what_is_asked(method: str, path: str, wanted: Wanted) -> None:
    assert wanted_of(head(method, path)) == wanted


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/publish/foo", 405, "method_not_allowed"),
        ("PUT", "/subscribe/foo", 405, "method_not_allowed"),
        ("POST", "/foo", 405, "method_not_allowed"),
        ("GET", "/", 404, "not_found"),
        ("POST", "/publish/", 404, "not_found"),
        ("POST", "/publish/a/b", 404, "not_found"),
        ("DELETE", "/v1/topics/foo", 404, "not_found"),
        ("POST", "/publish/a%2Fb", 400, "invalid_name"),
        ("POST", "/publish/%FF", 400, "bad_request"),
        ("POST", "/publish/" + "x" * 300, 400, "invalid_name"),
        ("POST", "/publish/" + "x" * 5000, 400, "bad_request"),
        ("POST", "/subscribe/foo?group=a/b", 400, "invalid_name"),
        ("POST", "/subscribe/" + "x" * 245, 400, "invalid_name"),
        ("POST", "/subscribe/foo?credit=0", 400, "bad_request"),
        ("POST", f"/subscribe/foo?credit={CREDIT_MAX + 1}", 400, "bad_request"),
        ("POST", "/subscribe/foo?credit=x", 400, "bad_request"),
        ("POST", "/subscribe/foo?grup=a", 400, "bad_request"),
        ("POST", "/publish/foo?group=a", 400, "bad_request"),
    ],
)
def test_what_is_asked_wrongly_has_a_code(method: str, path: str, status: int, code: str) -> None:
    with pytest.raises(GoQueueError) as refused:
        wanted_of(head(method, path))

    assert (refused.value.http_status, refused.value.code) == (status, code)


def test_a_refused_method_is_told_what_is_allowed() -> None:
    with pytest.raises(GoQueueError) as refused:
        wanted_of(head("GET", "/publish/foo"))
    assert refused.value.data["allow"] == ["POST"]


@pytest.mark.parametrize(
    "path", ["/subscribe/a?group=%FF", "/subscribe/a?group=x&group=y", "/a?" + "&" * 9]
)
def test_queries_that_are_none(path: str) -> None:
    with pytest.raises(GoQueueError) as refused:
        wanted_of(head("POST", path))
    assert refused.value.http_status == 400


def test_heads_that_are_too_large_are_told_so() -> None:
    with pytest.raises(HeadTooLarge) as refused:
        head("POST", "/publish/foo", ("x", "y" * 33_000))
    assert refused.value.http_status == 431
    with pytest.raises(GoQueueError, match="more than 100 headers"):
        head("POST", "/publish/foo", *[("x", "y")] * 100)


def test_the_key_of_a_request() -> None:
    assert head("POST", "/publish/a").token is None
    assert head("POST", "/publish/a", ("authorization", "bearer id.secret")).token == "id.secret"
    assert head("POST", "/publish/a", ("x-api-key", "id.secret")).token == "id.secret"
    assert head("POST", "/publish/a", ("authorization", "Basic x")).token == ""
    twice = head("POST", "/publish/a", ("x-api-key", "a"), ("authorization", "Bearer b"))
    with pytest.raises(Unauthenticated, match="once"):
        _ = twice.token


def test_the_length_and_the_trace_of_a_request() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    assert head("POST", "/publish/a").body_bytes is None
    assert head("POST", "/publish/a", ("content-length", "17")).body_bytes == 17
    traced = head("POST", "/publish/a", ("traceparent", parent), ("tracestate", "x=y"))
    assert traced.trace == (parent, "x=y")
    assert head("POST", "/publish/a", ("traceparent", "00-0-0-0")).trace is None


def test_every_operation_has_a_policy() -> None:
    from node.http.auth.policies import POLICIES

    assert set(OPERATIONS) == set(Asks)
    assert set(OPERATIONS.values()) <= set(POLICIES)
