"""A ledger that is given faults finds each of them; what clients say is read as it is meant."""

from __future__ import annotations

import base64
import json
from collections import Counter

from tests.protocols.client import Line, Told
from tests.protocols.credit import ACK, CREDIT, Acks
from tests.protocols.h2_answers import note_answer
from tests.protocols.ledger import Ledger
from tests.protocols.redis_programs import answers_of
from tests.protocols.redis_words import note_failure

LINES = [Line(number, f"line {number}") for number in range(3)]
VALUES = [line.value.encode() for line in LINES]


def worked(*, stores_once: bool = False) -> Ledger:
    """All lines are published, given and acked."""
    ledger = Ledger(stores_once=stores_once)
    ledger.begin(LINES)
    ledger.told(Told(stored=Counter({line.number: 1 for line in LINES})))
    for value in VALUES:
        ledger.ack(ledger.give(value))
    return ledger


def test_what_went_well_has_no_problems() -> None:
    assert worked().problems(VALUES) == []


def test_a_confirmed_line_that_is_not_stored_is_lost() -> None:
    assert worked().problems(VALUES[1:]) == ["lost: 0", "acked twice: 0"]


def test_a_line_is_stored_again_only_where_a_try_had_no_answer() -> None:
    stored = [*VALUES, VALUES[1]]
    ledger, doubtful = worked(), worked()
    doubtful.told(Told(unknown=Counter([1])))
    doubtful.ack(doubtful.give(VALUES[1]))

    assert "stored too often: 1" in ledger.problems(stored)
    assert doubtful.problems(stored) == []
    assert doubtful.twice(stored) == 1


def test_a_line_of_a_numbered_producer_is_stored_once_whatever_was_told() -> None:
    ledger = worked(stores_once=True)
    ledger.told(Told(unknown=Counter([1])))
    ledger.ack(ledger.give(VALUES[1]))

    assert "stored too often: 1" in ledger.problems([*VALUES, VALUES[1]])


def test_an_ack_that_is_confirmed_twice_is_found() -> None:
    ledger = worked()
    ledger.ack(ledger.give(VALUES[2]))

    assert ledger.problems(VALUES) == ["acked twice: 2"]


def test_what_nobody_was_given_or_acked_is_found() -> None:
    ledger = Ledger()
    ledger.begin(LINES)
    ledger.told(Told(stored=Counter({line.number: 1 for line in LINES})))
    ledger.ack(ledger.give(VALUES[0]))
    ledger.give(VALUES[1])

    assert ledger.problems(VALUES) == [
        "stored, and never given: 2",
        "gone from the group, and never acked: 1, 2",
    ]


def test_an_altered_line_is_found() -> None:
    ledger = worked()
    ledger.give(b"1 line two")

    assert ledger.problems(VALUES) == ["nobody has published this: '1 line two'"]


def test_answers_of_redis_cli_after_it_has_connected_anew_are_given_to_no_other_command() -> None:
    def said(*lines: str) -> list[str]:
        return [json.dumps(line) for line in lines]

    assert answers_of(said("id-0", "mark-0", "id-1", "mark-1"), 2) == ["id-0", "id-1"]
    assert answers_of(said("id-0", "mark-0", "id-2", "mark-2"), 3) == ["id-0", None, None]
    assert answers_of(said("id-0", "mark-0", "mark-1", "id-2", "mark-2"), 3) == [
        "id-0",
        None,
        "id-2",
    ]
    assert answers_of(said("id-0"), 1) == [None]


def test_errors_of_redis_say_whether_it_may_have_happened() -> None:
    told = Told()

    note_failure(told, "TRYAGAIN no majority (no_quorum)", [1])
    note_failure(told, "ERR nobody knows (outcome_unknown)", [2])
    assert (dict(told.unknown), told.wrong) == ({2: 1}, [])
    note_failure(told, "ERR unknown command 'XADD'", [3])
    assert len(told.wrong) == 1


def test_answers_over_http2_say_whether_it_may_have_happened() -> None:
    told = Told()
    error = {"code": "no_quorum", "outcome": "none", "retriable": True}

    note_answer(told, 1, 201, b"", "lines:2:7")
    note_answer(told, 2, 503, json.dumps(error).encode(), "")
    note_answer(told, 3, 503, json.dumps({**error, "outcome": "unknown"}).encode(), "")

    assert (dict(told.stored), told.places) == ({1: 1}, {1: (2, 7)})
    assert (dict(told.unknown), told.wrong) == ({3: 1}, [])


def test_an_ack_over_http2_is_confirmed_by_the_message_that_needs_its_room() -> None:
    lines = [Line(number, "x") for number in range(CREDIT + 2)]
    ledger = Ledger()
    ledger.begin(lines)
    acks = Acks(ledger)

    for line in lines:
        message = {"msg": base64.b64encode(line.value.encode()).decode()}
        assert acks.take(json.dumps(message).encode()) == ACK

    assert sorted(ledger.acked) == [0, 1]
    acks.lost()
    assert sorted(ledger.unanswered) == list(range(2, CREDIT + 2))
