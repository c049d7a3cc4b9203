"""Why a message is not delivered or not settled: each reason alone, gone when the state differs."""

from __future__ import annotations

from typing import Any

import pytest

from delivery.config import DAY_MS
from delivery.entries.ops import Halted, Own, Parked, Purged, Resumed, Unparked
from delivery.leader.pace import Pace
from delivery.lookup.verdict import Around, Ending, Reason, Subject, Verdict
from delivery.lookup.why import why
from tests.unit.delivery.batches import START_MS
from tests.unit.delivery.desk import Desk, all_of

WAITING = Around(waiting=True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def ask(
    desk: Desk,
    offset: int,
    around: Around = WAITING,
    *,
    due_ms: int = 0,
    expires_ms: int = 0,
    group: int = 1,
) -> Verdict:
    found = desk.queue.groups.get(group)
    subject = Subject(offset, due_ms, expires_ms)
    return why(desk.queue, found, subject, desk.now_ms, around)


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.reasons]


def first(verdict: Verdict, code: str) -> Reason:
    """The decisive reason, which must be this one."""
    assert verdict.reasons[0].code == code
    return verdict.reasons[0]


def reason(verdict: Verdict, code: str) -> Reason:
    (found,) = [one for one in verdict.reasons if one.code == code]
    return found


# -- of the message itself


def test_an_offset_beyond_the_end_is_not_published_until_it_is(desk: Desk) -> None:
    desk.open()
    desk.publish(2)

    assert first(ask(desk, 2), "not_published").facts == {"end": 2}
    desk.publish()
    assert codes(ask(desk, 2)) == ["behind"]


def test_what_retention_took_is_gone_and_what_stays_is_not(desk: Desk) -> None:
    desk.open()
    desk.publish(4)
    desk.retain(2)

    assert first(ask(desk, 1), "gone").facts == {"log_start": 2}
    assert ask(desk, 1).state == "gone"
    assert ask(desk, 2).state == "ready"


def test_a_delayed_message_waits_until_it_is_due_and_not_a_moment_longer(desk: Desk) -> None:
    desk.open()
    desk.publish(deliver_at_ms=[500])
    due_ms = START_MS + 500

    told = ask(desk, 0, due_ms=due_ms)

    assert (told.state, told.deliverable) == ("delayed", False)
    assert told.reasons == [Reason("delayed", due_ms)]
    assert (told.eta_ms, told.eta_by) == (due_ms, "delay")
    desk.wait(499)
    assert codes(ask(desk, 0, due_ms=due_ms)) == ["delayed"]
    desk.now_ms += 1
    assert first(ask(desk, 0, due_ms=due_ms), "delayed").facts == {"over": True}
    desk.wait(0)
    assert ask(desk, 0, due_ms=due_ms).deliverable


def test_a_delayed_message_of_a_halted_group_is_not_promised_for_when_it_is_due(
    desk: Desk,
) -> None:
    desk.open()
    desk.publish(deliver_at_ms=[500])
    desk.do(Halted(1, "stop"))

    told = ask(desk, 0, due_ms=START_MS + 500)

    assert codes(told) == ["delayed", "halted"]
    assert told.eta_ms == 0


def test_a_message_that_expires_before_it_is_due_is_not_promised(desk: Desk) -> None:
    desk.open()
    desk.publish(2, deliver_at_ms=[500, 500], expires_at_ms=[500, 501])
    due_ms = START_MS + 500

    told = ask(desk, 0, due_ms=due_ms, expires_ms=due_ms)

    assert (codes(told), told.eta_ms) == (["delayed", "expires_first"], 0)
    assert reason(told, "expires_first").facts == {"expires_ms": due_ms}
    assert ask(desk, 1, due_ms=due_ms, expires_ms=due_ms + 1).eta_ms == due_ms
    desk.wait(500)
    assert (ask(desk, 0).state, ask(desk, 1).state) == ("expired", "ready")


def test_a_cancelled_message_is_told_apart_from_an_expired_one(desk: Desk) -> None:
    desk.open()
    desk.publish(2, deliver_at_ms=[500, 500], expires_at_ms=[None, 600])
    desk.cancel(0)
    desk.wait(700)

    assert (ask(desk, 0).state, codes(ask(desk, 0))) == ("cancelled", ["cancelled"])
    assert (ask(desk, 1).state, codes(ask(desk, 1))) == ("expired", ["expired"])


