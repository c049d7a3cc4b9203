"""Load of every kind on three nodes, so that every figure that can move does.

Publishers and consumers go on in threads of their own until they are told to stop; what happens
once (a move, a compaction, a node killed and started again) is told by name, in order.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from typing import Any

from tests.cluster.group_members import Member, Pulse, soon
from tests.cluster.processes import Answer, Cluster, Node, eventually

TOPIC, COMPACTED, MOVED, SHORT, QUIET = "orders", "prices", "moved", "short", "quiet"
ARCHIVED = "archived"
CREW, SLOW, HALTED, KEYED = "billing", "audit", "strict", "keyed"
LANES = ("critical", "high", "normal", "low", "background")
BROKEN = (OSError, http.client.HTTPException)
SETTINGS = (
    "storage.segmentBytes=64KiB",
    "storage.retentionCheck=1s",
    "storage.snapshotInterval=2s",
)
SESSION = "3s"
STAYING = ("first", "second")
Json = dict[str, Any]


class Load:
    """A context: everything stops when it is left. `problems` is what should not have happened."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.problems: list[str] = []
        self._over = threading.Event()
        self._pulse = Pulse(cluster)
        self._threads: list[threading.Thread] = []
        self._crew: list[Member] = []
        self._turn = self._asked = 0

    def __enter__(self) -> Load:
        self._set_up()
        self._pulse.__enter__()
        for work in (
            self._publish,
            self._publish_prices,
            self._read,
            self._consume,
            self._receive_without_settling,
            self._fail,
            self._refuse,
            self._wait,
        ):
            self._threads.append(threading.Thread(target=self._again, args=(work,), daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(20)
        self._pulse.__exit__()

    # what happens once

    def change_members(self) -> None:
        """Two stay, one leaves, and one falls silent with messages in hand."""
        self._crew = self._crew or [self._member(name) for name in STAYING]
        leaver, silent = self._member("third"), self._member("fourth")
        eventually("the one that will be silent has messages", lambda: self._takes(silent))
        soon("a member leaves", lambda: self._leave(leaver))
        eventually("both are gone", lambda: self._members() <= {member.id for member in self._crew})

    def once_more(self) -> None:
        """What people do now and then."""
        self.look_up()
        self.cancel_delayed()
        self.redrive()
        self.purge()
        self.replay()
        self.commit()
        self.let_go_on()

    def redrive(self) -> None:
        """What is dead is tried again, and what is dead then is forgotten."""
        self.ask("POST", f"/groups/{CREW}/dlq/redrive", {"topic": TOPIC, "force": True})

    def purge(self) -> None:
        self.ask("POST", f"/groups/{CREW}/dlq/purge", {"topic": TOPIC})

    def replay(self) -> None:
        """The slow group goes on from the beginning."""
        self.ask("POST", f"/groups/{SLOW}/seek", {"topic": TOPIC, "to": "earliest"})

    def commit(self) -> None:
        """A position of a client that commits, as Kafka's do."""
        self.ask("POST", f"/groups/{SLOW}/commit", {"topic": TOPIC, "offsets": {"1": 2}})
        self.ask("POST", f"/groups/{SLOW}/offsets", {"offsets": {TOPIC: {"2": 3}}})

    def let_go_on(self) -> None:
        self.ask("POST", f"/groups/{HALTED}/resume", {"topic": TOPIC})

    def cancel_delayed(self) -> None:
        found = self.ask("GET", f"/topics/{TOPIC}/delayed?limit=5")["messages"]
        for one in found:
            self.try_ask("DELETE", f"/topics/{TOPIC}/delayed/{one['partition']}/{one['offset']}")

    def compact(self) -> None:
        self.ask("POST", f"/topics/{COMPACTED}/compaction", {})

    def archive(self) -> None:
        """One of two messages is archived."""
        for value in ("first", "second"):
            self.ask("POST", f"/topics/{ARCHIVED}/messages", {"value": value})
        report = {"archive": "s3://bucket/archive", "positions": {"0": 1}}
        self.ask("POST", f"/topics/{ARCHIVED}/archived", report)

    def scrub(self) -> None:
        self.ask("POST", "/admin/scrub")

    def look_up(self) -> None:
        """A message's timeline, and where groups stand."""
        self.ask("GET", f"/messages/{TOPIC}:0:0/timeline")
        self.try_ask("GET", f"/messages/{TOPIC}:0:999999999/timeline")
        self.ask("GET", f"/groups/{CREW}/lag")

    def move(self) -> None:
        """Partitions go round: each replica to the next node, and there in the end."""
        for _ in range(2):
            self._rotate()
            self._until_moved()

    def kill_and_restart(self, seen: Callable[[], bool]) -> None:
        """A node that leads something dies, partitions are to go there meanwhile, whoever watches
        misses it, and it comes back."""
        node = self.cluster.leader(TOPIC)
        node.kill()
        self._rotate()
        eventually(f"{node.id} is missed", seen, deadline_s=20)
        node.start()
        self.cluster.wait_until_ready()
        self._until_moved()

    # what goes on all the time

    def _publish(self) -> None:
        """Ten messages over all keys and lanes; some due later, some expire, some are repeats."""
        self._turn += 1
        turn = self._turn
        messages: list[Json] = [
            {
                "key": f"key-{number}",
                "value": f"{turn}-{number}" + "." * 400,
                "priority": LANES[number % len(LANES)],
                "headers": {"from": "load"},
            }
            for number in range(10)
        ]
        messages[0]["delay"] = "300ms"
        messages[1]["delay"] = "1h" if turn % 10 == 0 else "700ms"
        messages[2]["ttl"] = "1s"
        messages[3]["message_id"] = f"id-{turn // 2}"
        self.ask("POST", f"/topics/{TOPIC}/messages", {"messages": messages})
        self._over.wait(0.05)

    def _publish_prices(self) -> None:
        """Few keys, so that most of it is superseded, and what retention takes at once."""
        rows = [{"key": f"k{n % 3}", "value": "x" * 2000} for n in range(20)]
        self.ask("POST", f"/topics/{COMPACTED}/messages", {"messages": rows})
        plain = [{"value": "x" * 2000} for _ in range(20)]
        self.ask("POST", f"/topics/{SHORT}/messages", {"messages": plain})
        self.ask("POST", f"/topics/{MOVED}/messages", {"messages": plain[:2]})
        self._over.wait(0.3)

    def _read(self) -> None:
        self.ask("GET", f"/topics/{TOPIC}/partitions/0/messages?offset=0&limit=100")
        self._over.wait(0.2)

    def _consume(self) -> None:
        """Members take what they own and settle it each way; who was lost joins again."""
        for member in self._crew:
            if member.id not in self._members():
                self._pulse.drop(member)
                self._join(member)
            member.hear()
            answer = member.receive(limit=60, wait="200ms")
            if answer.status == 200:
                self._settle(CREW, answer.body["messages"])
        self._over.wait(0.05)

    def _receive_without_settling(self) -> None:
        """The slow group: leases run out, a few are acked, and it falls behind."""
        body = {"topic": TOPIC, "limit": 20, "visibility": "300ms", "wait": "100ms"}
        found = self.ask("POST", f"/groups/{SLOW}/receive", body)["messages"]
        self._settle_all(SLOW, [(one, "ack") for one in found[:2]])
        self.ask("POST", f"/groups/{KEYED}/receive", {"topic": TOPIC, "limit": 5})
        self._over.wait(0.4)

    def _fail(self) -> None:
        """A group whose work always fails halts, is let go on, and halts again."""
        answer = self.try_ask("POST", f"/groups/{HALTED}/receive", {"topic": TOPIC, "limit": 50})
        if answer is not None and answer.status == 200:
            self._settle_all(HALTED, [(one, "reject") for one in answer.body["messages"]])
        self._over.wait(0.5)

    def _refuse(self) -> None:
        """Mistakes of clients, each with its code."""
        self.try_ask("POST", f"/topics/{TOPIC}/messages", {"value": "x", "delay": "9000h"})
        self.try_ask("POST", "/topics/-bad-/messages", {"value": "x"})
        self.try_ask("POST", f"/topics/{SHORT}/messages", {"value": "x" * 20_000})
        self.try_ask("POST", f"/topics/{QUIET}/messages", {"value": "x", "delay": "1h"})
        self._over.wait(1)

    def _wait(self) -> None:
        """For messages that do not come."""
        body = {"topic": QUIET, "limit": 1, "wait": "3s"}
        self.try_ask("POST", f"/groups/{SLOW}/receive", body)

    # beneath

    def ask(self, method: str, path: str, body: object = None) -> Json:
        """Of any node that answers well within 20 s. Who waits in vain is told the last answer."""
        last: Answer | None = None

        def answered() -> Answer | None:
            nonlocal last
            last = self.try_ask(method, path, body)
            return last if last is not None and last.status < 300 else None

        answer = eventually(lambda: f"{method} {path}; last: {last or 'no answer'}", answered)
        found: Json = answer.body
        return found

    def try_ask(self, method: str, path: str, body: object = None) -> Answer | None:
        running = [node for node in self.cluster.nodes if node.is_running()]
        self._asked += 1
        node: Node = running[self._asked % len(running)]
        try:
            return node.ask(method, path, body, timeout_s=8)
        except BROKEN:
            return None

    def _set_up(self) -> None:
        for name, settings in {
            TOPIC: {"num_partitions": 6},
            COMPACTED: {"num_partitions": 1, "cleanup": "compact"},
            MOVED: {"num_partitions": 4, "replication_factor": 2},
            QUIET: {"num_partitions": 1, "delayed_max": 1},
            SHORT: {"num_partitions": 1, "retention_bytes": 200_000, "max_message_bytes": 10_000},
            ARCHIVED: {"num_partitions": 1, "require_archive": True},
        }.items():
            self.ask("POST", "/topics", {"name": name, **settings})
        self.archive()
        for name, settings in {
            CREW: {"visibility_timeout": "2s", "max_attempts": 2, "session_timeout": SESSION},
            SLOW: {"max_attempts": 0, "start": "earliest"},
            HALTED: {"halt_percent": 20, "halt_window": 20},
            KEYED: {"ordering": "key"},
        }.items():
            self.ask("PUT", f"/groups/{name}", settings)
        self.ask("POST", f"/groups/{SLOW}/receive", {"topic": SHORT, "limit": 1})
        every = {"name": "tick", "topic": TOPIC, "every": "1s", "value": "tick"}
        self.ask("POST", "/schedules", every)

    def _rotate(self) -> None:
        names = [node.id for node in self.cluster.nodes]
        after = {name: names[(at + 1) % len(names)] for at, name in enumerate(names)}
        rows = self.ask("GET", f"/topics/{MOVED}/partitions")["partitions"]
        wanted = [
            {
                "topic": MOVED,
                "partition": number,
                "new_replicas": [after[name] for name in row["replicas"]],
            }
            for number, row in enumerate(rows)
        ]
        self.ask("POST", "/admin/reassignment", {"partitions": wanted})

    def _until_moved(self) -> None:
        eventually(
            "the replicas have moved",
            lambda: not self.ask("GET", "/admin/reassignment?running=true")["count"],
            deadline_s=30,
        )

    def _member(self, name: str) -> Member:
        member = Member(self.cluster, CREW, name)
        self._join(member)
        return member

    def _join(self, member: Member) -> None:
        """It lives by its own heartbeats, and only while it is in the crew by the pulse's."""
        soon(
            f"{member.name} joins",
            lambda: member.join([TOPIC], session_timeout=SESSION, lets_go=False, wait="1s"),
        )
        if member.name in STAYING:
            self._pulse.keep(member)

    def _leave(self, member: Member) -> None:
        """Until it is told that it has left. Nobody can tell a member whose leave was carried out
        and its answer lost from one that was taken for dead: whoever is unknown joins again."""
        answer = member.ask("POST", "leave", {"member_id": member.id})
        if answer.status == 404 and answer.body["code"] == "unknown_member":
            self._join(member)
        assert answer.status == 200, answer.content

    def _takes(self, member: Member) -> bool:
        """Whether it has messages in flight now; a heartbeat besides. Who was taken for dead, as
        this machine was slow, joins again."""
        try:
            if member.id not in self._members():
                self._join(member)
            member.hear()
            answer = member.receive(limit=5, wait="200ms")
        except (AssertionError, *BROKEN):
            return False
        return answer.status == 200 and bool(answer.body["messages"])

    def _members(self) -> set[str]:
        return {one["id"] for one in self.ask("GET", f"/groups/{CREW}/members")["members"]}

    def _settle(self, group: str, messages: list[Json]) -> None:
        """Of ten, one each is rejected, failed, kept longer, and forgotten; six are acked."""
        ends = ("reject", "nack", "extend", "")
        chosen = [
            (one, ends[number % 10] if number % 10 < len(ends) else "ack")
            for number, one in enumerate(messages)
        ]
        self._settle_all(group, [(one, action) for one, action in chosen if action])

    def _settle_all(self, group: str, chosen: list[tuple[Json, str]]) -> None:
        if chosen:
            settles = [
                {
                    "receipt": one["receipt"],
                    "action": action,
                    **({"visibility": "1s"} if action == "extend" else {}),
                    **({"reason": "it is load"} if action in ("nack", "reject") else {}),
                }
                for one, action in chosen
            ]
            self.try_ask("POST", f"/groups/{group}/settle", {"settles": settles})

    def _again(self, work: Callable[[], None]) -> None:
        """A node that dies, or is not there yet, breaks connections; nothing else may fail."""
        while not self._over.is_set():
            try:
                work()
            except BROKEN:
                self._over.wait(0.2)
            except AssertionError as error:
                if not self._over.is_set():
                    self.problems.append(f"{work.__name__}: {error}")
                    self._over.wait(0.2)
