"""The audit log: what is kept, what is not, and what happens when it can't be written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns
from goqueue.wire.errors import NoQuorum
from goqueue.wire.ids import AUDIT_TOPIC
from log.disk.memory import MemoryDisk
from node.api.auth.access import Access
from node.api.auth.audit import DATA_PATH, LOOKING, LOOKS, is_audited
from node.api.auth.principal import Principal, Role
from node.config.audit import AuditConfig
from node.http.auth.policies import POLICIES
from node.http.server.routes import ROUTES
from node.metrics import Metrics
from node.security.audit import AuditLimits, AuditLog
from node.security.audit_sums import Sums
from tests.unit.node.test_node import config, eventually, running

ROOT = "root.0123456789abcdef0123"
APP = {"id": "app", "role": "consumer", "prefixes": ["*"]}
ADMIN = Principal("ops", Role.ADMIN)


def access(number: int = 0, principal: Principal | None = ADMIN, **more: Any) -> Access:
    told = {
        "operation": "deleteTopic",
        "method": "DELETE",
        "target": "/topics/orders",
        "status": 200,
        "code": "",
        "request_id": f"r-{number}",
        "remote": "10.0.0.7",
        **more,
    }
    return Access(principal=principal, **told)


class Topic:
    """Stands for cluster and node: keeps what is appended, once for each id; fails on demand."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(topics={})
        self.records: dict[str, dict[str, Any]] = {}
        self.failing = False
        self.appends = 0
        self.stored_bytes = 0
        self.commands: list[Any] = []

    async def refresh(self) -> bool:
        return True

    async def command(self, command: Any, deadline_s: float) -> None:
        self.commands.append(command)
        self.state.topics[command.name] = SimpleNamespace(
            id="1", config=SimpleNamespace(**command.config)
        )

    async def append(self, topic: str, partition: int, batch: bytes, *, deadline_s: float) -> None:
        self.appends += 1
        rows = RecordBatch.parse(batch)
        self.stored_bytes += len(batch)
        for id, value in zip(rows.message_ids(), rows.values(), strict=True):
            self.records[str(id)] = json.loads(value)
        if self.failing:
            raise NoQuorum

    def told(self) -> list[dict[str, Any]]:
        return list(self.records.values())


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def audit(topic: Topic, metrics: Metrics) -> AsyncIterator[AuditLog]:
    made = AuditLog(
        "n1",
        AuditConfig(),
        topic,  # type: ignore[arg-type]
        topic,  # type: ignore[arg-type]
        metrics.doors,
        lambda: 1_736_866_800_000,
        limits=AuditLimits(records_max=10, retry_s=0.01),
    )
    yield made
    await made.stop()


def counted(metrics: Metrics, name: str) -> float:
    lines = metrics.render()[0].decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)


async def test_record_tells_who_what_where_and_how_it_ended(audit: AuditLog, topic: Topic) -> None:
    await audit.start()
    audit(access(1))
    await eventually(lambda: bool(topic.records))

    assert topic.told() == [
        {
            "time": "2025-01-14T15:00:00.000Z",
            "node": "n1",
            "who": "ops",
            "action": "deleteTopic",
            "outcome": "ok",
            "role": "admin",
            "address": "10.0.0.7",
            "method": "DELETE",
            "target": "/topics/orders",
            "status": 200,
            "request_id": "r-1",
        }
    ]
    assert topic.commands[0].name == AUDIT_TOPIC
    assert topic.commands[0].config["retention_ms"] == AuditConfig().retention_ms


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"operation": "publish", "method": "POST"}, False),
        ({"operation": "publish", "method": "POST", "status": 403, "code": "forbidden"}, True),
        ({"operation": "listTopics", "method": "GET"}, False),
        ({"operation": "listKeys", "method": "GET", "status": 403, "code": "forbidden"}, True),
        ({"operation": "", "method": "GET", "status": 401, "code": "unauthenticated"}, True),
        ({"operation": "", "method": "POST", "status": 404, "code": "not_found"}, False),
        ({"operation": "seek", "method": "POST", "status": 400, "code": "bad_request"}, True),
    ],
    ids=str,
)
def test_what_is_kept(change: dict[str, Any], kept: bool) -> None:
    assert is_audited(access(**change)) is kept


def test_every_route_that_changes_something_is_kept_or_is_the_data_s_path() -> None:
    changing = {route.operation for route in ROUTES if route.method not in LOOKS}
    kept = {
        route.operation
        for route in ROUTES
        if is_audited(access(operation=route.operation, method=route.method))
    }

    assert changing - kept - DATA_PATH == set()
    assert not kept & DATA_PATH
    assert changing >= DATA_PATH
    assert {"createKey", "revokeKey", "purge", "redrive", "seek", "cancelDelayed"} <= kept
    for operation in kept:
        assert operation in POLICIES


