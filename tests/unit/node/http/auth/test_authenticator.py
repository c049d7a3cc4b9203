"""Every route against every kind of key: who may come in, and how far."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from yarl import URL

from coordinator.commands.keys import RevokeKey
from goqueue.wire.batch import encode_columns
from node.api.auth.principal import Principal, Role
from node.api.broker import Broker
from node.api.rules.rule import parts_of, rules_of
from node.broker.node import NodeBroker
from node.http.auth.authenticator import Authenticator
from node.http.auth.policies import ANYBODY, POLICIES, Policy, Reach
from node.http.auth.scoped_broker import broker_for
from node.http.console.front import PAGES
from node.http.server.app import Entrance, HttpFront
from node.http.server.routes import ROUTES, Route
from tests.one_node import NOW_MS, Keys, cluster_of
from tests.steps import Steps
from tests.unit.node.http.conftest import Answer, Clock
from tests.unit.node.http.server.test_openapi import BODIES, PARAMETERS, QUERIES

MINE = "mine."
REMEMBERED_STEPS_MAX = 100
"""53 today, which take 10 µs."""
LOCKED = [route for route in ROUTES if POLICIES[route.operation].roles is not None]
SECRET_VALUE = b"what only readers of orders may see"


class Counts:
    """What the checks told."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.missing: list[str] = []

    def authenticated(self, result: str) -> None:
        self.results.append(result)

    def denied(self, missing: str) -> None:
        self.missing.append(missing)


class Scene:
    """A locked front, keys for it, and something to protect."""

    def __init__(self, session: aiohttp.ClientSession, front: HttpFront, keys: Keys) -> None:
        self._session = session
        self._front = front
        self.keys = keys
        self.tokens: dict[str, str] = {}
        self.counts = Counts()

    async def key(self, role: str, *prefixes: str, **more: Any) -> str:
        """A token of a key with this role for these prefixes; made once."""
        name = f"{role}-{'-'.join(prefixes) or 'all'}-{len(more)}".replace(".", "_")
        if name not in self.tokens:
            made = await self.keys.create_key(
                name, name="", role=role, prefixes=prefixes or ("",), **{"expires_ms": 0, **more}
            )
            self.tokens[name] = made.secret
        return self.tokens[name]

    async def ask(
        self,
        method: str,
        path: str,
        token: str | None = None,
        body: Any = None,
        **headers: str,
    ) -> Answer:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = URL(f"http://127.0.0.1:{self._front.port}{path}", encoded=True)
        async with self._session.request(method, url, json=body, headers=headers) as answer:
            raw = await answer.read()
            is_json = answer.content_type == "application/json" and raw
            return Answer(
                answer.status, dict(answer.headers), raw, await answer.json() if is_json else None
            )

    async def route(self, route: Route, token: str | None, **headers: str) -> Answer:
        """A request to it that names the topic orders wherever it can."""
        path = route.path.format(**PARAMETERS) + QUERIES.get(route.operation, "").replace(" ", "")
        body = BODIES.get(route.operation, {"value": "dg=="} if route.method == "POST" else None)
        return await self.ask(route.method, path, token, body, **headers)


@pytest.fixture
def figures() -> Counts:
    return Counts()


@pytest.fixture
async def locked_keys(broker: NodeBroker, clock: Clock, figures: Counts) -> AsyncIterator[Keys]:
    await broker.upgrade.finish_level()
    with ThreadPoolExecutor(1) as workers:
        yield Keys(cluster_of(broker), clock, workers, figures)


@pytest.fixture
async def scene(
    broker: NodeBroker, locked_keys: Keys, figures: Counts, orders: str
) -> AsyncIterator[Scene]:
    front = HttpFront(
        broker,
        port=0,
        entrance=Entrance(authenticator=Authenticator(locked_keys.checks), keys=locked_keys),
    )
    await front.start()
    async with aiohttp.ClientSession() as session:
        found = Scene(session, front, locked_keys)
        found.counts = figures
        yield found
    await front.stop()