def test_a_message_expires_when_its_time_is_over_also_before_an_entry_notes_it(
    desk: Desk,
) -> None:
    desk.open()
    desk.publish(expires_at_ms=[100])

    desk.now_ms += 99
    assert ask(desk, 0).deliverable
    desk.now_ms += 1
    told = ask(desk, 0)
    assert told.reasons == [Reason("expired", 0, {"over": True})]
    assert not told.deliverable
    desk.wait(0)
    assert codes(ask(desk, 0)) == ["expired"]


def test_a_message_that_expires_in_flight_is_in_flight_and_comes_never_again(desk: Desk) -> None:
    desk.open()
    desk.publish(expires_at_ms=[100])
    desk.receive(visibility_ms=1000)
    desk.wait(200)

    told = ask(desk, 0)

    assert (told.state, codes(told), told.eta_ms) == ("in_flight", ["in_flight", "expired"], 0)


def test_what_outlives_the_log_says_so(desk: Desk) -> None:
    desk.open()
    desk.publish(deliver_at_ms=[DAY_MS])
    desk.publish(2)
    desk.retain(2)

    told = ask(desk, 0, due_ms=START_MS + DAY_MS)

    assert codes(told) == ["delayed", "kept"]
    assert reason(told, "kept").facts == {"by": "retention", "log_start": 2}
    assert "kept" not in codes(ask(desk, 2))


# -- groups that are not there


def test_without_a_group_only_the_message_itself_is_told_of(desk: Desk) -> None:
    desk.publish(2, deliver_at_ms=[None, 500])

    assert ask(desk, 0, Around(begins=-1)) == Verdict("stored", [])
    assert codes(ask(desk, 1, Around(begins=-1), due_ms=START_MS + 500)) == ["delayed"]


def test_a_group_that_never_asked_begins_with_its_first_receive(desk: Desk) -> None:
    desk.publish(3)

    assert codes(ask(desk, 0, Around(begins=0))) == ["not_begun"]
    desk.open()
    assert "not_begun" not in codes(ask(desk, 0))


def test_what_lies_before_a_groups_beginning_never_comes_to_it(desk: Desk) -> None:
    desk.publish(3)

    unbegun = ask(desk, 2, Around(begins=3))
    assert first(unbegun, "below_beginning").facts == {"begins": 3}
    desk.open(offset=2, start="latest")
    assert first(ask(desk, 1), "below_beginning").facts == {"begins": 2}
    assert ask(desk, 1).state == unbegun.state == "never"
    assert ask(desk, 2).deliverable


# -- in flight, failed, done


def test_a_message_in_flight_names_its_consumer_attempt_and_when_the_lease_ends(
    desk: Desk,
) -> None:
    desk.open()
    desk.publish(2)
    granted = desk.receive(1, visibility_ms=1000)

    told = ask(desk, 0, Around(entry_ms=lambda index: index * (index == granted.delivery)))

    flying = first(told, "in_flight")
    assert flying.until_ms == START_MS + 1000
    assert flying.facts == {"consumer": "m", "attempt": 1, "since_ms": granted.delivery}
    assert (told.state, told.deliverable, told.attempts) == ("in_flight", False, 1)
    assert (told.eta_ms, told.eta_by) == (START_MS + 1000, "lease")
    assert ask(desk, 1).deliverable


def test_a_lease_that_is_over_is_told_as_over_until_an_entry_ends_it(desk: Desk) -> None:
    desk.open()
    desk.publish()
    desk.receive(visibility_ms=1000)

    desk.wait(999)
    assert "over" not in ask(desk, 0).reasons[0].facts
    desk.wait(1)
    assert ask(desk, 0).reasons[0].facts["over"] is True
    desk.expire()
    told = ask(desk, 0)
    assert (told.state, told.deliverable, told.attempts) == ("retrying", True, 1)