def test_what_only_looks_is_so_by_http_s_own_words_and_is_not_kept_by_any_protocol() -> None:
    methods = {route.operation: route.method for route in ROUTES}
    asked = [Access(name, "grpc", name, None, 200, "", "r", "10.0.0.9") for name in LOOKING]

    assert {methods[name] for name in LOOKING} <= LOOKS
    assert not any(map(is_audited, asked))


async def test_log_that_can_t_be_written_is_written_later_each_record_once(
    audit: AuditLog, topic: Topic
) -> None:
    topic.failing = True
    await audit.start()
    audit(access(1))
    await eventually(lambda: topic.appends > 3)
    audit(access(2))
    topic.failing = False
    await eventually(lambda: len(topic.records) == 2)

    assert [record["request_id"] for record in topic.told()] == ["r-1", "r-2"]


async def test_losses_are_counted_and_told_once_there_is_room(
    audit: AuditLog, topic: Topic, metrics: Metrics
) -> None:
    for number in range(15):
        audit(access(number))
    assert counted(metrics, "goqueue_audit_records_lost_total") == 5

    await audit.start()
    await eventually(lambda: len(topic.records) == 11)

    last = topic.told()[-1]
    assert (last["action"], last["outcome"], last["count"]) == ("audit", "lost", 5)
    assert counted(metrics, "goqueue_audit_records_total") == 11


async def flood(audit: AuditLog, count: int, addresses: int) -> None:
    """So many requests without a key, of three kinds."""
    denied = [
        access(
            number,
            None,
            status=401 + 28 * (number % 3 == 2),
            code=("unauthenticated", "unauthenticated", "too_many_failures")[number % 3],
            target="/topics/" + "x" * 4000,
            method="M" * 4000,
            remote=f"10.0.{number % addresses // 250}.{number % addresses % 250}",
        )
        for number in range(min(count, 3 * addresses))
    ]
    for number in range(count):
        audit(denied[number % len(denied)])