def test_every_route_has_a_policy_and_every_policy_a_route() -> None:
    assert set(POLICIES) == {route.operation for route in ROUTES}


def test_only_probes_and_the_version_are_anybodys() -> None:
    anybodys = {name for name, policy in POLICIES.items() if policy.roles is None}
    pages = {page.operation for page in PAGES if page.policy is ANYBODY}

    assert anybodys == {"health", "healthz", "livez", "readyz", "version"}
    assert "showTopic" not in pages
    assert all(page.policy.reach is not Reach.NOTHING for page in PAGES if page.policy.roles)


def test_every_policy_of_a_topics_path_holds_the_key_against_it() -> None:
    for route in ROUTES:
        policy = POLICIES[route.operation]
        assert ("{topic}" in route.path) <= (policy.reach is Reach.TOPIC), route.operation
        assert not policy.roles or Role.ADMIN in policy.roles


def test_what_has_neither_path_nor_names_is_filtered_or_for_every_topic() -> None:
    for route in ROUTES:
        policy = POLICIES[route.operation]
        if policy.reach is Reach.NAMED:
            assert policy.names, route.operation
        if "{group}" in route.path:
            known = (Reach.GROUP, Reach.NAMED, Reach.SEEN, Reach.EVERYWHERE)
            assert policy.reach in known, route.operation


def public(kind: type) -> set[str]:
    return {name for base in kind.__mro__ for name in vars(base) if not name.startswith("_")}


KEYS = [
    Principal("admin", Role.ADMIN),
    Principal("team", Role.ADMIN, (MINE,)),
    Principal("reader", Role.READONLY),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.key_id)
def test_keys_reach_what_is_declared_of_the_broker_and_nothing_else(key: Principal) -> None:
    scoped = broker_for(cast(Broker, SimpleNamespace(**dict.fromkeys(public(Broker)))), key)
    parts = parts_of(Broker)

    assert set(parts) == public(Broker)
    assert public(type(scoped)) == {*parts, "inner", "scope"}
    for name, declared in parts.items():
        methods = public(declared)

        assert set(rules_of(declared)) == methods
        assert methods
        assert public(type(getattr(scoped, name))) == {*methods, "inner", "scope"}


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_every_route_refuses_whoever_has_no_key_that_holds(
    scene: Scene, clock: Clock, prefix: str
) -> None:
    good = await scene.key("admin")
    expired = await scene.key("admin", expires_ms=clock.now_ms + 1000)
    revoked = await scene.key("admin", "a")
    await scene.keys.cluster.command(RevokeKey(revoked.partition(".")[0]), 1)
    clock.now_ms += 2000
    bad = {
        "missing": None,
        "malformed": "no-dot-in-here-at-all",
        "unknown": "nobody." + "x" * 43,
        "bad_secret": good.partition(".")[0] + "." + "x" * 43,
        "expired": expired,
        "revoked": revoked,
    }
    for route in LOCKED:
        path = prefix + route.path.format(**PARAMETERS)
        for why, token in bad.items():
            answer = await scene.ask(route.method, path, token)

            assert answer.status == 401, (route.operation, why, answer.body)
            assert answer.json["code"] == "unauthenticated"
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert scene.counts.results[-1] == why
        assert (await scene.ask(route.method, path, good)).status != 401


async def test_every_route_refuses_every_role_it_is_not_for(scene: Scene) -> None:
    for route in LOCKED:
        roles = POLICIES[route.operation].roles or ()
        for role in set(Role) - set(roles):
            answer = await scene.route(route, await scene.key(role.value))

            assert answer.status == 403, (route.operation, role)
            assert (answer.json["code"], answer.json["missing"]) == ("forbidden", "role")
            assert answer.json["roles"] == [one.value for one in roles]