def test_a_backoff_is_added_to_when_a_lease_that_runs_out_is_tried_again(desk: Desk) -> None:
    desk.open(backoff_ms=300)
    desk.publish()
    desk.receive(visibility_ms=1000)

    assert ask(desk, 0).eta_ms == START_MS + 1300
    desk.wait(1000)
    desk.expire()
    assert ask(desk, 0).reasons[0].until_ms == START_MS + 1300


def test_the_last_attempt_says_that_nothing_follows_it(desk: Desk) -> None:
    desk.open(max_attempts=2)
    desk.publish()
    granted = desk.receive()
    assert "last_attempt" not in codes(ask(desk, 0))
    desk.nack(granted)
    desk.receive()

    told = ask(desk, 0)

    assert codes(told) == ["in_flight", "last_attempt"]
    assert (told.eta_ms, told.attempts) == (0, 2)


def test_a_failed_message_waits_for_its_backoff_with_the_reason(desk: Desk) -> None:
    desk.open(backoff_ms=200)
    desk.publish()
    desk.nack(desk.receive(), "db down")

    told = ask(desk, 0)

    assert told.reasons == [
        Reason("backoff", START_MS + 200, {"failed": 1, "reason": "db down"}),
    ]
    assert (told.state, told.eta_ms, told.eta_by) == ("retrying", START_MS + 200, "backoff")
    desk.wait(199)
    assert codes(ask(desk, 0)) == ["backoff"]
    desk.wait(1)
    assert ask(desk, 0).deliverable


def test_a_dead_letter_tells_why_since_when_and_whether_it_can_be_redriven(desk: Desk) -> None:
    desk.open(max_attempts=1, redrives_max=1)
    desk.publish(2)
    desk.reject(desk.receive(1), "no such user")

    told = ask(desk, 0)

    assert told.state == "dead"
    assert told.attempts == first(told, "dead").facts["attempts"] > 0
    assert first(told, "dead").facts == {
        "reason": "no such user",
        "attempts": 1,
        "since_ms": START_MS,
        "redrives": 0,
        "redrive": "yes",
    }
    desk.redrive(0)
    assert ask(desk, 0).state == "ready"
    desk.reject(desk.deliver([0]), "no such user")
    assert first(ask(desk, 0), "dead").facts["redrive"] == "by_force"


def test_an_expired_dead_letter_can_never_be_redriven(desk: Desk) -> None:
    desk.open()
    desk.publish(expires_at_ms=[100])
    desk.reject(desk.receive())
    desk.wait(200)

    told = ask(desk, 0)

    assert codes(told) == ["dead", "expired"]
    assert told.reasons[0].facts["redrive"] == "never"


def test_a_settled_message_is_told_as_its_timeline_ends(desk: Desk) -> None:
    desk.open()
    desk.publish(2)
    desk.ack(desk.receive(1))
    ending = Ending("acked", START_MS, {"consumer": "m", "attempt": 1})

    assert codes(ask(desk, 0)) == ["settled"]
    told = ask(desk, 0, Around(ending=ending))
    assert told.state == "acked"
    assert told.reasons == [
        Reason("acked", 0, {"at_ms": START_MS, "consumer": "m", "attempt": 1}),
    ]
    assert "settled" not in codes(ask(desk, 1))


def test_an_acked_message_stays_acked_though_its_time_is_over(desk: Desk) -> None:
    desk.open()
    desk.publish(expires_at_ms=[100])
    desk.ack(desk.receive())
    desk.wait(200)

    assert ask(desk, 0, Around(ending=Ending("acked", START_MS, {}))).state == "acked"
    assert codes(ask(desk, 0)) == ["expired"]


def test_a_purged_dead_letter_is_done_with(desk: Desk) -> None:
    desk.open()
    desk.publish()
    desk.reject(desk.receive())
    desk.do(Purged(1, [0]))

    assert codes(ask(desk, 0)) == ["settled"]


# -- ready, and not delivered


def test_nothing_speaks_against_a_message_that_somebody_waits_for(desk: Desk) -> None:
    desk.open()
    desk.publish()

    told = ask(desk, 0)

    assert (codes(told), told.deliverable) == (["ready"], True)


def test_a_halted_group_delivers_nothing_until_it_goes_on(desk: Desk) -> None:
    desk.open()
    desk.publish()
    desk.do(Halted(1, "too many of its messages fail"))

    told = ask(desk, 0)

    assert first(told, "halted").facts == {"reason": "too many of its messages fail"}
    assert not told.deliverable
    desk.do(Resumed(1))
    assert ask(desk, 0).deliverable


