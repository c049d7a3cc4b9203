"""One plain sentence for each reason why a message is not delivered, or not settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from delivery.lookup.verdict import Reason, Verdict
from node.api.times import format_time

Facts = Mapping[str, Any]


def reason_text(reason: Reason, group: str) -> str:
    """Without a full stop; times as answers show them."""
    return _TEXTS[reason.code](_Told(reason, group))


def estimate_text(verdict: Verdict) -> str:
    """When the message is delivered (again), or that nobody can say; empty where it never is."""
    if verdict.eta_ms:
        return _ESTIMATES[verdict.eta_by].format(format_time(verdict.eta_ms))
    if verdict.state in ("acked", "dead", "cancelled", "expired", "gone", "never"):
        return ""
    return "no estimate: nothing that is known tells when that ends"


class _Told:
    """A reason's facts, as a sentence needs them."""

    def __init__(self, reason: Reason, group: str) -> None:
        self.facts: Facts = reason.facts
        self.group = group or "no group"
        self.until = format_time(reason.until_ms) if reason.until_ms else ""
        self.is_over = bool(reason.facts.get("over"))

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    def time(self, name: str) -> str:
        return format_time(self.facts[name]) if self.facts.get(name) else ""

    def given(self, name: str, text: str) -> str:
        """The text with the fact, nothing where that is not known."""
        fact = self.facts.get(name)
        if fact in (None, "", 0):
            return ""
        return text.format(self.time(name) if name.endswith("_ms") else fact)


def _no_leader(told: _Told) -> str:
    text = (
        f"the partition has no leader: {told['reachable']} of {told['replicas']} replicas can be "
        "reached from here"
    )
    if told.facts.get("elsewhere"):
        return f"{text}, and none of them is this node's: it knows nothing of the message"
    return f"{text}, and what follows is as this replica last knew it"


def _in_flight(told: _Told) -> str:
    text = f"in flight at {_consumer(told)}{told.given('since_ms', ' since {}')}, "
    text += f"attempt {told['attempt']}"
    if told.is_over:
        return f"{text}: its lease ended at {told.until}, and the next entry takes it back"
    if not told.until:
        return f"{text}: its lease ends with its stream{told.given('stream', ' {}')}"
    return f"{text}: its lease expires at {told.until}"


def _last_attempt(told: _Told) -> str:
    count = told["attempts"]
    which = "the only attempt" if count == 1 else f"the last of {count} attempts"
    return f"it is {which}: if it fails, nothing is delivered again"


def _dead(told: _Told) -> str:
    can = {
        "yes": "can be redriven",
        "by_force": f"was redriven {told['redrives']} times, and again only by force",
        "never": "can't be redriven any more",
    }[told["redrive"]]
    why = told.given("reason", ": {}")
    attempts = _count(told["attempts"], "attempt")
    return f"a dead letter since {told.time('since_ms')}, {attempts}{why}; {can}"


def _acked(told: _Told) -> str:
    if "committed_offset" in told.facts:
        return f"acked at {told.time('at_ms')}, by a commit of offset {told['committed_offset']}"
    text = f"acked at {told.time('at_ms')}{told.given('consumer', ' by consumer {}')}"
    return text + told.given("attempt", ", attempt {}")


def _delayed(told: _Told) -> str:
    if told.is_over:
        return f"was delayed until {told.until}: the next entry makes it ready"
    return f"delayed until {told.until}"


def _backoff(told: _Told) -> str:
    text = f"attempt {told['failed']} failed{told.given('reason', ' ({})')}"
    if not told["failed"]:
        text = f"given back{told.given('reason', ' ({})')}"
    if told.is_over:
        return f"{text}: its wait was over at {told.until}, the next entry makes it ready"
    return f"{text}: it waits until {told.until}"


def _unreadable(told: _Told) -> str:
    text = "it can't be read on the partition's leader: damage is being mended"
    if told.facts.get("mended"):
        text = "it could not be read on the partition's leader, and can be now"
    return f"{text}; it is set aside until {told.until}" if told.until else text


def _key_held(told: _Told) -> str:
    places = {
        "leased": f"in flight at {_consumer(told)}{told.given('visible_until_ms', ' until {}')}",
        "waiting": f"which waits after a failure until {told.time('backoff_until_ms')}",
        "withheld": "which is parked",
        "ready": "which is ready and not delivered",
    }
    ahead = told.facts.get("ahead")
    more = f"; {ahead} of its key come before it" if ahead and ahead > 1 else ""
    return f"its key is held by offset {told['offset']}, {places[told['place']]}{more}"


