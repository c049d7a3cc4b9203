"""The rules of a queue, each a generator of what breaks it in a `Case`.

All that is known of when something happened is that it was between a request and its answer. So
a rule speaks only where the intervals leave no doubt; attempts, which are exact, need none.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

from tests.check.queuecase import Case, Dead, Grant, Message, Place

TIMED_OUT = "visibility timeout"
"""The reason of an attempt whose lease ran out."""

EXPIRY_S = 1.0
"""A lease that is over ends within this time."""
WAITS_KNOWN_TO_S = 1.0
"""A group takes a message to have waited for up to this longer than it has."""


@dataclass(frozen=True)
class Limits:
    """What a run may be held to."""

    clock_s: float = 0.05
    """Log time may run ahead of the writer's clock by this (a step that a majority agreed on)."""
    late_s: float = 2.0
    """A delayed message is there this long after it is due, where nothing hinders it."""
    calm_s: float = 5.0
    """Nothing hinders it when there was no trouble for so long."""
    dedup_window_s: float = 300.0


Broken = Iterator[str]
Rule = Callable[[Case, Limits], Broken]


def attempts_are_exact(case: Case, limits: Limits) -> Broken:
    """Q1: one delivery for each attempt, in their order, each for the reason that ended the last.

    A lease that ends by a settle that was answered OK stood until then: no later attempt came
    before. One that nobody settled stood for the visibility timeout.
    """
    for grants in _by_life(case):
        by_attempt: dict[int, list[Grant]] = defaultdict(list)
        for grant in grants:
            by_attempt[grant.attempt].append(grant)
            if grant.attempt < 1:
                yield f"{grant} is no attempt"
            if grant.attempt == 1 and grant.reason and not grant.redrives:
                yield f"{grant} comes first, and has the reason {grant.reason!r}"
        for attempt, twins in by_attempt.items():
            unreleased = [g for g in twins if not g.tried("release")]
            if len(unreleased) > 1:
                yield f"{twins[0]} is attempt {attempt} as {len(unreleased)} receipts"
        for earlier, later in combinations(sorted(grants, key=lambda g: g.attempt), 2):
            if earlier.attempt < later.attempt:
                yield from _one_lease_at_a_time(case, earlier, later, limits)


def _one_lease_at_a_time(case: Case, earlier: Grant, later: Grant, limits: Limits) -> Broken:
    if later.came < earlier.sent:
        yield f"{later} came before attempt {earlier.attempt} was asked for"
    for tried in earlier.settles:
        if tried.is_done and later.came < tried.began:
            yield f"{earlier} was settled ({tried.action}) after attempt {later.attempt} came"
    if later.attempt != earlier.attempt + 1:
        return
    ended = earlier.done("nack")
    if ended is not None and later.reason != ended.reason:
        yield f"{later} has the reason {later.reason!r}, the nack said {ended.reason!r}"
    if not earlier.settles:
        if later.reason != TIMED_OUT:
            yield f"{later} has the reason {later.reason!r}, and nobody settled the one before"
        visibility_s = case.settings.get(earlier.group, {}).get("visibility_ms", 0) / 1000
        if later.came < earlier.sent + visibility_s - limits.clock_s:
            yield f"{later} came {later.came - earlier.sent:.3f} s after an attempt still leased"


def acked_is_final(case: Case, limits: Limits) -> Broken:
    """G3: what was acked is never delivered again to that group."""
    for grants in _by_life(case):
        for grant in grants:
            ack = grant.done("ack")
            if ack is None:
                continue
            for other in grants:
                if other.attempt > grant.attempt or other.sent > ack.ended:
                    yield f"{grant} was acked, and delivered again: attempt {other.attempt}"


def everything_is_delivered(case: Case, limits: Limits) -> Broken:
    """G3: a group that was drained has settled, or lost to its dead letters, all that was acked."""
    for group in sorted(case.settings):
        if group not in case.drained:
            yield f"{group} was never drained"
            continue
        dead = {letter.place for letter in case.dead[group]}
        for place, message in sorted(case.messages.items()):
            if message.acked == math.inf or place in dead or _may_be_gone(case, message):
                continue
            if (group, place) in case.fallen or message.acked + message.delay_s > case.ended:
                continue
            grants = case.grants[group].get(place, ())
            if not grants:
                if not _may_have_died_unseen(case, group, place, message):
                    yield f"{place} was acked, and never delivered to {group}"
            elif not any(g.tried("ack") for g in grants) and group not in case.purged:
                yield f"{place} was acked, and never settled by {group}: {grants[-1]}"


