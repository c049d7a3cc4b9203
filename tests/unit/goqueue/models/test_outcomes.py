"""What a handler's error makes of its message."""

from __future__ import annotations

import pytest

from goqueue import Reject, Retry
from goqueue.errors import BadRequest
from goqueue.models.outcomes import REASON_MAX, Failed, failed, reason_of


def raised(error: Exception) -> Exception:
    """The error as it comes out of `outer`."""

    def inner() -> None:
        raise error

    def outer() -> None:
        inner()

    try:
        outer()
    except Exception as caught:  # noqa: BLE001 - what it came with is looked at
        return caught
    raise AssertionError("nothing was raised")


def test_a_reason_names_the_error_and_where_it_came_from_innermost_first() -> None:
    said, _, places = reason_of(raised(ValueError("no such account"))).partition(" at ")

    assert said == "ValueError: no such account"
    assert [place.split()[1] for place in places.split(" < ")] == ["inner", "outer", "raised"]


def test_a_reason_is_never_longer_than_servers_keep() -> None:
    deep = raised(ValueError("x" * 1000))
    reason = reason_of(deep)

    assert len(reason) <= REASON_MAX
    assert "… at test_outcomes.py:" in reason


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(backoff="2s"), [2.0, 4.0, 8.0, 16.0]),
        (Retry(backoff="2s", backoff_max="5s"), [2.0, 4.0, 5.0, 5.0]),
        (Retry(delay="1m"), [60.0] * 4),
        (Retry(), [None] * 4),
    ],
)
def test_a_backoff_doubles_up_to_its_most(policy: Retry, delays: list[float | None]) -> None:
    assert [policy.delay_after_s(attempt) for attempt in (1, 2, 3, 4)] == delays


def test_a_backoff_stays_within_an_hour_however_often_it_failed() -> None:
    assert Retry(backoff="2s").delay_after_s(10_000) == 3600.0


def test_what_is_raised_goes_before_what_the_task_says() -> None:
    policy = Retry(max_attempts=2, backoff="2s")

    assert failed(Retry("later", delay="9s"), 1, policy) == Failed("nack", "later", 9.0)
    assert failed(Retry("later", delay="9s"), 2, policy).action == "reject"
    assert failed(Retry("later", max_attempts=5), 2, policy) == Failed("nack", "later", 4.0)
    assert failed(Reject("never"), 1, policy) == Failed("reject", "never")


def test_a_retry_from_an_error_tells_of_that_error() -> None:
    again = Retry(delay=1)
    again.__cause__ = raised(OSError("connection refused"))

    assert failed(again, 1).reason.startswith("OSError: connection refused at test_outcomes.py:")


@pytest.mark.parametrize("options", [{"delay": "soon"}, {"max_attempts": 0}, {"backoff": -1}])
def test_what_is_no_retry_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        Retry(**options)  # type: ignore[arg-type]
