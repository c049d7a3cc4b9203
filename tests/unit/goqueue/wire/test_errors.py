"""Errors cross the wire and come back as themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goqueue.wire import errors
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrder,
    ServerError,
    Timeout,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
    from_body,
)

CLASSES = sorted(
    (
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, GoQueueError)
    ),
    key=lambda cls: cls.code,
)
SPECIAL: dict[str, tuple[Any, ...]] = {
    "offset_out_of_range": (5, 1, 3),
    "unknown_topic": ("orders",),
    "topic_exists": ("orders",),
    "unknown_partition": ("orders", 9),
    "out_of_order": (4, 6),
    "not_leader": ("node-2",),
    "unknown_member": ("workers", "m-1"),
    "over_budget": ("bodies", "holder", 4096),
    "other_archive": ("orders", 1, "file:///archive"),
}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_comes_back_as_itself(cls: type[GoQueueError]) -> None:
    error = cls(*SPECIAL.get(cls.code, ("because",)))

    again = from_body(json.loads(json.dumps(error.to_body())))

    assert type(again) is cls
    assert again.to_body() == error.to_body()
    assert str(again) == error.message


def test_codes_are_unique() -> None:
    assert len({cls.code for cls in CLASSES}) == len(CLASSES)


def test_the_body_has_the_fixed_fields_and_the_data() -> None:
    assert OffsetOutOfRange(9, first=2, next=5).to_body() == {
        "error": "offset 9 is outside 2 to 5",
        "status": 400,
        "code": "offset_out_of_range",
        "retriable": False,
        "outcome": "none",
        "offset": 9,
        "first": 2,
        "next": 5,
    }


def test_data_never_hides_a_fixed_field() -> None:
    assert GoQueueError("x", status=200, code="ok").to_body()["code"] == "error"


def test_outcome_and_retriability_can_be_told_apart_from_the_class() -> None:
    error = Timeout("no leader in time", outcome="none", retriable=False)

    again = from_body(error.to_body())

    assert (again.outcome, again.retriable) == ("none", False)
    assert (Timeout().outcome, Timeout().retriable) == ("unknown", True)


@pytest.mark.parametrize(("status", "family"), [(418, BadRequest), (599, ServerError)])
def test_an_unknown_code_is_kept_in_the_family_of_its_status(
    status: int, family: type[GoQueueError]
) -> None:
    body: dict[str, object] = {
        "error": "new",
        "status": status,
        "code": "teapot",
        "retriable": True,
        "outcome": "none",
        "pot": 1,
    }

    error = from_body(body)

    assert type(error) is family
    assert error.to_body() == body


def test_a_class_that_a_floor_above_adds_comes_back_as_itself() -> None:
    class Overheated(GoQueueError):
        code, http_status = "overheated", 503

    assert type(from_body(Overheated("hot").to_body())) is Overheated


def test_a_body_of_another_make_still_reads() -> None:
    error = from_body({"error": "topic not found", "status": "404", "outcome": "perhaps"})

    assert isinstance(error, ServerError)
    assert error.message == "topic not found"
    assert error.outcome == "unknown"


def test_families_can_be_caught_together() -> None:
    assert issubclass(NotLeader, Unavailable)
    assert isinstance(UnknownPartition("t", 1), type(UnknownTopic("t")).__mro__[1])
    assert OutOfOrder(1, 2).data == {"expected": 1, "got": 2, "unknown_producer": True}