async def test_every_route_that_names_a_topic_refuses_keys_of_others_and_shows_nothing(
    scene: Scene, broker: NodeBroker
) -> None:
    await protect(broker)
    before = await state_of(broker)
    for route in LOCKED:
        policy = POLICIES[route.operation]
        for role in policy.roles or ():
            answer = await scene.route(route, await scene.key(role.value, MINE))

            where = (route.operation, role.value, answer.status, answer.body)
            if policy.reach in (Reach.TOPIC, Reach.EVERYWHERE):
                assert answer.status == 403, where
                assert answer.json["missing"] == "scope", where
            if answer.status < 400:
                assert SECRET_VALUE not in answer.body, where
                assert b"orders" not in answer.body or route.operation == "openapi", where
            assert answer.status < 500, where
    assert await state_of(broker) == before


async def test_a_key_of_the_topic_passes_wherever_its_role_does(
    scene: Scene, broker: NodeBroker
) -> None:
    await protect(broker)
    for route in LOCKED:
        policy = POLICIES[route.operation]
        if policy.reach is Reach.EVERYWHERE or route.method == "DELETE":
            continue
        for role in policy.roles or ():
            answer = await scene.route(route, await scene.key(role.value, "ord"))
            if route.operation == "createTopic":
                assert answer.status == 403  # its body names another topic
            else:
                assert answer.status not in (401, 403, 500), (route.operation, role, answer.body)


async def protect(broker: NodeBroker) -> None:
    """Messages, a group that is in the midst of them, a dead one, a delayed one, a schedule."""
    await broker.topics.create_topic("other", {"partitions": 1})
    batch = encode_columns([SECRET_VALUE] * 3, [b"k"] * 3)
    await broker.records.append("orders", 0, batch, deadline_s=30)
    delayed = encode_columns([SECRET_VALUE], [b"k"], deliver_at_ms=[NOW_MS + 3_600_000])
    await broker.records.append("orders", 0, delayed, deadline_s=30)
    fields = {"cron": None, "timezone": "UTC", "missed": "once", "key": None, "headers": ()}
    schedule = {"name": "nightly", "topic": "orders", "every_ms": 60_000, "value": SECRET_VALUE}
    await broker.scheduling.put_schedule({**fields, **schedule, "lane": 2})
    await broker.positions.commit("workers", "orders", {0: 1})


async def state_of(broker: NodeBroker) -> object:
    """What nobody may have changed."""
    ends = await broker.records.end_offsets("orders")
    rows = [
        (row.topic, row.partition, row.committed) for row in await broker.positions.lag("workers")
    ]
    schedules = [(one.name, one.topic, one.state) for one in await broker.scheduling.schedules()]
    settings = (await broker.groups.group("workers")).settings
    delayed = await broker.delays.delayed("orders", limit=10, skip=0)
    return ends, rows, schedules, settings, delayed, (await broker.topics.topic("orders")).config


# how an attacker would go about it


