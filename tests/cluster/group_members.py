"""A member of a group over plain HTTP, as tests play it: it does only what it is told."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.cluster.processes import Answer, Cluster, Node

Place = tuple[str, int]
BEAT_S = 0.2


def ok(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.content
    body: dict[str, Any] = answer.body
    return body


def places(rows: Iterable[dict[str, Any]]) -> list[Place]:
    return [(row["topic"], row["partition"]) for row in rows]


def rows(found: Iterable[Place]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in found]


class Member:
    """What it was told last, and what it can ask. Each request goes to the next node that runs."""

    def __init__(self, cluster: Cluster, group: str, name: str) -> None:
        self.cluster = cluster
        self.group = group
        self.name = name
        self.id = ""
        self.generation = 0
        self.assigned: list[Place] = []
        self.revoking: list[Place] = []
        self._turn = 0

    def join(self, topics: Sequence[str], **how: Any) -> dict[str, Any]:
        """As a member that says itself when it has let go."""
        body = {"client_id": self.name, "topics": list(topics), "lets_go": True, "wait": 0, **how}
        told = ok(self.ask("POST", "join", body))
        self.id, self.generation = told["member_id"], told["generation"]
        self.assigned, self.revoking = places(told["assignment"]), []
        return told

    def hear(self, **what: Any) -> dict[str, Any]:
        """A heartbeat, and what it tells."""
        told = ok(self.ask("POST", "heartbeat", {"member_id": self.id, **what}))
        self.generation = told["generation"]
        self.assigned, self.revoking = places(told["assignment"]), places(told["revoking"])
        return told

    def let_go(self, found: Iterable[Place]) -> dict[str, Any]:
        return self.hear(let_go=rows(found))

    def leave(self) -> None:
        ok(self.ask("POST", "leave", {"member_id": self.id}))

    def receive(
        self, found: Sequence[Place] | None = None, limit: int = 100, wait: str = "0s"
    ) -> Answer:
        """From what it has, as far as it knows."""
        body = {
            "member": self.id,
            "generation": self.generation,
            "assignment": rows(self.assigned if found is None else found),
            "limit": limit,
            "wait": wait,
        }
        return self.ask("POST", "receive", body)

    def settle(self, messages: Sequence[dict[str, Any]], action: str = "ack") -> Answer:
        """By receipt alone, as everybody does."""
        return self.ask(
            "POST",
            "settle",
            {"settles": [{"receipt": one["receipt"], "action": action} for one in messages]},
        )

    def ask(self, method: str, what: str, body: object = None, **how: Any) -> Answer:
        """About the group."""
        path = f"/groups/{self.group}/{what}" if what else f"/groups/{self.group}"
        return self.node().ask(method, path, body, **how)

    def node(self) -> Node:
        running = [node for node in self.cluster.nodes if node.is_running()]
        self._turn += 1
        return running[self._turn % len(running)]


class Pulse:
    """Heartbeats of members whose sessions are short, in the background; a context."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._alive: dict[str, str] = {}
        """Group, by member."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def keep(self, member: Member) -> None:
        self._alive[member.id] = member.group

    def drop(self, member: Member) -> None:
        """It is silent from now on."""
        self._alive.pop(member.id, None)

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_S):
            for id, group in list(self._alive.items()):
                self._tell(group, id)

    def _tell(self, group: str, id: str) -> None:
        for node in [node for node in self._cluster.nodes if node.is_running()]:
            try:
                node.ask("POST", f"/groups/{group}/heartbeat", {"member_id": id}, timeout_s=2)
            except (OSError, http.client.HTTPException):
                continue
            return


def soon(what: str, check: Callable[[], object], *, deadline_s: float = 60.0) -> None:
    """Return once `check` does not fail."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            check()
        except (AssertionError, OSError, http.client.HTTPException) as error:
            if time.monotonic() > end:
                raise AssertionError(f"not within {deadline_s} s: {what}") from error
            time.sleep(0.02)
        else:
            return