def test_messages_of_higher_lanes_come_first(desk: Desk) -> None:
    desk.open(lane_max_wait_ms=1000, lane_share=3)
    desk.publish(3, lanes=[4, 4, 4])
    desk.publish(3, lanes=[0, 1, 1])

    told = ask(desk, 1)

    lane = first(told, "lane")
    assert lane.facts == {
        "lane": "background",
        "ahead": 3,
        "lanes": {"critical": 1, "high": 2},
        "share": 3,
        "aging_ms": START_MS + 1000,
    }
    assert reason(told, "behind").facts == {"lane": "background", "ahead": 1}
    assert "lane" not in codes(ask(desk, 3))


def test_a_lane_that_is_served_lately_has_a_bound_and_an_estimate(desk: Desk) -> None:
    desk.open(lane_max_wait_ms=1000, lane_share=3)
    desk.publish(2, lanes=4)
    desk.publish(3, lanes=0)

    told = ask(desk, 1, Around(waiting=True, rate=2.0))

    assert (told.eta_ms, told.eta_by) == (START_MS + 2500, "rate")
    assert first(told, "lane").facts["latest_ms"] == START_MS + 1000 + 3 * 2 * 500
    desk.do(Halted(1, "stop"))
    halted = ask(desk, 1, Around(waiting=True, rate=2.0))
    assert halted.eta_ms == 0
    assert "latest_ms" not in reason(halted, "lane").facts
    desk.do(Resumed(1))
    silent = ask(desk, 1)
    assert (silent.eta_ms, silent.eta_by) == (0, "")
    assert "latest_ms" not in silent.reasons[0].facts


def test_what_comes_before_it_in_its_own_lane_is_counted_behind_what_was_given_back(
    desk: Desk,
) -> None:
    desk.open()
    desk.publish(3)
    desk.nack(desk.receive(1), to_back=True)
    desk.publish(2)

    ahead = {o: [r.facts["ahead"] for r in ask(desk, o).reasons if r.facts] for o in range(5)}

    assert desk.group().select(9, desk.now_ms) == [1, 2, 0, 3, 4]
    assert ahead == {1: [], 2: [1], 0: [2], 3: [3], 4: [4]}


def test_the_limit_of_messages_in_flight_holds_those_that_do_not_fit(desk: Desk) -> None:
    desk.open(in_flight_max=2)
    desk.publish(4)
    desk.receive(1, visibility_ms=700)

    assert ask(desk, 1).deliverable
    told = ask(desk, 2)
    assert not told.deliverable
    limit = first(told, "in_flight_limit")
    assert (limit.until_ms, limit.facts) == (START_MS + 700, {"in_flight": 1, "limit": 2})


def test_what_lies_deeper_than_one_receive_reaches_is_behind_and_comes_at_the_groups_rate(
    desk: Desk,
) -> None:
    desk.open()
    desk.publish(1001)

    assert ask(desk, 999).deliverable
    told = ask(desk, 1000, Around(waiting=True, rate=100.0))
    assert (told.deliverable, codes(told)) == (False, ["behind"])
    assert told.eta_ms == START_MS + 10_010


@pytest.mark.parametrize("aged", [False, True])
def test_in_a_deep_backlog_it_is_told_as_the_group_would_choose(desk: Desk, aged: bool) -> None:
    group = desk.open(lane_max_wait_ms=1000, in_flight_max=300)
    desk.publish(2000, lanes=[offset % 5 for offset in range(2000)])
    if aged:
        desk.wait(2000)
        desk.publish(100, lanes=0)
    chosen = set(group.select(300, desk.now_ms))

    told = {offset for offset in range(0, 2000, 3) if ask(desk, offset).deliverable}

    assert told == {offset for offset in range(0, 2000, 3) if offset in chosen}
    assert {offset % 5 for offset in told} == ({0, 1, 2, 3, 4} if aged else {0})