@pytest.mark.parametrize(
    "path",
    [
        "/topics/orders",
        "/v1/topics/orders",
        "/topics/%6frders",
        "/topics/o%72ders/",
        "/topics/orders.dlq",
        "/topics/orders%2Edlq",
        "//topics/orders",
        "/topics/mine.%2e%2e/orders",
        "/topics/mine.%2F..%2Forders",
        "/topics/mine.x/../orders",
        "/topics/ORDERS",
        "/topics/mine",
        "/topics/Mine.x",
        "/topics/%00mine.x",
        "/topics/orders?topic=mine.x",
        "/topics/orders#mine.x",
        "/topics//orders",
        "http://127.0.0.1/topics/orders",
    ],
)
async def test_no_way_of_writing_a_path_reaches_another_topic(scene: Scene, path: str) -> None:
    token = await scene.key("readonly", MINE)

    answer = await scene.ask("GET", path if path[0] == "/" else "/" + path, token)

    assert answer.status in (400, 403, 404), answer.body


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/groups/g/receive", {"topics": ["mine.a", "orders"]}),
        ("POST", "/groups/g/receive", {"assignment": [{"topic": "orders", "partition": 0}]}),
        ("POST", "/groups/g/peek", {"topics": ["orders"]}),
        ("POST", "/groups/g/join", {"client_id": "c", "topics": ["mine.a", "orders"]}),
        ("POST", "/groups/g/join", {"client_id": "c", "patterns": ["*"]}),
        ("POST", "/groups/g/join", {"client_id": "c", "patterns": ["min*"]}),
        ("POST", "/groups/g/join", {"client_id": "c", "patterns": ["[mo]*"]}),
        ("POST", "/groups/g/join", {"client_id": "c", "patterns": ["?rders"]}),
        ("POST", "/groups/g/offsets", {"offsets": {"mine.a": {"0": 0}, "orders": {"0": 3}}}),
        ("POST", "/groups/g/offsets/reset", {"topic": "orders", "to": "latest"}),
        ("POST", "/groups/g/seek", {"topic": "orders", "to": "earliest"}),
        ("POST", "/groups/g/commit", {"topic": "orders", "offsets": {"0": 3}}),
        ("POST", "/groups/workers/resume", {}),
        ("PUT", "/groups/workers", {"visibility_timeout": "1s"}),
        ("DELETE", "/groups/workers", None),
        ("GET", "/groups/workers", None),
        ("GET", "/groups/workers/lag", None),
        ("GET", "/groups/workers/offsets?topic=orders", None),
        ("GET", "/groups/workers/dlq?topic=orders", None),
        ("POST", "/groups/workers/dlq/redrive", {"topic": "orders"}),
        ("POST", "/groups/workers/dlq/purge", {"topic": "orders"}),
        ("GET", "/messages?topic=orders&key=k", None),
        ("GET", "/traces/search?topic=orders&key=k", None),
        ("GET", "/messages/orders:0:0", None),
        ("GET", "/messages/orders%3A0%3A0", None),
        ("GET", "/messages/orders:0:0/timeline", None),
        ("GET", "/messages/orders:0:0/why", None),
        ("GET", "/messages/x/timeline?topic=orders", None),
    ],
)
async def test_no_body_query_pattern_or_id_reaches_another_topic(
    scene: Scene, broker: NodeBroker, method: str, path: str, body: Any
) -> None:
    await protect(broker)
    await broker.topics.create_topic("mine.a", {"partitions": 1})
    before = await state_of(broker)

    answer = await scene.ask(method, path, await scene.key("consumer", MINE), body)

    assert (answer.status, answer.json["missing"]) == (403, "scope"), answer.body
    assert await state_of(broker) == before


async def test_schedules_of_others_are_neither_seen_nor_replaced(
    scene: Scene, broker: NodeBroker
) -> None:
    await protect(broker)
    await broker.topics.create_topic("mine.a", {"partitions": 1})
    token = await scene.key("producer", MINE)
    mine = {"name": "nightly", "topic": "mine.a", "every": "1m", "value": "v"}

    assert (await scene.ask("POST", "/schedules", token, mine)).status == 403
    assert (await scene.ask("POST", "/schedules/nightly/pause", token)).status == 403
    assert (await scene.ask("DELETE", "/schedules/nightly", token)).status == 403
    assert (await scene.ask("GET", "/schedules/nightly", token)).status == 403
    assert (await scene.ask("POST", "/schedules", token, {**mine, "name": "my"})).status == 201
    listed = await scene.ask("GET", "/schedules", token)
    assert [one["name"] for one in listed.json["schedules"]] == ["my"]