def _may_have_died_unseen(case: Case, group: str, place: Place, message: Message) -> bool:
    """Whether each of its attempts may have been in a receive without an answer, and its dead
    letter was purged then."""
    purged_s = case.purged.get(group, -math.inf)
    lost = [
        one
        for one in case.lost_receives[group]
        if one.concerns(place[0]) and one.ended > message.began and one.sent < purged_s
    ]
    return len(lost) >= case.settings[group].get("max_attempts", math.inf)


def _may_be_gone(case: Case, message: Message) -> bool:
    cancelled = any(c.outcome != "refused" for c in case.cancels.get(message.place, ()))
    return cancelled or message.ttl_s > 0


def dead_once(case: Case, limits: Limits) -> Broken:
    """Q2: dead letters are those that failed too often or were rejected, once, with the reason;
    they are not delivered again unless they are redriven."""
    for group in sorted(set(case.dead) | set(case.grants)):
        attempts_max = case.settings.get(group, {}).get("max_attempts", 0)
        places = [letter.place for letter in case.dead[group]]
        for place in sorted({p for p in places if places.count(p) > 1}):
            yield f"{place} is dead twice for {group}"
        for place, grants in case.grants[group].items():
            yield from _stays_dead(case, grants, place in places)
            for grant in grants:
                yield from _dies_in_time(grant, attempts_max, case.messages[place].ttl_s > 0)
        for letter in case.dead[group]:
            for broken in _dead_rightly(case, group, letter, attempts_max):
                yield f"{letter.place} is dead for {group} {broken}"


def _dies_in_time(grant: Grant, attempts_max: int, may_expire: bool) -> Broken:
    """Not before it has failed as often as it may, and not after."""
    if attempts_max and grant.attempt > attempts_max:
        yield f"{grant} is more than {attempts_max} attempts"
    for tried in grant.settles:
        if tried.action == "nack" and tried.is_done and attempts_max:
            is_last = grant.attempt >= attempts_max
            if tried.outcome == "expired" and may_expire:
                continue
            if is_last != (tried.outcome in ("dead", "parked", "halted")):
                yield f"{grant} of {attempts_max} attempts was nacked, and is {tried.outcome}"


def _stays_dead(case: Case, grants: list[Grant], is_dead: bool) -> Broken:
    group, place = grants[0].group, grants[0].place
    newest = max(grant.redrives for grant in grants)
    for grant in grants:
        death = grant.outcome("dead")
        if death is None:
            continue
        for other in grants:
            again = other.redrives == grant.redrives and other.attempt > grant.attempt
            if again or (other.sent > death.ended and other.redrives <= grant.redrives):
                yield f"{grant} died, and {other} came"
        stays = grant.redrives == newest and group not in case.redriven | case.purged.keys()
        if stays and group in case.drained and not is_dead:
            yield f"{place} died for {group}, and is no dead letter"
    if newest and group not in case.redriven:
        yield f"{place} came to {group} as redriven, nobody had asked for it"


def _dead_rightly(case: Case, group: str, letter: Dead, attempts_max: int) -> Broken:
    grants = case.grants[group].get(letter.place, [])
    if any(grant.done("ack") for grant in grants):
        yield "and was acked"
    lives = [grant for grant in grants if grant.redrives == letter.redrives]
    rejected = any(grant.tried("reject") for grant in lives)
    if letter.attempts < attempts_max and not rejected:
        yield f"after {letter.attempts} of {attempts_max} attempts"
    last = max(lives, key=lambda grant: grant.attempt, default=None)
    if last is not None and last.attempt > letter.attempts:
        yield f"after {letter.attempts} attempts, and {last} was given"
    reasons = {TIMED_OUT}
    finals = [grant for grant in lives if grant.attempt == letter.attempts]
    if finals:
        settles = [t for g in finals for t in g.settles if t.action in ("nack", "reject")]
        done = [t.reason for t in settles if t.is_done]
        reasons = set(done) or {TIMED_OUT, *(t.reason for t in settles if t.may_be_done)}
    if letter.reason not in reasons:
        yield f"for {letter.reason!r}, not for {' or '.join(sorted(reasons))}"


def never_early(case: Case, limits: Limits) -> Broken:
    """Q3: nothing is delivered before it is due, by log time where that is known, and else by
    the writer's clock; a message is delivered or cancelled, never both."""
    for grant in case.all_grants():
        message = case.messages[grant.place]
        due_ms = message.deliver_at_ms
        if grant.log_ms is not None and due_ms is not None and grant.log_ms < due_ms:
            yield f"{grant} came {due_ms - grant.log_ms} ms of log time before it was due"
        publish = case.publish_of(grant)
        if publish is not None and publish.delay_s:
            early_s = case.began(grant) + publish.delay_s - grant.came
            if early_s > limits.clock_s:
                yield f"{grant} came {early_s:.3f} s before it can have been due"
        if any(c.outcome == "cancelled" for c in case.cancels.get(grant.place, ())):
            yield f"{grant} was cancelled, and came"