def test_a_full_group_delivers_nothing_until_something_is_settled(desk: Desk) -> None:
    desk.open(in_flight_max=1)
    desk.publish(2)
    granted = desk.receive(1)

    assert first(ask(desk, 1), "in_flight_limit").facts == {"in_flight": 1, "limit": 1}
    desk.ack(granted)
    assert ask(desk, 1).deliverable


def test_that_nobody_asks_is_decisive_where_nobody_has_for_a_while(desk: Desk) -> None:
    desk.open()
    desk.publish(2)
    lately = Around(asked_ms=START_MS, asked_by="c1")

    assert codes(ask(desk, 1, Around())) == ["not_asked", "behind"]
    desk.now_ms += 10_000
    assert codes(ask(desk, 1, lately)) == ["behind", "not_asked"]
    desk.now_ms += 1
    told = ask(desk, 1, lately)
    assert codes(told) == ["not_asked", "behind"]
    assert told.reasons[0].facts == {"asked_ms": START_MS, "asked_by": "c1"}
    assert "not_asked" not in codes(ask(desk, 1, WAITING))


def test_a_group_that_nobody_asks_for_is_promised_nothing_at_the_rate_that_it_had(
    desk: Desk,
) -> None:
    desk.open()
    desk.publish(2, lanes=4)
    desk.publish(1, lanes=0)
    lately = Around(asked_ms=START_MS, asked_by="c1", rate=2.0)

    queued = ask(desk, 1, lately)
    assert (queued.reasons[0].code, queued.eta_by) == ("lane", "rate")
    alone = ask(desk, 2, lately)
    assert (codes(alone), alone.eta_ms, alone.eta_by) == (["not_asked"], 0, "")
    desk.now_ms += 10_001
    told = ask(desk, 1, lately)
    assert (told.reasons[0].code, told.eta_ms, told.eta_by) == ("not_asked", 0, "")
    assert "latest_ms" not in reason(told, "lane").facts
    waiting = Around(asked_ms=START_MS, waiting=True, rate=2.0)
    assert ask(desk, 1, waiting).eta_by == "rate"


# -- whose the partition is


def test_the_owner_of_the_partition_is_named_and_nobody_else_may_have_it(desk: Desk) -> None:
    desk.open()
    desk.publish()
    desk.do(Own(1, "c1", 3, fence=False))

    told = ask(desk, 0, Around(members=1, subscribed=1))

    assert codes(told) == ["not_asked", "owned"]
    assert reason(told, "owned").facts == {"consumer": "c1", "generation": 3}
    assert told.deliverable


def test_an_owner_that_is_asked_to_let_go_names_who_follows(desk: Desk) -> None:
    desk.open()
    desk.publish()
    desk.do(Own(1, "c1", 3, fence=False))

    told = ask(desk, 0, Around(members=2, subscribed=2, moving="revoking", successor="c2"))

    assert reason(told, "owned").facts["successor"] == "c2"
    assert told.deliverable


@pytest.mark.parametrize(
    ("owner", "around"),
    [
        ("", {"subscribed": 2}),
        ("", {"subscribed": 2, "moving": "handing", "successor": "c2"}),
        ("c1", {"subscribed": 2, "moving": "handing", "successor": "c2"}),
        ("c1", {"subscribed": 2, "owner_is_member": False}),
        ("c1", {"subscribed": 0, "owner_is_member": False}),
    ],
)
def test_while_no_member_owns_the_partition_none_gets_its_messages(
    desk: Desk, owner: str, around: dict[str, Any]
) -> None:
    desk.open()
    desk.publish()
    if owner:
        desk.do(Own(1, owner, 3, fence=False))

    told = ask(desk, 0, Around(members=2, waiting=True, **around))

    assert first(told, "no_owner").facts["members"] == 2
    assert not told.deliverable


@pytest.mark.parametrize(
    ("owner", "around"),
    [
        ("c1", {"subscribed": 2}),
        ("c2", {"subscribed": 2, "moving": "handing", "successor": "c2"}),
        ("", {"subscribed": 0}),
        ("", {"subscribed": 2, "shared": True}),
    ],
)
def test_who_may_receive_is_not_told_that_nobody_owns_it(
    desk: Desk, owner: str, around: dict[str, Any]
) -> None:
    desk.open()
    desk.publish()
    if owner:
        desk.do(Own(1, owner, 3, fence=False))

    told = ask(desk, 0, Around(members=2, waiting=True, **around))

    assert "no_owner" not in codes(told)
    assert told.deliverable


