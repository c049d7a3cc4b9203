"""A cluster with something of everything: what the console has to show, hostile text included."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any

from tests.cluster.processes import Cluster, Node, eventually

HOSTILE = "</pre><script>alert('x')</script><img src=x onerror=alert(1)>\u202e\u0000\"'&{{7*7}}"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the interesting things are."""

    storied: str
    """A message with a long timeline."""
    dead: str
    """A message that is dead for the group `fraud`."""
    hostile: str

    def paths(self) -> dict[str, str]:
        """Every page, by the name of its picture."""
        return {
            "cluster": "/ui",
            "topics": "/ui/topics",
            "topic": "/ui/topics/orders",
            "messages": "/ui/topics/orders/messages?partition=0&offset=0",
            "delayed": "/ui/topics/orders/delayed",
            "groups": "/ui/groups",
            "group": "/ui/groups/billing",
            "search": "/ui/messages",
            "search-none": "/ui/messages?q=nowhere",
            "message": f"/ui/messages/{self.storied}",
            "message-dead": f"/ui/messages/{self.dead}",
            "message-hostile": f"/ui/messages/{self.hostile}",
            "dead": "/ui/dead",
            "dead-letters": "/ui/dead/fraud/orders",
            "error": "/ui/topics/no-such-topic",
        }


def ok(node: Node, method: str, path: str, body: Any = None) -> Any:
    answer = node.ask(method, path, body)
    assert answer.status < 300, f"{method} {path}: {answer.status} {answer.content[:300]!r}"
    return answer.body


def make_scene(cluster: Cluster) -> Scene:
    node = cluster.nodes[0]
    for name, settings in (
        ("orders", {"partitions": 3}),
        ("emails", {"partitions": 2, "ttl": "1h"}),
        ("customers", {"partitions": 2, "cleanup": "compact"}),
        ("audit.events-of-a-topic-with-a-rather-long-name", {"partitions": 1}),
    ):
        ok(node, "POST", "/v1/topics", {"name": name, **settings})
    _messages(node)
    storied = _story(node)
    dead = _dead(node)
    _members(node)
    hostile = _publish(
        node,
        "orders",
        {
            "value": HOSTILE,
            "key": HOSTILE,
            "partition": 1,
            "headers": {"x-note": HOSTILE, "traceparent": TRACEPARENT},
            "message_id": "order-<b>42</b>",
        },
    )
    return Scene(storied, dead, hostile)


def _publish(node: Node, topic: str, message: dict[str, Any]) -> str:
    told = ok(node, "POST", f"/v1/topics/{topic}/messages", {"messages": [message]})["results"][0]
    return f"{topic}:{told['partition']}:{told['offset']}"


def _messages(node: Node) -> None:
    lanes = ("critical", "high", "normal", "low", "background")
    orders: list[dict[str, Any]] = [
        {
            "value": json.dumps(
                {"order": n, "customer": f"c-{n % 7}", "items": [{"sku": f"A{n}"}], "paid": True}
            ),
            "key": f"c-{n % 7}",
            "priority": lanes[n % 5],
            "partition": n % 3,
            "headers": {"source": "shop", "attempt": str(n % 2)},
        }
        for n in range(90)
    ]
    orders.append(
        {
            "value": base64.b64encode(bytes(range(256)) * 4).decode(),
            "value_encoding": "base64",
            "partition": 0,
        }
    )
    orders.append({"value": "a plain line of text, as people write them", "partition": 0})
    orders.append({"value": "x" * 9000, "partition": 0})
    orders += [
        {"value": f"reminder {n}", "key": f"c-{n}", "delay": f"{n + 2}h", "partition": n % 3}
        for n in range(8)
    ]
    ok(node, "POST", "/v1/topics/orders/messages", {"messages": orders})
    ok(
        node,
        "POST",
        "/v1/topics/emails/messages",
        {"messages": [{"value": f"mail {n}"} for n in range(40)]},
    )
    ok(
        node,
        "POST",
        "/v1/topics/customers/messages",
        {"messages": [{"key": f"c-{n % 4}", "value": f"{n}"} for n in range(12)]},
    )