def never_expired(case: Case, limits: Limits) -> Broken:
    """Q3: nothing is delivered that was beyond its time to live when it was asked for."""
    for grant in case.all_grants():
        message = case.messages[grant.place]
        if message.ttl_s and grant.sent > message.acked + message.ttl_s + limits.clock_s:
            yield f"{grant} came {grant.sent - message.acked:.3f} s old, it lives {message.ttl_s} s"


def in_time(case: Case, limits: Limits) -> Broken:
    """Q3: where nothing hinders it, a delayed message comes soon after it is due."""
    for place, message in sorted(case.messages.items()):
        if not message.delay_s or message.acked == math.inf:
            continue
        due = message.acked + message.delay_s
        for group, by_place in case.grants.items():
            if case.settings.get(group, {}).get("ordering") == "key":
                continue  # it may wait for another of its key
            first = next((g for g in by_place.get(place, ()) if g.attempt == 1), None)
            if first is None or first.redrives or first.came - due <= limits.late_s:
                continue
            if not any(due - limits.calm_s < t < first.came for t in case.troubles):
                yield f"{first} came {first.came - due:.3f} s after it was due"


def lanes_are_strict(case: Case, limits: Limits) -> Broken:
    """Q4: nothing of a lower lane while a higher one of the partition is ready, unless it has
    waited too long; inside a lane, first deliveries are in the order of offsets."""
    for group, settings in sorted(case.settings.items()):
        if settings.get("ordering") == "key":
            continue
        wait_s = settings.get("lane_max_wait_ms", 30_000) / 1000 - WAITS_KNOWN_TO_S - limits.clock_s
        visibility_s = settings.get("visibility_ms", 30_000) / 1000
        held_s = visibility_s + limits.clock_s + EXPIRY_S
        ages = _Ages(case, group)
        firsts: dict[int, list[_First]] = defaultdict(list)
        for place, grants in case.grants[group].items():
            message = case.messages[place]
            first = next((g for g in grants if g.attempt == 1 and not g.redrives), None)
            if first is not None and not _is_delayed(case, first):
                is_late = ages.oldest(first) < first.came - wait_s
                firsts[place[0]].append(_First(first, message, is_late))
        for partition, found in firsts.items():
            lost = [r for r in case.lost_receives[group] if r.concerns(partition)]
            held = [(receive.sent, receive.ended + held_s) for receive in lost]
            yield from _no_lower_lane_before(found, held)


class _Ages:
    """How old what was in each lane of a group can have been."""

    def __init__(self, case: Case, group: str) -> None:
        rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for place, grants in case.grants[group].items():
            for grant in grants:
                rows[place[0], grant.lane].append((grant.came, case.began(grant)))
        self._came = {lane: sorted(came for came, _ in found) for lane, found in rows.items()}
        self._oldest = {
            lane: list(accumulate((began for _, began in sorted(found, reverse=True)), min))
            for lane, found in rows.items()
        }

    def oldest(self, grant: Grant) -> float:
        """When the first of those was published that its lane still had when it was given."""
        lane = grant.place[0], grant.lane
        later = len(self._came[lane]) - bisect_left(self._came[lane], grant.sent)
        return self._oldest[lane][later - 1]


@dataclass(frozen=True, slots=True)
class _First:
    """A first delivery; `is_late` where something of its lane had waited too long."""

    grant: Grant
    message: Message
    is_late: bool

    @property
    def ready(self) -> float:
        """From when on the message was there for certain."""
        return self.message.acked


def _no_lower_lane_before(firsts: list[_First], lost: list[tuple[float, float]]) -> Broken:
    """From the last answer to the first: what was asked for only after it, and was there."""
    by_sent = sorted(firsts, key=lambda first: first.grant.sent)
    soonest: list[_First | None] = [None] * 5
    lowest: list[_First | None] = [None] * 5
    for other in sorted(firsts, key=lambda first: first.grant.came, reverse=True):
        while by_sent and by_sent[-1].grant.sent > other.grant.came:
            late = by_sent.pop()
            lane = late.grant.lane
            known, low = soonest[lane], lowest[lane]
            soonest[lane] = late if known is None or late.ready < known.ready else known
            lowest[lane] = late if low is None or late.grant.place < low.grant.place else low
        given = other.grant
        for lane in range(given.lane + 1):
            for late in {id(x): x for x in (soonest[lane], lowest[lane]) if x}.values():
                is_before = late.grant.place < given.place
                was_there = is_before or late.ready < given.sent
                wrong = is_before if lane == given.lane else was_there and not other.is_late
                if wrong and not any(a < given.came and given.sent < b for a, b in lost):
                    yield f"{given} of lane {given.lane} came before {late.grant} of lane {lane}"