async def test_receipts_of_other_topics_settle_nothing(scene: Scene, broker: NodeBroker) -> None:
    await protect(broker)
    await broker.topics.create_topic("mine.a", {"partitions": 1})
    await broker.records.append("mine.a", 0, encode_columns([b"v"], [None]), deadline_s=30)
    everyone = await scene.key("consumer")
    token = await scene.key("consumer", MINE)
    body = {"topics": ["orders", "mine.a"], "limit": 10}
    taken = await scene.ask("POST", "/groups/workers/receive", everyone, body)
    receipts = {one["topic"]: one["receipt"] for one in taken.json["messages"]}
    assert set(receipts) == {"orders", "mine.a"}
    order = [receipts["orders"], receipts["mine.a"], "nonsense"]

    answer = await scene.ask("POST", "/groups/workers/ack", token, {"receipts": order})
    codes = [one.get("code", one.get("state")) for one in answer.json["results"]]
    assert codes == ["forbidden", "acked", "invalid_receipt"]
    single = {"receipt_handle": receipts["orders"]}
    for path in ("ack", "nack", "reject", "visibility"):
        sent = {**single, "timeout": "60s"} if path == "visibility" else single
        assert (await scene.ask("POST", f"/messages/{path}", token, sent)).status == 403
    acked = await scene.ask("POST", "/messages/ack", everyone, single)
    assert acked.status == 200


async def test_a_member_of_a_group_that_is_also_elsewhere_can_not_be_acted_for(
    scene: Scene, broker: NodeBroker
) -> None:
    await broker.topics.create_topic("mine.a", {"partitions": 1})
    team = {"client_id": "c", "topics": ["orders"]}
    joined = await scene.ask("POST", "/groups/team/join", await scene.key("consumer"), team)
    member = joined.json["member_id"]
    token = await scene.key("consumer", MINE)

    for method, path, body in (
        ("POST", "/groups/team/join", {"client_id": "c", "topics": ["mine.a"]}),
        ("POST", "/groups/team/heartbeat", {"member_id": member, "wait": "1ms"}),
        ("POST", "/groups/team/leave", {"member_id": member}),
        ("GET", f"/groups/team/poll?member_id={member}", None),
        ("GET", "/groups/team/members", None),
        ("GET", f"/groups/team/assignment?member_id={member}", None),
        ("GET", "/groups/team/cooperative", None),
        ("GET", "/groups/team/rebalances", None),
    ):
        answer = await scene.ask(method, path, token, body)
        assert answer.status == 403, (path, answer.body)
    seen = await scene.ask("GET", "/groups", token)
    assert "team" not in str(seen.json)


async def test_lists_show_what_is_within_the_prefixes(scene: Scene, broker: NodeBroker) -> None:
    await protect(broker)
    await broker.topics.create_topic("mine.a", {"partitions": 1})
    await broker.records.append("mine.a", 0, encode_columns([b"found"], [b"k"]), deadline_s=30)
    await broker.positions.commit("mygroup", "mine.a", {0: 0})
    token = await scene.key("consumer", MINE)

    for path in (
        *("/topics", "/groups", "/messages?key=k", "/traces", "/traces/search?key=k", "/stats"),
        *("/delay/stats", "/priority/stats", "/reliability/stats", "/rebalance/stats", "/cluster"),
        *("/cluster/health", "/cluster/state", "/cluster/nodes"),
    ):
        answer = await scene.ask("GET", path, token)
        assert answer.status == 200, (path, answer.body)
        for beyond in (b"orders", b"workers", SECRET_VALUE):
            assert beyond not in answer.body, (path, answer.body)
    assert (await scene.ask("GET", "/topics", token)).json["topics"] == ["mine.a"]
    found = await scene.ask("GET", "/messages?key=k", token)
    assert [one["value"] for one in found.json["messages"]] == ["found"]


async def test_a_transactional_id_of_others_can_not_be_taken(scene: Scene) -> None:
    token = await scene.key("producer", MINE)

    async def init(body: Any) -> int:
        return (await scene.ask("POST", "/producers/init", token, body)).status

    assert await init({}) == 200
    assert await init({"transactional_id": "mine.writer"}) == 200
    assert await init({"transactional_id": "payments"}) == 403


