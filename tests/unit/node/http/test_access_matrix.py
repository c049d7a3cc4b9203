"""Every operation of the OpenAPI document against everybody who may ask for it, on a whole node.

One table says who passes: an operation that is not in it fails. The table is written by hand, and
not taken from `node.http.auth.policies`: it says what is meant, they say what is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from log.disk.memory import MemoryDisk
from node.http.compat.trace_ids import own_trace_id
from node.http.server.openapi import document
from node.http.server.routes import ROUTES, Route
from tests.unit.node.http.server.test_openapi import (
    BODIES,
    MEMBER,
    PARAMETERS,
    QUERIES,
    RECEIPT,
    deletes_at_the_end_from_inside_out,
)
from tests.unit.node.keyed import Keyed, keyed_node

THEIRS, MINE = "team-b.", "team-a."
"""What there is belongs to the first; keys of the second are strangers to it."""
TOPIC, GROUP, SCHEDULE = THEIRS + "jobs", THEIRS + "workers", THEIRS + "nightly"
SECRET = "what-only-their-keys-may-see"
FALSE_KEY = "root." + "x" * 43
ROLES = {"A": "admin", "P": "producer", "C": "consumer", "R": "readonly"}

MATRIX = """
createTopic             A---    topic
listTopics              APCR    seen
describeTopic           APCR    topic
alterTopic              A---    topic
replaceTopic            A---    topic
deleteTopic             A---    topic
flushTopic              AP--    topic
trimTopic               A---    topic
getCompaction           APCR    topic
runCompaction           A---    topic
compactTopic            A---    topic
describeQueue           APCR    topic
consume                 A-C-    group
ackIds                  A-C-    group
reportArchived          A---    topic
readEvents              A-CR    topic
listPartitions          APCR    topic
publish                 AP--    topic
publishBatch            AP--    topic
publishBase64           AP--    topic
publishRecordBatches    AP--    topic
readPartition           A-CR    topic
readTopic               A-CR    topic
tailTopic               A-CR    topic
findMessages            A-CR    seen
listTraces              A-CR    seen
searchTraces            A-CR    seen
traceStats              A--R    every
getTrace                A-CR    seen
getMessage              A-CR    topic
getTimeline             A-CR    topic
getWhy                  A-CR    topic
initProducer            AP--    topic
producerHeartbeat       AP--    free
ackMessage              A-C-    group
nackMessage             A-C-    group
rejectMessage           A-C-    group
extendVisibility        A-C-    group
listGroups              A-CR    seen
describeGroup           A-CR    group
putGroup                A-C-    group
changeGroup             A-C-    group
deleteGroup             A-C-    group
assignGroup             A---    every
joinGroup               A-C-    group
heartbeat               A-C-    group
leaveGroup              A-C-    group
poll                    A-C-    group
listMembers             A-CR    group
getAssignment           A-CR    group
joinCooperative         A-C-    group
heartbeatCooperative    A-C-    group
leaveCooperative        A-C-    group
revoke                  A-C-    group
describeCooperative     A-CR    group
listRebalances          A-CR    group
groupRebalanceStats     A-CR    group
rebalanceStats          A-CR    seen
getOffsets              A-CR    group
commitOffsets           A-C-    group
getLag                  A-CR    group
resetOffsets            A-C-    group
receive                 A-C-    group
streamGroup             A-C-    group
peek                    A-CR    group
settle                  A-C-    group
ackReceipts             A-C-    group
nackReceipts            A-C-    group
rejectReceipts          A-C-    group
extendReceipts          A-C-    group
commit                  A-C-    group
seek                    A-C-    group
resume                  A-C-    group
parkKey                 A-C-    group
releaseKey              A-C-    group
listParkedKeys          A-CR    group
listDeadLetters         A-CR    group
countDeadLetters        A-CR    group
redrive                 A-C-    group
listRedrives            A-CR    group
describeRedrive         A-CR    group
stopRedrive             A-C-    group
purge                   A-C-    group
listDelayed             APCR    topic
findDelayed             APCR    topic
describeDelayed         APCR    topic
cancelDelayed           AP--    topic
createSchedule          AP--    topic
listSchedules           APCR    seen
describeSchedule        APCR    topic
deleteSchedule          AP--    topic
pauseSchedule           AP--    topic
resumeSchedule          AP--    topic
delayStats              A-CR    seen
priorityStats           A-CR    seen
reliabilityStats        A-CR    seen
getCluster              APCR    seen
getClusterInfo          APCR    seen
listNodes               APCR    seen
getClusterHealth        APCR    seen
getClusterState         APCR    seen
getScrub                A--R    every
beginScrub              A---    every
getClusterVersion       A--R    every
finishUpgrade           A---    every
getClusterOverview      A--R    every
listBrokers             A--R    every
describeBroker          A--R    every
removeBroker            A---    every
drainBroker             A---    every
undrainBroker           A---    every
rebalanceCluster        A---    every
reassign                A---    every
listReassignments       A--R    every
describeReassignment    A--R    every
cancelReassignment      A---    every
addPartitions           A---    topic
getScalingStatus        APCR    topic
readAudit               A---    every
createBrowserToken      APCR    free
createKey               A---    every
listKeys                A---    every
describeKey             A---    every
rotateKey               A---    every
revokeKey               A---    every
health                  ----    open
healthz                 ----    open
livez                   ----    open
readyz                  ----    open
version                 ----    open
stats                   A-CR    seen
metrics                 A--R    every
openapi                 APCR    free
"""
"""Operation, the roles that may ask for it, and how far the key must reach: `topic`: the topic that
is named, or that a schedule, message or transactional id is of; `group`: the group that is named,
or that a receipt is of; `seen`: it answers, without what is beyond; `every`: every topic; `free`:
it names nothing; `open`: anybody, without a key."""


@dataclass(frozen=True)
class Row:
    roles: str
    reach: str


TABLE = {
    operation: Row(roles, reach)
    for operation, roles, reach in (line.split() for line in MATRIX.split("\n") if line)
}
OWN_BODIES: dict[str, Any] = {
    "createTopic": {"name": THEIRS + "new"},
    "initProducer": {"transactional_id": THEIRS + "job"},
    "publishBatch": {"messages": [{"value": "v"}]},
}
"""Where those of `test_openapi` name nothing, or another topic."""
OWN_QUERIES = {
    "findMessages": "?key=k",
    "tailTopic": "?wait=1ms&offset=earliest",
    "searchTraces": "?key=k",
    "getOffsets": f"?topic={TOPIC}",
    "listParkedKeys": f"?topic={TOPIC}",
}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SHOWN = {
    "listTopics": TOPIC,
    "listGroups": GROUP,
    "listSchedules": SCHEDULE,
    "findMessages": SECRET,
    "readTopic": SECRET,
    "tailTopic": SECRET,
    "stats": TOPIC,
    "getTrace": TOPIC,
}
"""What their own keys see: so it is there to be hidden."""


class Scene:
    """Their topic, group, schedule, members and leases, and requests that name them."""

    def __init__(self, node: Keyed, session: aiohttp.ClientSession) -> None:
        self.node = node
        self._session = session
        self._used = 0

    async def prepare(self) -> None:
        await self.node.finish_level()
        ok = self.node.ok
        theirs = await self.node.key("admin", THEIRS)
        await ok("POST", "/topics", {"name": TOPIC, "partitions": 1}, theirs)
        settings = {"ordering": "key", "mode": "shared", "max_attempts": 0}
        await ok("PUT", f"/groups/{GROUP}", settings, theirs)
        for number in range(40):
            key = "k" if number < 2 else f"k{number}"
            await ok("POST", f"/topics/{TOPIC}/messages", {"value": SECRET, "key": key}, theirs)
        later = {"value": SECRET, "key": "k", "delay": "1h"}
        await ok("POST", f"/topics/{TOPIC}/messages", later, theirs)
        every = {"name": SCHEDULE, "topic": TOPIC, "every": "1h", "value": SECRET}
        await ok("POST", "/schedules", every, theirs)
        await self.receipt()

    async def ask(self, route: Route, token: str | None, prefix: str = "") -> tuple[int, bytes]:
        """A request that names what is theirs wherever it can; leases and members that it needs are
        made before."""
        parameters = {
            **PARAMETERS,
            "topic": TOPIC,
            "group": GROUP,
            "schedule": SCHEDULE,
            "id": f"{TOPIC}:0:0",
            "broker": "node-1",
            "trace_id": own_trace_id(TOPIC, 0, 0),
            "job": max(self.node.node.broker.topics._cluster.state.redrives, default=1),
        }
        body = OWN_BODIES.get(route.operation, BODIES.get(route.operation))
        if body is None and route.method == "POST":
            body = {"value": "dg=="}
        query = OWN_QUERIES.get(route.operation, QUERIES.get(route.operation, ""))
        text = json.dumps(body)
        for word, own in (("orders", TOPIC), ("workers", GROUP), ("nightly", SCHEDULE)):
            text = text.replace(f'"{word}"', f'"{own}"')
            query = query.replace(f"={word}", f"={own}")
        if RECEIPT in text:
            text = text.replace(RECEIPT, await self.receipt())
        if MEMBER in text + query:
            member = await self.member()
            text, query = text.replace(MEMBER, member), query.replace(MEMBER, member)
        url = self.node.url + prefix + route.path.format(**parameters) + query
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers |= UPGRADE if route.upgrade else {}
        async with self._session.request(
            route.method, url, json=json.loads(text), headers=headers
        ) as answer:
            return answer.status, await answer.read()

    async def receipt(self) -> str:
        body = {"topic": TOPIC, "limit": 1, "visibility": "1h"}
        taken = await self.node.ok("POST", f"/groups/{GROUP}/receive", body)
        if not taken["messages"]:
            self._used += 1
            more = {"value": SECRET, "key": f"more-{self._used}"}
            await self.node.ok("POST", f"/topics/{TOPIC}/messages", more)
            taken = await self.node.ok("POST", f"/groups/{GROUP}/receive", body)
        return str(taken["messages"][0]["receipt"])

    async def member(self) -> str:
        body = {"client_id": "c", "topics": [TOPIC], "session_timeout": "1h"}
        return str((await self.node.ok("POST", f"/groups/{GROUP}/join", body))["member_id"])

    async def state(self) -> object:
        """What no stranger may have changed: what the cluster knows, and where the group stands.
        Without members and leases, which `ask` makes."""
        state = self.node.node.broker.topics._cluster.state
        topics = {name: (topic.id, topic.config) for name, topic in state.topics.items()}
        lag = await self.node.ok("GET", f"/groups/{GROUP}/lag")
        places = [
            (one["committed_offset"], one["end_offset"], one["delayed"], one["dead"])
            for one in lag["partitions"]
        ]
        groups = (dict(state.groups), dict(state.group_owners), set(state.redrives))
        schedules = [(one.name, one.topic, one.paused) for one in state.schedules.values()]
        rest = (schedules, set(state.keys.by_id), set(state.producers.named))
        return topics, groups, rest, places

    async def wrong(self, token: str, letter: str, beyond: set[str]) -> list[object]:
        """The answers to this key that are not as the table says; `letter` is its role, `beyond`
        are the reaches that it lacks."""
        found: list[object] = []
        for route in sorted(ROUTES, key=deletes_at_the_end_from_inside_out):
            row = TABLE[route.operation]
            status, body = await self.ask(route, token)
            problem = judged(route.operation, row, letter, beyond, status, body)
            if problem:
                found.append((route.operation, problem, status, body[:300]))
        return found


def judged(
    operation: str, row: Row, letter: str, beyond: set[str], status: int, body: bytes
) -> str:
    """What is wrong with an answer, "" where nothing is."""
    if status >= 500 and operation not in ("readyz", "healthz", "health"):
        return "failed"
    if row.reach == "open":
        return "" if status == 200 else "anybody may ask"
    missing = json.loads(body).get("missing") if status == 403 else None
    if letter not in row.roles:
        return "" if missing == "role" else "not for this role"
    if row.reach in beyond:
        return "" if missing == "scope" else "beyond its reach"
    if status in (401, 403):
        return "within its reach"
    is_stranger = {"topic", "group"} <= beyond
    if is_stranger and operation != "openapi":
        return "shows what is theirs" if re.search(THEIRS + "|" + SECRET, body.decode()) else ""
    if "group" not in beyond and SHOWN.get(operation, "").encode() not in body:
        return "does not show what is theirs"
    return ""


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    settings = {"audit.enabled": False}
    async with (
        keyed_node(MemoryDisk(), tmp_path, **settings) as node,
        aiohttp.ClientSession() as session,
    ):
        scene = Scene(node, session)
        await scene.prepare()
        yield scene


def test_every_operation_of_the_document_has_a_row() -> None:
    paths = document(ROUTES, "1")["paths"]
    told = {
        operation["operationId"].removesuffix("V1")
        for path, methods in paths.items()
        if not path.startswith("/v1/")
        for operation in methods.values()
    }

    assert told == set(TABLE)
    assert {row.reach for row in TABLE.values()} == {
        *("topic", "group", "seen", "every", "free", "open")
    }


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_nobody_and_false_keys_are_let_in_only_where_anybody_is(
    scene: Scene, prefix: str
) -> None:
    wrong, before = [], await scene.state()

    for route in ROUTES:
        is_open = TABLE[route.operation].reach == "open"
        for token in (None, FALSE_KEY):
            status, body = await scene.ask(route, token, prefix)
            # guesses from one address are 429 after a while, whoever is asked for
            expected = {200} if is_open else {401} if token is None else {401, 429}
            if status not in expected or SECRET.encode() in body:
                wrong.append((route.operation, token, status, body[:300]))

    assert wrong == []
    assert await scene.state() == before


@pytest.mark.parametrize("letter", ROLES)
async def test_keys_of_another_prefix_reach_nothing_of_theirs(scene: Scene, letter: str) -> None:
    token = await scene.node.key(ROLES[letter], MINE)
    before = await scene.state()

    assert await scene.wrong(token, letter, {"topic", "group", "every"}) == []
    assert await scene.state() == before


@pytest.mark.parametrize("letter", ROLES)
async def test_keys_of_their_topics_but_other_groups_reach_no_group_of_theirs(
    scene: Scene, letter: str
) -> None:
    token = await scene.node.key(ROLES[letter], THEIRS, group_prefixes=[MINE])

    assert await scene.wrong(token, letter, {"group", "every"}) == []


@pytest.mark.parametrize("letter", ROLES)
async def test_their_own_keys_pass_wherever_their_role_does(scene: Scene, letter: str) -> None:
    token = await scene.node.key(ROLES[letter], THEIRS)

    assert await scene.wrong(token, letter, {"every"}) == []