def ids_are_stored_once(case: Case, limits: Limits) -> Broken:
    """Q5: one message id has one place within the window, whoever asked and was answered."""
    by_id: dict[tuple[str, int | None], list[tuple[float, float, Place]]] = defaultdict(list)
    for publish in case.publishes.values():
        if publish.message_id is not None and publish.place is not None:
            key = (publish.message_id, publish.partition)
            by_id[key].append((publish.began, publish.ended, publish.place))
    for (message_id, _), found in by_id.items():
        found.sort()
        for (_, _, one), (_, ended, other) in pairwise(found):
            if one != other and ended - found[0][0] < limits.dedup_window_s:
                yield f"{message_id!r} is stored at {one} and {other}"
    places: dict[str, set[Place]] = defaultdict(set)
    for grant in case.all_grants():
        places[grant.value].add(grant.place)
    for value, there in places.items():
        publishes = case.by_value.get(value, [])
        in_doubt = len(publishes) if publishes and publishes[0].message_id is None else 1
        if len(there) > in_doubt:
            yield f"{value!r} was delivered from {sorted(there)}"


def keys_are_in_order(case: Case, limits: Limits) -> Broken:
    """KEY: of an `ordering: key` group, one message of a key is in flight, the lowest first."""
    for group, settings in sorted(case.settings.items()):
        if settings.get("ordering") != "key":
            continue
        visibility_s = settings.get("visibility_ms", 30_000) / 1000 - limits.clock_s
        by_key: dict[tuple[int, str], list[Grant]] = defaultdict(list)
        for place, grants in case.grants[group].items():
            for grant in grants:
                if grant.key is not None:
                    by_key[place[0], grant.key].append(grant)
        for grants in by_key.values():
            grants.sort(key=lambda g: (g.came, g.sent))
            for number, grant in enumerate(grants):
                yield from _alone(grant, grants, number, visibility_s)
            yield from _firsts_in_order(case, grants)


def _alone(grant: Grant, grants: list[Grant], number: int, visibility_s: float) -> Broken:
    """From the answer until something may have ended it, no other was granted."""
    until = min(grant.stands_until, grant.sent + visibility_s)
    for other in grants[number + 1 :]:
        if other.came >= until:
            return
        if other.place != grant.place and other.sent > grant.came:
            yield f"{other} came while {grant} of the same key was in flight"


def _firsts_in_order(case: Case, grants: list[Grant]) -> Broken:
    firsts = sorted(
        (g for g in grants if g.attempt == 1 and not g.redrives and not _is_delayed(case, g)),
        key=lambda g: g.place,
    )
    for one, other in pairwise(firsts):
        if other.came < one.sent:
            yield f"{other} came before {one}, which is before it in its key"


def _is_delayed(case: Case, grant: Grant) -> bool:
    publish = case.publish_of(grant)
    return publish is not None and publish.delay_s > 0


def nothing_is_made_up(case: Case, limits: Limits) -> Broken:
    """L6: what is received was published, there, like that; refused publishes never come."""
    for grant in case.all_grants():
        publishes = case.by_value.get(grant.value)
        if not publishes:
            yield f"{grant} has the value {grant.value!r}, which nobody published"
            continue
        if all(p.outcome == "refused" for p in publishes):
            yield f"{grant} was refused when it was published"
        publish = publishes[0]
        if (grant.lane, grant.key) != (publish.lane, publish.key):
            yield f"{grant} has lane {grant.lane} and key {grant.key!r}, not as published"
        acked = {p.place for p in publishes if p.place is not None}
        if publish.message_id is None and len(publishes) == 1 and acked - {grant.place}:
            yield f"{grant} was acked at {sorted(acked)}"
        there = case.messages[grant.place].publishes
        if there and all(p.value != grant.value for p in there):
            yield f"{grant} has the value {grant.value!r}, acked there is {there[0].value!r}"
    for event in case.strangers:
        yield f"a receipt was settled that nobody was given: {event['receipt'][:40]}"


def _by_life(case: Case) -> Iterator[list[Grant]]:
    """The deliveries of a message to a group, apart for each time that it was redriven."""
    for by_place in case.grants.values():
        for grants in by_place.values():
            if all(g.redrives == grants[0].redrives for g in grants):
                yield grants
                continue
            lives: dict[int, list[Grant]] = defaultdict(list)
            for grant in grants:
                lives[grant.redrives].append(grant)
            yield from lives.values()


RULES: dict[str, tuple[Rule, ...]] = {
    "Q1": (attempts_are_exact,),
    "Q2": (dead_once,),
    "Q3": (never_early, never_expired, in_time),
    "Q4": (lanes_are_strict,),
    "Q5": (ids_are_stored_once,),
    "G3": (acked_is_final, everything_is_delivered),
    "KEY": (keys_are_in_order,),
    "L6": (nothing_is_made_up,),
}