async def test_500_000_denials_without_a_key_push_nothing_out(
    audit: AuditLog, topic: Topic, metrics: Metrics
) -> None:
    await audit.start()
    for number in range(10):
        audit(access(number, operation="createKey", method="POST", target="/admin/keys"))
    await eventually(lambda: len(topic.records) == 10)
    kept_bytes = topic.stored_bytes

    for _ in range(3):  # minutes
        await flood(audit, 500_000 // 3 + 1, addresses=500)
        audit.minute()
    await eventually(lambda: len(topic.records) == 13)

    sums = topic.told()[10:]
    assert {(told["who"], told["action"], told["outcome"]) for told in sums} == {
        ("anonymous", "sum", "denied")
    }
    assert sum(told["count"] for told in sums) == 500_001
    for told in sums:
        assert sum(told["reasons"].values()) == told["count"]
        assert set(told["reasons"]) == {"unauthenticated", "too_many_failures"}
        assert told["addresses"] == 500
        assert len(told["sample"]) == 5
        assert told["since"] == "2025-01-14T15:00:00.000Z"
    assert topic.stored_bytes - kept_bytes < 3 * 2048
    assert counted(metrics, "goqueue_audit_records_lost_total") == 0


def test_flood_of_a_month_fills_no_log() -> None:
    """Each sum is stored in less than 2 KiB, as the test before this shows."""
    sums = Sums(has_keys=True)
    told = []
    for minute in range(30 * 24 * 60):
        for number in range(3):
            sums.add(access(number, None, status=401), minute * 60_000)
        told += [one] if (one := sums.minute()) else []
    told += [one] if (one := sums.rest()) else []

    assert sum(one.count for one in told) == 30 * 24 * 60 * 3, "none is left out"
    assert [one.since_ms for one in told[:3]] == [0, 60_000, 120_000]
    assert len(told) * 2048 * 3 < AuditConfig().retention_bytes / 5


async def test_requests_of_strangers_are_sums_however_they_ended(
    audit: AuditLog, topic: Topic
) -> None:
    """A form of the login page that is no form fails, and nobody is denied."""
    await audit.start()
    for number in range(500):
        audit(access(number, None, operation="login", method="POST", status=400, code="no_form"))
    audit.minute()
    await eventually(lambda: bool(topic.records))

    assert [told["reasons"] for told in topic.told()] == [{"no_form": 500}]


async def test_where_nobody_has_keys_what_is_done_has_records(
    topic: Topic, metrics: Metrics
) -> None:
    audit = AuditLog(
        "n1",
        AuditConfig(),
        topic,  # type: ignore[arg-type]
        topic,  # type: ignore[arg-type]
        metrics.doors,
        lambda: 1_736_866_800_000,
        has_keys=False,
    )
    await audit.start()
    audit(access(1, None))
    audit(access(2, None, status=403, code="foreign_origin"))
    await audit.stop()

    assert [told["action"] for told in topic.told()] == ["deleteTopic", "sum"]


async def test_sum_counts_an_ipv6_site_once(audit: AuditLog, topic: Topic) -> None:
    await audit.start()
    for number in range(100):
        audit(access(number, None, status=401, code="x", remote=f"2001:db8::{number:x}"))
    await audit.stop()

    assert [told["addresses"] for told in topic.told()] == [1]


async def test_what_waits_is_written_when_the_node_stops(audit: AuditLog, topic: Topic) -> None:
    await audit.start()
    audit(access(1))
    await audit.stop()

    assert len(topic.records) == 1


async def test_long_targets_are_cut(audit: AuditLog, topic: Topic) -> None:
    audit(access(1, target="/" + "x" * 4000))
    await audit.start()
    await eventually(lambda: bool(topic.records))

    assert len(topic.told()[0]["target"]) == 300


async def recorded(ask: Any, count: int) -> list[dict[str, Any]]:
    """The records from the first on, once there are so many."""
    async with asyncio.timeout(30):
        while True:
            _, answer = await ask("GET", "/admin/audit?offset=0&wait=1s", ROOT)
            if len(answer["records"]) >= count:
                return list(answer["records"])


class TestNode:
    """A whole node whose doors are locked."""

    @pytest.fixture
    async def node(self, tmp_path: Path) -> AsyncIterator[Any]:
        key_file = tmp_path / "admin"
        key_file.write_text(ROOT)
        settings = config(**{"auth.enabled": "true", "auth.adminKeyFile": str(key_file)})
        async with running(MemoryDisk(), settings) as node, aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{node.front.port}"

            async def ask(
                method: str, path: str, key: str = "", content_type: str = "", **more: Any
            ) -> tuple[int, Any]:
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                headers |= {"Content-Type": content_type} if content_type else {}
                async with session.request(method, url + path, headers=headers, **more) as answer:
                    return answer.status, await answer.json()

            await eventually(lambda: "root" in node.broker.topics._cluster.state.keys.by_id)
            yield ask

    async def test_log_tells_admins_what_was_done_and_others_nothing(self, node: Any) -> None:
        await node("POST", "/topics", ROOT, json={"name": "orders", "partitions": 1})
        await node("POST", "/topics/orders/messages", ROOT, json={"value": "x"})
        made = await node("POST", "/admin/keys", ROOT, json=APP)
        app = made[1]["key"]
        denied = await node("DELETE", "/topics/orders", app)
        await node("GET", "/topics", "app.wrong-secret-0000000")

        records = await recorded(node, 3)
        told = [(r["who"], r["action"], r["outcome"], r.get("code", "")) for r in records]
        assert denied[0] == 403
        assert ("root", "createTopic", "ok", "") in told
        assert ("root", "createKey", "ok", "") in told
        assert ("app", "deleteTopic", "denied", "forbidden") in told
        assert "anonymous" not in [who for who, *_ in told], "it is told in the minute's sum"
        assert "publish" not in [action for _, action, _, _ in told]
        secrets = (ROOT.partition(".")[2], app.partition(".")[2], "wrong-secret")
        assert not [s for s in secrets if s in json.dumps(records)], "no secret is in the log"

        assert (await node("GET", "/admin/audit", app))[0] == 403
        found = await node("GET", "/admin/audit?key=app&outcome=denied", ROOT)
        assert found[1]["records"][0]["action"] == "deleteTopic"
        assert {r["who"] for r in found[1]["records"]} == {"app"}

    async def test_nobody_writes_changes_or_deletes_it(self, node: Any) -> None:
        batch = {"data": encode_columns([b"x"]), "content_type": BATCH_MEDIA_TYPE}
        for method, path, sent in (
            ("POST", f"/topics/{AUDIT_TOPIC}/messages", {"json": {"value": "x"}}),
            ("POST", f"/topics/{AUDIT_TOPIC}/partitions/0/messages", batch),
            ("DELETE", f"/topics/{AUDIT_TOPIC}", {}),
            ("PATCH", f"/topics/{AUDIT_TOPIC}", {"json": {"retention_ms": 1}}),
            ("POST", f"/topics/{AUDIT_TOPIC}/compaction", {"json": {}}),
            ("POST", f"/admin/topics/{AUDIT_TOPIC}/compact", {"json": {}}),
            ("POST", f"/admin/topics/{AUDIT_TOPIC}/partitions", {"json": {"count": 2}}),
            ("POST", "/topics", {"json": {"name": AUDIT_TOPIC}}),
        ):
            status, answer = await node(method, path, ROOT, **sent)
            assert (status, answer["code"]) == (400, "invalid_name"), path

    async def test_it_is_no_topic_of_users_lists_or_patterns(self, node: Any) -> None:
        await node("POST", "/topics", ROOT, json={"name": "orders", "partitions": 1})
        await recorded(node, 1)
        body = {"client_id": "c", "patterns": ["*"], "wait": "0s"}
        joined = await node("POST", "/groups/all/join", ROOT, json=body)

        assert (await node("GET", "/topics", ROOT))[1]["topics"] == ["orders"]
        assert AUDIT_TOPIC not in json.dumps(joined[1])
