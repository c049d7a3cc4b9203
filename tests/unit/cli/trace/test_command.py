"""`goqueue-cli trace`: a noun whose verb may be left out, and what it finds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cli.trace.follow import is_settled
from cli.trace.tree import INEXACT
from goqueue.wire.errors import NoQuorum
from goqueue.wire.types import Offset
from node.api.search import NotSearched, SearchPage
from node.api.traces import GroupTrace, MessageTrace, TraceEvent
from tests.unit.cli.conftest import Shell

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"traceparent=00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "--partitions", "3")
    return shell


def found(shell: Shell, *words: str) -> list[str]:
    """Ids that a search tells."""
    return [json.loads(line)["id"] for line in shell.ok("trace", "search", *words).splitlines()]


def test_the_verb_may_be_left_out(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "2")

    assert topic.ok("trace", "t:2:0") == topic.ok("trace", "show", "t:2:0")
    assert topic.ok("trace", "-o", "json", "t:2:0") == topic.ok("trace", "t:2:0", "-o", "json")


def test_two_dashes_make_an_id_of_what_is_named_like_a_verb(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1", "--message-id", "search")

    as_id = topic.ok("trace", "--topic", "t", "--", "search")
    without_topic = topic.run("trace", "--", "search")

    assert as_id.splitlines()[0] == "Message: search"
    assert without_topic.stdout == as_id


def test_a_producers_id_is_searched_in_all_topics(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1", "--message-id", "order-7")
    found, why = topic.ok("trace", "order-7"), topic.ok("trace", "why", "order-7")
    nothing = topic.run("trace", "order-8")

    assert found == topic.ok("trace", "t:1:0")
    assert why == topic.ok("trace", "why", "t:1:0")
    assert nothing.exit_code == 3
    assert "no message has the id order-8" in nothing.stderr

    topic.ok("topic", "create", "u", "--partitions", "1")
    topic.ok("produce", "u", "-m", "x", "--message-id", "order-7")
    both = topic.ok("trace", "order-7", "-o", "json")
    assert {json.loads(line)["id"] for line in both.splitlines()} == {"t:1:0", "u:0:0"}


def test_help_is_of_the_noun_and_names_its_verbs(topic: Shell) -> None:
    told = topic.ok("trace", "--help")

    assert all(verb in told for verb in ("show", "search", "list", "get", "stats"))
    assert topic.run("trace").exit_code == 2


def test_a_message_is_traced_by_its_producers_id_and_by_its_trace_id(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1", "--message-id", "a:0:1", "--header", PARENT)

    by_place = topic.ok("trace", "t:1:0")

    assert by_place.splitlines()[:4] == ["Message: a:0:1", "Topic: t", "Partition: 1", "Offset: 0"]
    assert topic.ok("trace", "a:0:1", "--topic", "t") == by_place
    assert topic.ok("trace", TRACE) == by_place
    assert topic.run("trace", "none", "--topic", "t").exit_code == 3
    assert topic.run("trace", "f" * 32).exit_code == 3


def test_of_several_messages_with_an_id_a_table_says_how_to_see_one(topic: Shell) -> None:
    for partition in ("0", "1"):
        topic.ok("produce", "t", "-m", "x", "-p", partition, "--header", PARENT)

    result = topic.run("trace", TRACE, "-o", "table")

    assert [line.split()[0] for line in result.stdout.splitlines()] == ["ID", "t:1:0", "t:0:0"]
    assert "`goqueue-cli trace t:1:0`" in result.stderr


def test_what_others_wrote_can_neither_begin_a_line_of_a_timeline_nor_move_the_cursor(
    topic: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1", "--message-id", "m\x9b")
    real = topic.broker.traces.message_trace
    reason = "bad\x1b[2J\n└─ 2025-01-15T10:30:00.000Z  ACKNOWLEDGED\u202e"

    async def told(topic: str, partition: int, offset: Offset) -> MessageTrace:
        trace = await real(topic, partition, offset)
        what = {"group": "g", "reason": reason}
        nacked = TraceEvent(trace.events[0].time_ms, "NACKED", what)
        return replace(trace, events=(*trace.events, nacked))

    monkeypatch.setattr(topic.broker.traces, "message_trace", told)
    lines = topic.ok("trace", "t:1:0").splitlines()
    receipt = topic.post("/v1/groups/g/receive", topic="t")["messages"][0]["receipt"]
    topic.post("/v1/groups/g/reject", receipt=receipt, reason=reason)
    why = topic.ok("trace", "why", "t:1:0")

    assert lines[0] == "Message: m\\x9b"
    assert [line.split()[2] for line in lines if "2025-" in line] == [
        "PUBLISHED",
        "REPLICATED",
        "RETAINED",
        "NACKED",
    ]
    assert r"reason=bad\x1b[2J\n└─ 2025-01-15T10:30:00.000Z  ACKNOWLEDGED\u202e" in lines[-4]
    assert r": bad\x1b[2J\n└─ " in why


def test_tables_show_what_can_not_be_seen(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1", "--key", "k\x1b[2J")

    table = topic.ok("trace", "search", "--topic", "t", "-o", "table")

    assert r"k\x1b[2J" in table


def test_search_takes_all_that_a_message_carries(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "a", "-p", "0", "--key", "k", "--header", "source=a b")
    topic.ok("produce", "t", "-m", "b", "-p", "1", "--message-id", "m", "--header", PARENT)

    assert found(topic, "--topic", "t", "--key", "k") == ["t:0:0"]
    assert found(topic, "-H", "source=a b") == ["t:0:0"]
    assert found(topic, "-H", "source=a b", "-H", "other=x") == []
    assert found(topic, "--message-id", "m") == ["t:1:0"]
    assert found(topic, "--trace-id", TRACE, "--partition", "1") == ["t:1:0"]
    assert found(topic, "--start", "2025-01-15T10:30:00Z", "-n", "1") == ["t:1:0"]
    assert found(topic, "--end", "2025-01-15T10:30:00Z") == []


def test_search_takes_states_and_goqueues_words_for_them(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "a", "-p", "0")
    topic.ok("produce", "t", "-m", "b", "-p", "1", "--delay", "1h")
    topic.ok("consume", "t", "--group", "g", "-n", "1")

    assert found(topic, "--state", "delayed") == ["t:1:0"]
    assert found(topic, "--group", "g", "--status", "acked") == ["t:0:0"]
    assert found(topic, "--consumer-group", "g", "--status", "completed") == ["t:0:0"]
    assert topic.run("trace", "search", "--state", "lost").exit_code == 1
    assert topic.run("trace", "search", "--group", "nobody").exit_code == 3


def test_search_takes_as_many_pages_as_it_was_asked_for(topic: Shell) -> None:
    for n in range(5):
        topic.ok("produce", "t", "-m", str(n), "-p", str(n % 3))

    assert len(found(topic, "-n", "5")) == 5
    few = topic.run("trace", "search", "-n", "2", "-o", "table")
    assert len(few.stdout.splitlines()) == 3
    assert "-n takes more" in few.stderr


def test_what_was_not_searched_is_told_and_nothing_found_then_is_an_error(
    topic: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = topic.broker.lookup.search

    async def cut(*words: Any, **options: Any) -> SearchPage:
        page = await search(*words, **options)
        return replace(page, not_searched=[NotSearched("t", 2, "no leader answers")])

    monkeypatch.setattr(topic.broker.lookup, "search", cut)

    result = topic.run("trace", "search", "--topic", "t")

    assert "Warning: t:2 was not searched: no leader answers" in result.stderr
    assert result.exit_code == 4


def test_traces_are_listed_and_shown_as_goqueue_does(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1", "--header", PARENT)

    listed = topic.ok("trace", "list", "-o", "table").splitlines()
    trace = topic.ok("trace", "get", TRACE, "-o", "table").splitlines()

    assert listed[0].split() == [
        "TRACE",
        "ID",
        "TOPIC",
        "PARTITION",
        "OFFSET",
        "STATUS",
        "DURATION",
    ]
    assert listed[1].split() == [TRACE, "t", "1", "0", "in_progress", "0s"]
    assert trace[0].split() == ["Trace", "ID:", TRACE]
    assert trace[trace.index("EVENTS:") + 1].split() == ["TYPE", "TIMESTAMP", "DETAILS"]
    assert trace[-3].split()[0] == "PUBLISHED"
    assert topic.run("trace", "get", "x").exit_code == 1


def test_stats_are_figures(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x")

    assert json.loads(topic.ok("trace", "stats"))["traces_total"] == 1
    table = topic.ok("trace", "stats", "-o", "table")
    assert "Traces total (messages stored):" in table
    assert "Traces completed (acks, by group):" in table


def test_following_ends_when_the_group_has_settled_the_message(
    topic: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1")
    real, looks = topic.broker.traces.message_trace, list[int]()

    async def told(topic: str, partition: int, offset: Offset) -> MessageTrace:
        """Nobody answers the second look; the third one finds the ack."""
        looks.append(offset)
        trace = await real(topic, partition, offset)
        if len(looks) == 2:
            raise NoQuorum
        acked = TraceEvent(trace.events[0].time_ms, "ACKNOWLEDGED", {"group": "g"})
        more = (acked,) if len(looks) > 2 else ()
        return replace(trace, events=(*trace.events[:2], *more, trace.events[2]))

    monkeypatch.setattr(topic.broker.traces, "message_trace", told)
    lines = topic.ok("trace", "t:1:0", "--follow", "--group", "g", "-o", "json").splitlines()

    events = [json.loads(line) for line in lines]
    assert [event["event_type"] for event in events] == ["PUBLISHED", "REPLICATED", "ACKNOWLEDGED"]
    assert events[0]["id"] == "t:1:0"
    tree = topic.ok("trace", "t:1:0", "--follow", "--group", "g").splitlines()
    assert [line[:2] for line in tree if "2025" in line] == ["├─", "├─", "├─", "└─"]


def test_a_tree_says_where_events_may_be_missing(
    topic: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "1")
    real = topic.broker.traces.message_trace
    assert INEXACT not in topic.ok("trace", "t:1:0")

    async def told(topic: str, partition: int, offset: Offset) -> MessageTrace:
        state = GroupTrace("g", "in_flight", 2, "worker-1", 1_735_689_600_000, 0, "too slow")
        return replace(
            await real(topic, partition, offset), exact=False, groups=(state,), status="in_progress"
        )

    monkeypatch.setattr(topic.broker.traces, "message_trace", told)
    answer = json.loads(topic.ok("trace", "t:1:0", "-o", "json"))

    assert topic.ok("trace", "t:1:0").splitlines()[-1] == INEXACT
    assert (answer["status"], answer["exact"]) == ("in_progress", False)
    assert answer["states"] == [
        {
            "group": "g",
            "state": "in_flight",
            "attempts": 2,
            "consumer": "worker-1",
            "visible_until": "2025-01-01T00:00:00.000Z",
            "reason": "too slow",
        }
    ]


def test_a_group_is_for_following(topic: Shell) -> None:
    assert topic.run("trace", "t:1:0", "--group", "g").exit_code == 2


def test_what_settles_a_message_for_a_group() -> None:
    def event(kind: str, group: str = "g") -> dict[str, object]:
        return {"event_type": kind, "attributes": {"group": group}}

    assert not is_settled([event("DELIVERED")], "g")
    assert is_settled([event("DELIVERED"), event("ACKNOWLEDGED")], "g")
    assert not is_settled([event("ACKNOWLEDGED", "h")], "g")
    assert not is_settled([event("DEAD_LETTERED"), event("REDRIVEN")], "g")
    assert is_settled([{"event_type": "EXPIRED", "attributes": {}}], "g")
