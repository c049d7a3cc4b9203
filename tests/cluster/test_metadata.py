"""Topics behave like one object, whichever nodes are asked, while their coordinator dies."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Callable

from tests.check.history import History
from tests.check.metadatacheck import check
from tests.cluster.processes import Answer, Cluster, Node, eventually

CLIENTS, TOPICS = 6, 2
ROUND_S = 1.5
KILLS = 2
ACTIONS = ("create", "alter", "alter", "describe", "describe", "describe", "delete")
OUTCOMES = {200: "ok", 201: "ok", 404: "absent", 409: "exists"}


class TopicClient(threading.Thread):
    """Asks one random thing of one random node after the other, until told to stop."""

    def __init__(
        self, number: int, cluster: Cluster, history: History, lock: threading.Lock
    ) -> None:
        super().__init__(name=f"client-{number}")
        self._rng = random.Random(number)
        self._cluster = cluster
        self._history = history
        self._lock = lock
        self.stopped = threading.Event()

    def run(self) -> None:
        op = 0
        while not self.stopped.is_set():
            op += 1
            self._call(int(self.name[-1]) * 1_000_000 + op)

    def _call(self, op: int) -> None:
        action = self._rng.choice(ACTIONS)
        topic = f"topic-{self._rng.randrange(TOPICS)}"
        node = self._rng.choice(self._cluster.nodes)
        with self._lock:
            self._history.add("call", op=op, client=self.name, action=action, topic=topic, value=op)
        try:
            answer = self._ask(node, action, topic, op)
        except ConnectionRefusedError:
            outcome, value = "unsent", None
            self.stopped.wait(0.05)
        except (OSError, http.client.HTTPException):
            outcome, value = "unknown", None
            self.stopped.wait(0.05)
        else:
            outcome, value = self._outcome(action, answer)
        with self._lock:
            self._history.add("answered", op=op, outcome=outcome, value=value)

    def _ask(self, node: Node, action: str, topic: str, op: int) -> Answer:
        match action:
            case "create":
                body = {"name": topic, "num_partitions": 1, "retention_ms": op}
                return node.ask("POST", "/topics", body, timeout_s=10)
            case "alter":
                return node.ask("PATCH", f"/topics/{topic}", {"retention_ms": op}, timeout_s=10)
            case "delete":
                return node.ask("DELETE", f"/topics/{topic}", timeout_s=10)
            case _:
                return node.ask("GET", f"/topics/{topic}", timeout_s=10)

    def _outcome(self, action: str, answer: Answer) -> tuple[str, int | None]:
        outcome = OUTCOMES.get(answer.status, "unknown")
        is_conflict = answer.status == 409 and answer.body["code"] != "topic_exists"
        if is_conflict or (answer.status >= 400 and answer.body["outcome"] != "none"):
            return "unknown", None
        if action != "describe" or outcome != "ok":
            return outcome, None
        if answer.body["stale"]:
            return "unknown", None
        return "ok", int(answer.body["config"]["retention_ms"])


def coordinator(cluster: Cluster) -> Node | None:
    for node in cluster.nodes:
        if node.is_running() and node.is_ready():
            leader = node.ask("GET", "/cluster").body["controller"]
            return cluster.node(leader) if leader else None
    return None


def test_topics_are_linearizable_through_deaths_of_the_cluster_groups_leader(
    start: Callable[..., Cluster],
) -> None:
    cluster, history = start(3, auto_create=False), History()
    lock = threading.Lock()
    clients = [TopicClient(number, cluster, history, lock) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for _ in range(KILLS):
            clients[0].stopped.wait(ROUND_S)
            victim = eventually("a leader", lambda: coordinator(cluster))
            victim.kill()
            clients[0].stopped.wait(ROUND_S)
            victim.start()
            eventually("the killed node is back", victim.is_ready)
    finally:
        for client in clients:
            client.stopped.set()
        for client in clients:
            client.join(30)

    verdict = check(history)

    known = verdict.calls - verdict.unknown
    changed = [event for event in history if event.get("outcome") == "ok"]
    print(f"calls {verdict.calls}, of unknown end {verdict.unknown}, done {len(changed)}")
    assert list(verdict.lines()) == []
    assert known >= 100
    assert len(changed) >= 50