def _key_parked(told: _Told) -> str:
    how = "by a message that failed for good" if told["poisoned"] else "by hand"
    return f"its key is parked {how}{told.given('reason', ' ({})')}, until it is released"


def _no_owner(told: _Told) -> str:
    text = "no member owns the partition"
    if told.facts.get("moving"):
        way = f"{told.given('former', ' from {}')}{told.given('successor', ' to {}')}"
        return f"{text}: the group is rebalancing, and hands it over{way}"
    if told.facts.get("former"):
        return f"{text}: it was {told['former']}'s, which is no member of the group any more"
    return f"{text}: the group has {_members(told)}, and is rebalancing"


def _limit(told: _Told) -> str:
    flying = told["in_flight"]
    text = f"{_count(flying, 'message')} {'is' if flying == 1 else 'are'} in flight here"
    text += f", of at most {told['limit']}"
    return text + (f": the first lease ends at {told.until}" if told.until else "")


def _lane(told: _Told) -> str:
    lanes = ", ".join(f"{count} {lane}" for lane, count in told["lanes"].items())
    text = f"behind {_count(told['ahead'], 'message')} of higher lanes ({lanes})"
    if told.facts.get("aging_ms"):
        text += (
            f": from {told.time('aging_ms')} on its lane, or one that has waited longer, gets one "
            f"delivery in {told['share']}"
        )
    return text + told.given("latest_ms", ", so that it goes out by {} at the latest at this rate")


def _not_asked(told: _Told) -> str:
    members = told.facts.get("members")
    who = f"group {told.group}"
    none = f"{who} has no members, and nobody" if members == 0 else f"nobody of {who}"
    if not told.facts.get("asked_ms"):
        return f"{none} has asked this partition's leader for messages since it leads"
    by = told.given("asked_by", ", {}")
    return f"{none} waits for messages: asked last at {told.time('asked_ms')}{by}"


def _owned(told: _Told) -> str:
    text = f"the partition is consumer {told['consumer']}'s: nobody else may receive it"
    if told.facts.get("revoking"):
        to = told.given("successor", " to {}")
        text += f"; it is asked to let go, for it moves{to}"
    return text


def _kept(told: _Told) -> str:
    begins = f"the log begins at offset {told['log_start']}"
    if told["by"] == "compaction":
        return f"{begins}: the message is kept as the last of its key"
    return f"{begins}: the message outlived retention, because the queue still needed it"


def _consumer(told: _Told) -> str:
    return f"consumer {told['consumer']}" if told.facts.get("consumer") else "a consumer"


def _members(told: _Told) -> str:
    return _count(told["members"], "member")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


_ESTIMATES = {
    "delay": "ready at {}, when it is due",
    "backoff": "ready again at {}",
    "lease": "delivered again from {} on, unless it is settled before",
    "rate": "delivered at about {}, if the group goes on as in the last minute",
}
_TEXTS: dict[str, Callable[[_Told], str]] = {
    "no_leader": _no_leader,
    "not_published": lambda told: f"not published yet: the partition ends at offset {told['end']}",
    "gone": lambda told: f"gone: the log begins at offset {told['log_start']}",
    "no_group": lambda _: "no group reads the topic",
    "not_begun": lambda told: (
        f"group {told.group} has never asked for messages of this partition, and begins with its "
        "first receive"
    ),
    "below_beginning": lambda told: (
        f"group {told.group} begins at offset {told['begins']} here, behind the message"
    ),
    "in_flight": _in_flight,
    "last_attempt": _last_attempt,
    "dead": _dead,
    "acked": _acked,
    "purged": lambda told: f"its dead letter was purged at {told.time('at_ms')}",
    "skipped": lambda told: (
        f"skipped at {told.time('at_ms')}: the group was set to offset {told['to_offset']}"
    ),
    "settled": lambda told: f"group {told.group} is done with it: acked, committed past, or purged",
    "cancelled": lambda _: "cancelled: it is never delivered",
    "expired": lambda _: "expired: its time to live is over, and it is never delivered again",
    "delayed": _delayed,
    "expires_first": lambda told: f"it expires before that, at {told.time('expires_ms')}",
    "halted": lambda told: f"the group is halted in this partition: {told['reason']}",
    "key_parked": _key_parked,
    "key_held": _key_held,
    "backoff": _backoff,
    "unreadable": _unreadable,
    "no_owner": _no_owner,
    "in_flight_limit": _limit,
    "lane": _lane,
    "behind": lambda told: (
        f"behind {_count(told['ahead'], 'message')} of its own lane, {told['lane']}"
    ),
    "not_asked": _not_asked,
    "ready": lambda _: "can be delivered now, and a consumer waits for messages",
    "owned": _owned,
    "kept": _kept,
}
