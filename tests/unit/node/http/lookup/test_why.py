"""`GET /messages/{id}/why`: answers, refusals, and a plain sentence for each reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from delivery.lookup.verdict import Reason, Verdict
from node.http.lookup.why_texts import _TEXTS, estimate_text, reason_text

T_MS = 1_736_937_000_000
T = "2025-01-15T10:30:00.000Z"
ROOT = Path(__file__).resolve().parents[5]


async def test_a_message_is_told_with_codes_texts_and_times(client, put):
    await put(b"v")
    await client.post("/groups/workers/receive", {"topic": "orders", "limit": 1})

    told = (await client.get("/v1/messages/orders:0:0/why?group=workers")).json

    assert (told["id"], told["leader"], told["more"]) == ("orders:0:0", "node-1", 0)
    (group,) = told["groups"]
    (reason,) = group["reasons"]
    assert (group["group"], group["state"], group["deliverable"]) == ("workers", "in_flight", False)
    assert reason["code"] == "in_flight"
    assert reason["until"] in reason["text"]
    assert told == (await client.get("/messages/orders:0:0/why")).json


async def test_an_offset_beyond_the_end_is_an_answer(client, orders):
    told = (await client.get("/messages/orders:0:9/why")).json

    assert told["state"] == "unpublished"
    assert [reason["code"] for reason in told["reasons"]] == ["not_published"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/messages/orders:0/why", 400, "bad_request"),
        ("/messages/orders:0:-1/why", 400, "bad_request"),
        ("/messages/orders:0:0/why?group=..%2F", 400, "invalid_name"),
        ("/messages/nope:0:0/why", 404, "unknown_topic"),
        ("/messages/orders:99:0/why", 404, "unknown_partition"),
        ("/messages/orders:0:0/why?group=nobody", 404, "unknown_group"),
        ("/messages/order-7/why?topic=orders", 404, "not_found"),
    ],
)
async def test_what_is_not_there_or_not_meant_is_refused(client, orders, path, status, code):
    answer = await client.get(path)

    assert (answer.status, answer.json["code"]) == (status, code)


def test_every_reason_that_is_given_has_its_sentence() -> None:
    folders = (ROOT / "delivery", ROOT / "node")
    sources = [path for folder in folders for path in folder.rglob("*why*.py")]
    sources.append(ROOT / "node/broker/traces.py")
    given = {
        code for path in sources for code in re.findall(r'Reason\(\s*"(\w+)"', path.read_text())
    }
    endings = {"acked", "purged", "skipped", "cancelled", "expired"}

    assert len(given) > 15
    assert given | endings == set(_TEXTS)


SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("no_leader", {"reachable": 1, "replicas": 3}, "1 of 3 replicas can be reached from here"),
    ("no_leader", {"reachable": 0, "replicas": 1, "elsewhere": True}, "knows nothing of the mess"),
    ("gone", {"log_start": 5}, "the log begins at offset 5"),
    ("below_beginning", {"begins": 5}, "group g begins at offset 5 here"),
    ("in_flight", {"consumer": "c", "attempt": 2, "since_ms": T_MS}, f"consumer c since {T}, att"),
    (
        "in_flight",
        {"consumer": "", "attempt": 1, "over": True},
        "a consumer, attempt 1: its lease en",
    ),
    ("last_attempt", {"attempts": 3}, "the last of 3 attempts: if"),
    ("last_attempt", {"attempts": 1}, "the only attempt: if"),
    (
        "dead",
        {"reason": "bad", "attempts": 3, "since_ms": T_MS, "redrives": 0, "redrive": "yes"},
        f"a dead letter since {T}, 3 attempts: bad; can be redriven",
    ),
    (
        "dead",
        {"reason": "", "attempts": 1, "since_ms": T_MS, "redrives": 0, "redrive": "yes"},
        "1 attempt; can be redriven",
    ),
    ("acked", {"at_ms": T_MS, "consumer": "c", "attempt": 2}, f"at {T} by consumer c, attempt 2"),
    ("acked", {"at_ms": T_MS, "committed_offset": 9}, "by a commit of offset 9"),
    ("skipped", {"at_ms": T_MS, "to_offset": 9}, "was set to offset 9"),
    ("delayed", {}, f"delayed until {T}"),
    ("delayed", {"over": True}, "the next entry makes it ready"),
    ("expires_first", {"expires_ms": T_MS}, f"it expires before that, at {T}"),
    ("halted", {"reason": "stop"}, "halted in this partition: stop"),
    ("key_parked", {"poisoned": True, "failed": 0, "reason": "bad"}, "failed for good (bad)"),
    (
        "key_held",
        {"offset": 3, "place": "leased", "consumer": "c", "visible_until_ms": T_MS, "ahead": 2},
        f"held by offset 3, in flight at consumer c until {T}; 2 of its key come before it",
    ),
    (
        "key_held",
        {"offset": 3, "place": "waiting", "backoff_until_ms": T_MS, "ahead": 1},
        f"which waits after a failure until {T}",
    ),
    ("key_held", {"offset": 3, "place": "ready"}, "held by offset 3, which is ready"),
    ("key_held", {"offset": 3, "place": "withheld"}, "held by offset 3, which is parked"),
    ("backoff", {"failed": 2, "reason": "db"}, f"attempt 2 failed (db): it waits until {T}"),
    ("unreadable", {}, f"damage is being mended; it is set aside until {T}"),
    ("unreadable", {"mended": True}, f"and can be now; it is set aside until {T}"),
    ("backoff", {"failed": 0}, f"given back: it waits until {T}"),
    (
        "no_owner",
        {"members": 2, "generation": 3, "moving": "handing", "former": "a", "successor": "b"},
        "hands it over from a to b",
    ),
    ("no_owner", {"members": 0, "generation": 3, "former": "a"}, "it was a's, which is no member"),
    ("no_owner", {"members": 1, "generation": 0}, "the group has 1 member, and is rebalancing"),
    (
        "in_flight_limit",
        {"in_flight": 9, "limit": 10},
        "9 messages are in flight here, of at most",
    ),
    (
        "lane",
        {
            "lane": "low",
            "ahead": 3,
            "lanes": {"high": 3},
            "share": 5,
            "aging_ms": T_MS,
            "latest_ms": T_MS,
        },
        f"behind 3 messages of higher lanes (3 high): from {T} on",
    ),
    ("behind", {"lane": "low", "ahead": 3}, "behind 3 messages of its own lane, low"),
    ("behind", {"lane": "low", "ahead": 1}, "behind 1 message of its own lane, low"),
    ("not_asked", {"members": 0}, "group g has no members, and nobody has asked"),
    ("not_asked", {"members": 1, "asked_ms": T_MS, "asked_by": "c"}, f"asked last at {T}, c"),
    ("owned", {"consumer": "c", "generation": 1}, "consumer c's: nobody else may receive it"),
    (
        "owned",
        {"consumer": "c", "generation": 1, "revoking": True, "successor": "d"},
        "asked to let go, for it moves to d",
    ),
    ("kept", {"by": "compaction", "log_start": 4}, "kept as the last of its key"),
    ("kept", {"by": "retention", "log_start": 4}, "outlived retention"),
]


@pytest.mark.parametrize(("code", "facts", "sentence"), SENTENCES)
def test_a_reason_is_told_in_a_plain_sentence(
    code: str, facts: dict[str, Any], sentence: str
) -> None:
    told = reason_text(Reason(code, T_MS, facts), "g")

    assert sentence in told
    assert not told.endswith(".")
    assert "  " not in told


def test_an_estimate_is_told_with_what_it_rests_on_or_that_there_is_none() -> None:
    assert estimate_text(Verdict("in_flight", [], eta_ms=T_MS, eta_by="lease")).startswith(
        f"delivered again from {T} on"
    )
    assert estimate_text(Verdict("ready", [])).startswith("no estimate")
    assert estimate_text(Verdict("acked", [])) == ""


def test_a_lease_without_a_deadline_ends_with_its_stream() -> None:
    stream = {"consumer": "c", "attempt": 1, "stream": "7f-3"}
    held = {"offset": 3, "place": "leased", "consumer": "c"}

    assert reason_text(Reason("in_flight", 0, stream), "g").endswith("ends with its stream 7f-3")
    assert reason_text(Reason("key_held", 0, held), "g").endswith("in flight at consumer c")