def _receive(node: Node, group: str, **fields: Any) -> list[Any]:
    told: list[Any] = ok(node, "POST", f"/v1/groups/{group}/receive", {"wait": "5s", **fields})[
        "messages"
    ]
    return told


def _story(node: Node) -> str:
    """Delayed, delivered, let expire, delivered again, failed with a backoff, extended, done; dead
    and back for another group."""
    ok(node, "POST", "/v1/topics", {"name": "payments", "partitions": 1})
    id = _publish(
        node,
        "payments",
        {
            "value": '{"amount":1200,"currency":"EUR"}',
            "key": "c-7",
            "delay": "400ms",
            "priority": "high",
            "message_id": "payment-7",
            "headers": {"traceparent": TRACEPARENT},
        },
    )
    take: dict[str, Any] = {"topic": "payments", "limit": 1}
    assert _receive(node, "settlement", **take, visibility_timeout="300ms")
    again = _receive(node, "settlement", **take)[0]
    ok(
        node,
        "POST",
        "/v1/groups/settlement/nack",
        {"receipt": again["receipt"], "reason": "the bank does not answer", "delay": "250ms"},
    )
    last = _receive(node, "settlement", **take)[0]
    ok(
        node,
        "POST",
        "/v1/groups/settlement/extend",
        {"receipt": last["receipt"], "visibility_timeout": "60s"},
    )
    ok(node, "POST", "/v1/groups/settlement/ack", {"receipt": last["receipt"]})
    first = _receive(node, "ledger", **take)[0]
    ok(
        node,
        "POST",
        "/v1/groups/ledger/reject",
        {"receipt": first["receipt"], "reason": "no such account"},
    )
    ok(node, "POST", "/v1/groups/ledger/dlq/redrive", {"topic": "payments"})
    held = _receive(node, "ledger", **take)[0]
    assert held["id"] == id
    return id


def _dead(node: Node) -> str:
    reasons = ("schema: field 'paid' is missing", "downstream 503", HOSTILE[:60])
    found: list[Any] = []
    for message in _receive(node, "fraud", topic="orders", limit=24):
        reason = reasons[len(found) % 3]
        ok(
            node,
            "POST",
            "/v1/groups/fraud/reject",
            {"receipt": message["receipt"], "reason": reason},
        )
        found.append(message)
    _receive(node, "fraud", topic="orders", limit=5)
    for message in _receive(node, "mailer", topic="emails", limit=30)[:20]:
        ok(node, "POST", "/v1/groups/mailer/ack", {"receipt": message["receipt"]})
    return str(found[0]["id"])


def _members(node: Node) -> None:
    """Three join one after the other, one leaves: rebalances with pauses."""
    names: list[str] = []
    for n in range(3):
        told = ok(
            node,
            "POST",
            "/v1/groups/billing/join",
            {"topics": ["orders"], "client_id": f"billing-{n + 1}"},
        )
        names.append(told["member_id"])
        for name in names:
            eventually("it is settled", lambda name=name: _settled(node, name))  # type: ignore[misc]
    ok(node, "POST", "/v1/groups/billing/leave", {"member_id": names[0]})
    for name in names[1:]:
        eventually("it is settled", lambda name=name: _settled(node, name))  # type: ignore[misc]


def _settled(node: Node, member: str) -> bool:
    told = ok(node, "POST", "/v1/groups/billing/heartbeat", {"member_id": member})
    return str(told.get("state")) == "stable"


def keep_publishing(node: Node, seconds: float, rate: int = 40) -> None:
    """Something for rates to show, to one who looks."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ok(node, "GET", "/ui/data/topics/orders")
        ok(
            node,
            "POST",
            "/v1/topics/orders/messages",
            {"messages": [{"value": "tick"}] * (rate // 4)},
        )
        time.sleep(0.25)
