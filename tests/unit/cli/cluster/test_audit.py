"""`goqueue-cli audit`: what was done by whom, and what was denied."""

from __future__ import annotations

import json

import msgspec

from coordinator.commands.codec import CreateTopic
from goqueue.wire.batch import encode_columns
from goqueue.wire.ids import AUDIT_TOPIC
from node.api.auth.audit import AuditRecord
from tests.one_node import DEADLINE_S, cluster_of
from tests.unit.cli.conftest import Shell

TIME = "2025-01-15T10:30:00.000Z"


def record(shell: Shell, *records: AuditRecord) -> None:
    async def store() -> None:
        cluster = cluster_of(shell.broker)
        if AUDIT_TOPIC not in cluster.state.topics:
            await cluster.command(CreateTopic(AUDIT_TOPIC, {"partitions": 1}), DEADLINE_S)
        batch = encode_columns([msgspec.json.encode(one) for one in records])
        await shell.broker.records.append(AUDIT_TOPIC, 0, batch, deadline_s=DEADLINE_S)

    shell.wait(store())


def made(number: int, **more: object) -> AuditRecord:
    told = {"who": "ops", "action": "deleteTopic", "outcome": "ok", "target": f"/topics/t{number}"}
    return msgspec.convert({"time": TIME, "node": "n1", **told, **more}, AuditRecord)


def test_log_is_a_table_or_json(shell: Shell) -> None:
    denied = made(2, who="app", outcome="denied", code="forbidden", address="10.0.0.7")
    lost = made(3, action="audit", outcome="lost", count=5, target="")
    summed = made(4, who="anonymous", action="sum", outcome="denied", count=500_000, addresses=9)
    record(shell, made(1), denied, lost, summed)

    table = shell.ok("audit", "-o", "table")
    rows = [json.loads(line) for line in shell.ok("audit", "-o", "json").splitlines()]

    assert "denied (forbidden)" in table and "10.0.0.7" in table and "5 lost" in table
    assert "500000 denied from 9 addresses" in table
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]


def test_log_is_narrowed(shell: Shell) -> None:
    record(shell, *(made(n, who="app" if n == 3 else "ops") for n in range(20)))

    def targets(*options: str) -> list[str]:
        lines = shell.ok("audit", "-o", "json", *options).splitlines()
        return [json.loads(line)["target"] for line in lines]

    assert targets("-n", "2") == ["/topics/t18", "/topics/t19"]
    assert targets("--key", "app", "-n", "2") == ["/topics/t3"]
    assert targets("--outcome", "denied") == []
    assert len(targets("--since", "2020-01-01T00:00:00Z", "--action", "deleteTopic")) == 20
    assert shell.run("audit", "--outcome", "strange").exit_code == 1


def test_nothing_recorded_is_no_error(shell: Shell) -> None:
    assert "Nothing is recorded" in shell.ok("audit", "-o", "table")
