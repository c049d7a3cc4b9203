"""The story of one message on three nodes, asked at each step why it is not delivered or not
settled, and told in the end the same by every node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.cluster.conftest import Start
from tests.cluster.processes import ROOT, Cluster, Node, eventually, publish

GROUP = "workers"
DELAY_S = 4
LEASE_S = 4
LONG_LEASE = "60s"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
EVENT = re.compile(r"[├└]─ (\S+)  ([A-Z_]+) *(.*)")
OF = f"group={GROUP}"
EVENTS = [
    ("PUBLISHED", "lane=normal key=customer-42 message_id=order-1"),
    ("DELAYED", ""),
    ("DUE", ""),
    ("DELIVERED", f"{OF} consumer=worker-1 attempt=1"),
    ("REDELIVERED", f"{OF} attempt=1 reason=visibility_timeout"),
    ("DELIVERED", f"{OF} consumer=worker-2 attempt=2"),
    ("ACKNOWLEDGED", f"{OF} consumer=worker-2 attempt=2"),
    ("RETAINED", ""),
]
"""Besides REPLICATED, which is told where its time is."""


class Story:
    """What is done to the message, and what any node says of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.id = ""
        self.receipt = ""
        self.former = ""
        """The leader that was killed."""

    @property
    def running(self) -> list[Node]:
        return [node for node in self.cluster.nodes if node.is_running()]

    def receive(self, consumer: str, visibility: str | None = None) -> dict[str, Any]:
        """The message, once it comes, as any node hands it out."""
        body = {"topic": "orders", "member": consumer, "wait": "20s", "limit": 1}
        answer = self.running[0].ask(
            "POST",
            f"/groups/{GROUP}/receive",
            body | ({"visibility": visibility} if visibility else {}),
        )
        assert answer.status == 200, answer.content
        (message,) = answer.body["messages"]
        self.receipt = message["receipt"]
        found: dict[str, Any] = message
        return found

    def why(self, node: Node) -> dict[str, Any]:
        """What holds for the group."""
        answer = node.ask("GET", f"/v1/messages/{self.id}/why?group={GROUP}")
        assert answer.status == 200, answer.content
        (group,) = answer.body["groups"]
        assert group["group"] == GROUP
        return {**group, "leader": answer.body["leader"], "as_of": answer.body["as_of"]}

    def all_say(self, state: str, *codes: str) -> dict[str, Any]:
        """Every running node tells these reasons in this order; what the last one said."""
        said = [self.why(node) for node in self.running]
        for one in said:
            assert (one["state"], [r["code"] for r in one["reasons"]]) == (state, list(codes)), said
        return said[-1]

    def cli(self, node: Node, *words: str) -> str:
        """What `goqueue-cli` prints."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GOQUEUE_")}
        done = subprocess.run(
            [sys.executable, "-m", "cli", "--server", node.url, "trace", *words],
            cwd=ROOT,
            env=environment | {"NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def story(start: Start) -> Story:
    cluster = start(3, auto_create=False)
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 3}
    assert cluster[0].ask("POST", "/topics", topic).status == 201
    settings = {"visibility_timeout": f"{LEASE_S}s", "max_attempts": 5}
    assert cluster[0].ask("PUT", f"/groups/{GROUP}", settings).status in (200, 201)
    eventually("all know the topic", lambda: all(_knows(node) for node in cluster.nodes))
    return Story(cluster)


def _knows(node: Node) -> bool:
    asked = [node.ask("GET", path).status for path in ("/topics/orders", f"/groups/{GROUP}")]
    return asked == [200, 200]


def test_a_messages_story_is_told_at_each_step_and_in_the_end_by_every_node_alike(
    story: Story,
) -> None:
    cluster = story.cluster

    message: dict[str, object] = {"value": "v", "key": "customer-42", "delay": f"{DELAY_S}s"}
    (published,) = publish(cluster[1], "orders", [message | {"message_id": "order-1"}])
    story.id = f"orders:0:{published['offset']}"
    told = story.all_say("delayed", "delayed", "not_begun")
    due = told["reasons"][0]["until"]
    assert (told["deliverable"], told["eta"]) == (False, None)

    taken = story.receive("worker-1")
    told = story.all_say("in_flight", "in_flight")
    flying = told["reasons"][0]
    assert flying["attributes"]["consumer"] == "worker-1"
    assert (flying["attributes"]["attempt"], flying["until"]) == (1, taken["visible_until"])
    assert (told["eta"], told["eta_by"]) == (flying["until"], "lease")
    assert told["as_of"] >= due

    eventually("the lease is over", lambda: story.why(cluster[2])["state"] == "retrying")
    granted_by = told["leader"]
    told = story.all_say("retrying", "not_asked")
    assert (told["deliverable"], told["attempts"]) == (True, 1)
    asked_by = told["reasons"][0]["attributes"].get("asked_by")
    assert asked_by == ("worker-1" if told["leader"] == granted_by else None)

    again = story.receive("worker-2", LONG_LEASE)
    assert (again["id"], again["attempt"]) == (taken["id"], 2)
    told = story.all_say("in_flight", "in_flight")
    assert told["reasons"][0]["attributes"]["consumer"] == "worker-2"

    former = cluster.leader("orders")
    assert told["leader"] == former.id
    story.former = former.id
    former.kill()
    for node in story.running:
        said = story.why(node)
        decisive = said["reasons"][0]["code"]
        assert decisive == ("no_leader" if said["leader"] is None else "in_flight")
    eventually("another leads", lambda: story.why(story.running[0])["leader"])
    told = story.all_say("in_flight", "in_flight")
    assert told["leader"] not in (None, former.id)
    assert told["reasons"][0]["attributes"]["consumer"] == "worker-2"
    assert told["reasons"][0]["until"] == again["visible_until"]

    settles = {"settles": [{"receipt": story.receipt, "action": "ack"}]}
    acked = story.running[0].ask("POST", f"/groups/{GROUP}/settle", settles)
    assert acked.status == 200, acked.content
    told = story.all_say("acked", "acked")
    assert told["eta_text"] == ""
    ending = told["reasons"][0]["attributes"]
    assert (ending["consumer"], ending["attempt"]) == ("worker-2", 2)

    former.start()
    cluster.wait_until_ready()
    check_the_end(story)


def check_the_end(story: Story) -> None:
    """The printed timeline is complete, in order, and the same from every node."""
    printed = [story.cli(node, story.id) for node in story.cluster.nodes]
    assert len(set(printed)) == 1, printed
    lines = printed[0].splitlines()
    told = [found.groups() for found in map(EVENT.fullmatch, lines) if found]
    times = [time for time, _, _ in told]
    assert times == sorted(times)
    (replicated,) = [at for at, (_, name, _) in enumerate(told) if name == "REPLICATED"]
    assert replicated in (1, 2), "at once, be it in the same millisecond"
    holders = set(re.findall(r"node-\d", told.pop(replicated)[2]))
    assert story.former in holders
    assert len(holders) >= 2
    assert [name for _, name, _ in told] == [name for name, _ in EVENTS], printed[0]
    for (_, name, facts), (_, expected) in zip(told, EVENTS, strict=True):
        assert set(expected.split()) <= set(facts.split()), (name, facts)
    assert "Delivery Attempts: 2" in lines
    whys: set[str] = set()

    def agree() -> bool:
        """The leadership goes back to who came back: they name the same leader but at that time."""
        whys.clear()
        whys.update(TIME.sub("", story.cli(node, "why", story.id)) for node in story.cluster.nodes)
        return len(whys) == 1

    eventually(lambda: f"all say why alike: {whys}", agree)
    assert f"Group {GROUP}: acked" in whys.pop()