async def test_internal_topics_are_for_admins_of_every_topic() -> None:
    for role in Role:
        assert Principal("k", role).covers("__audit") == (role is Role.ADMIN)
        assert not Principal("k", role, ("__",)).covers("__audit")
        assert not Principal("k", role, ()).covers("orders")


async def test_the_key_may_come_in_either_header_but_only_once(scene: Scene) -> None:
    token, other = await scene.key("readonly"), await scene.key("admin")

    async def status(**headers: str) -> int:
        return (await scene.ask("GET", "/topics", **headers)).status

    assert await status(**{"X-API-Key": token}) == 200
    assert await status(**{"x-api-key": token, "Authorization": f"bearer {token}"}) == 200
    assert await status(**{"X-API-Key": token, "Authorization": f"Bearer {other}"}) == 401
    assert await status(Authorization=token) == 401
    assert await status(Authorization=f"Basic {token}") == 401
    assert await status(Authorization="Bearer ") == 401
    assert await status(Authorization=f"Bearer {token} x") == 401
    assert await status(Authorization="Bearer " + "a" * 9000) in (400, 401)
    assert (await scene.ask("GET", f"/topics?api_key={token}")).status == 401


async def test_a_route_without_a_policy_is_nobodys(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(POLICIES, "listTopics")

    answer = await scene.ask("GET", "/topics", await scene.key("admin"))

    assert (answer.status, answer.json["missing"]) == (403, "policy")


async def test_pages_are_for_who_may_read_and_acting_for_who_may_consume(scene: Scene) -> None:
    for path in ("/ui", "/ui/topics/orders", "/ui/messages?q=x", "/ui/dead"):
        assert (await scene.ask("GET", path)).status == 401
        assert (await scene.ask("GET", path, await scene.key("producer"))).status == 403
        assert (await scene.ask("GET", path, await scene.key("readonly"))).status != 403
    beyond = await scene.ask("GET", "/ui/topics/orders", await scene.key("readonly", MINE))
    assert beyond.status == 403
    act = "/ui/dead/workers/orders"
    assert (await scene.ask("POST", act)).status == 401
    assert (await scene.ask("POST", act, await scene.key("readonly"))).status == 403


async def test_metrics_are_for_keys_of_every_topic(scene: Scene) -> None:
    assert (await scene.ask("GET", "/metrics")).status == 401
    assert (await scene.ask("GET", "/metrics", await scene.key("readonly", MINE))).status == 403
    assert (await scene.ask("GET", "/metrics", await scene.key("readonly"))).status == 200


async def test_openapi_says_what_each_operation_asks_for(scene: Scene) -> None:
    described = (await scene.ask("GET", "/openapi.json", await scene.key("producer", MINE))).json

    assert set(described["components"]["securitySchemes"]) == {"bearer", "apiKey"}
    publish = described["paths"]["/topics/{topic}/messages"]["post"]
    assert publish["security"] == [{"bearer": []}, {"apiKey": []}]
    assert publish["x-goqueue-roles"] == ["producer", "admin"]
    assert described["paths"]["/livez"]["get"]["security"] == []


async def test_a_check_that_is_remembered_takes_few_steps(scene: Scene) -> None:
    class Request:
        headers: Any = None
        remote = "127.0.0.1"

    from multidict import CIMultiDict, CIMultiDictProxy

    request = Request()
    token = await scene.key("producer", MINE)
    request.headers = CIMultiDictProxy(CIMultiDict({"Authorization": f"Bearer {token}"}))
    authenticator, policy = Authenticator(scene.keys.checks), POLICIES["publish"]
    params = {"topic": "mine.a"}
    await authenticator.admit(request, "publish", params)  # type: ignore[arg-type]

    with Steps() as counted:
        await authenticator.admit(request, "publish", params)  # type: ignore[arg-type]

    assert isinstance(policy, Policy)
    assert counted.count < REMEMBERED_STEPS_MAX