# -- keys


def keyed(desk: Desk, *keys: bytes, **config: Any) -> None:
    desk.open(ordering="key", **config)
    desk.publish(len(keys), keys=list(keys))


def test_a_key_is_held_by_its_earlier_message_in_flight(desk: Desk) -> None:
    keyed(desk, b"a", b"a", b"b", b"a")
    granted = desk.receive(1, visibility_ms=500)

    told = ask(desk, 3)

    assert first(told, "key_held").facts == {
        "offset": 0,
        "place": "leased",
        "consumer": "m",
        "visible_until_ms": START_MS + 500,
        "ahead": 2,
    }
    assert not told.deliverable
    assert ask(desk, 2).deliverable
    desk.ack(granted)
    assert ask(desk, 1).deliverable
    assert first(ask(desk, 3), "key_held").facts == {"offset": 1, "place": "ready", "ahead": 1}


def test_a_key_is_held_by_its_earlier_message_that_waits_for_its_backoff(desk: Desk) -> None:
    keyed(desk, b"a", b"a", backoff_ms=100)
    desk.nack(desk.receive(1))

    assert first(ask(desk, 1), "key_held").facts == {
        "offset": 0,
        "place": "waiting",
        "backoff_until_ms": START_MS + 100,
        "ahead": 1,
    }


def test_a_parked_key_holds_all_its_messages_until_it_is_released(desk: Desk) -> None:
    keyed(desk, b"a", b"a", b"b")
    desk.do(Parked(1, b"a"))

    assert first(ask(desk, 0), "key_parked").facts == {"poisoned": False, "offset": 0, "failed": 0}
    assert codes(ask(desk, 1)) == ["key_parked", "key_held"]
    assert ask(desk, 2).deliverable
    desk.do(Unparked(1, b"a"))
    assert ask(desk, 0).deliverable
    assert codes(ask(desk, 1)) == ["key_held"]


def test_a_key_parked_by_its_poisoned_message_tells_what_was_wrong(desk: Desk) -> None:
    keyed(desk, b"a", b"a", max_attempts=1, on_poison="park")
    desk.nack(desk.receive(1), "poison")

    told = first(ask(desk, 0), "key_parked")

    assert told.facts == {"poisoned": True, "offset": 0, "failed": 0, "reason": "poison"}


def test_a_message_of_a_parked_key_is_not_promised_for_when_its_time_comes(desk: Desk) -> None:
    desk.open(ordering="key")
    desk.publish(keys=[b"a"], deliver_at_ms=[500])
    desk.do(Parked(1, b"a"))

    told = ask(desk, 0, due_ms=START_MS + 500)

    assert (codes(told), told.eta_ms) == (["delayed", "key_parked"], 0)


# -- several at once


def test_several_reasons_are_told_the_decisive_one_first(desk: Desk) -> None:
    keyed(desk, b"a", b"a")
    desk.receive(1)
    desk.do(Parked(1, b"a"), Halted(1, "stop"))

    told = ask(desk, 1, Around(members=1, subscribed=1))

    assert codes(told) == ["halted", "no_owner", "key_parked", "key_held"]


def test_groups_are_judged_each_for_itself(desk: Desk) -> None:
    desk.open(1)
    desk.open(2)
    desk.publish()
    granted = desk.receive(group=1)

    assert (ask(desk, 0).state, ask(desk, 0, group=2).state) == ("in_flight", "ready")
    desk.settle(0, all_of(granted))
    assert (ask(desk, 0).state, ask(desk, 0, group=2).state) == ("acked", "ready")


def test_the_pace_is_of_the_last_minute_and_none_after_it() -> None:
    pace = Pace()

    assert pace.per_second(START_MS) == 0
    pace.note(START_MS, 10)
    assert pace.per_second(START_MS) == 2.0
    for second in range(1, 120):
        pace.note(START_MS + 1000 * second, 10)
    assert pace.per_second(START_MS + 119_000) == pytest.approx(10, rel=0.05)
    assert pace.per_second(START_MS + 200_000) == 0
