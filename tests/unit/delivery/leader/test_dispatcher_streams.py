"""A leader's deliveries to streams, and the ends of runs that nobody is left to tell of."""

from __future__ import annotations

import pytest

from delivery.entries.ops import CountResult, Delivered, DeliveredToStream, StreamId, StreamsEnded
from delivery.leader.dispatcher import Want
from tests.unit.delivery.leader.test_dispatcher import Office, kinds

LOST, LIVING = StreamId(1, 1), StreamId(2, 1)


@pytest.fixture
def office() -> Office:
    found = Office()
    found.desk.open(1)
    found.desk.open(2)
    found.desk.publish(6)
    return found


def want(
    office: Office,
    stream: StreamId | None,
    ticket: str = "",
    group: int = 1,
    visibility_ms: int | None = 0,
) -> None:
    found = Want(group, "m", 2, visibility_ms, 0, stream=stream)
    office.dispatcher.receive(found, ticket or str(stream), wait=True)


def test_a_streams_delivery_names_it_and_others_name_none(office: Office) -> None:
    want(office, LOST)
    want(office, LIVING, visibility_ms=500)
    want(office, None, visibility_ms=500)

    proposal = office.collect()

    assert proposal is not None
    assert proposal.ops == [
        DeliveredToStream(1, "m", 0, [0, 1], stream=LOST),
        DeliveredToStream(1, "m", 500, [2, 3], stream=LIVING),
        Delivered(1, "m", 500, [4, 5]),
    ]
    office.land()
    assert office.offsets(str(LOST)) == [0, 1]


def test_what_a_lost_run_has_ends_in_one_entry(office: Office) -> None:
    for group in (1, 2):
        want(office, LOST, f"lost {group}", group)
        want(office, LIVING, f"living {group}", group)
    office.run()

    office.dispatcher.end_runs({LOST.run})

    proposal = office.collect()
    assert proposal is not None
    assert proposal.ops == [StreamsEnded(g, LOST.run, [], lost=True) for g in (1, 2)]
    assert office.collect() is None  # while it is on its way
    office.land()
    assert office.collect() is None
    assert [office.desk.group(g).leases.runs for g in (1, 2)] == [{LIVING.run}] * 2


def test_an_end_that_was_refused_is_proposed_again(office: Office) -> None:
    want(office, LOST)
    office.run()
    office.dispatcher.end_runs({LOST.run})
    office.collect()
    office.fail()

    assert kinds(office.collect()) == [StreamsEnded]


def test_a_delivery_on_its_way_ends_with_its_run(office: Office) -> None:
    want(office, LOST)
    office.collect()
    office.dispatcher.end_runs({LOST.run})

    assert office.collect() is None
    office.land()
    office.run()

    assert not office.desk.group().leases


def test_a_run_that_asks_for_messages_is_not_lost(office: Office) -> None:
    office.dispatcher.end_runs({LOST.run, LIVING.run})
    want(office, LOST)
    office.run()

    assert office.desk.group().leases.runs == {LOST.run}


def test_an_end_that_somebody_asked_for_is_told(office: Office) -> None:
    want(office, LOST)
    want(office, LIVING)
    office.run()
    office.dispatcher.end_runs({LOST.run})
    office.collect()
    office.dispatcher.submit(StreamsEnded(1, LIVING.run, [LIVING.number]), "end")
    office.collect()
    office.flying.rotate()
    office.land()

    assert office.told["end"] == CountResult(2)
    assert office.collect() is None  # the other one is on its way still
