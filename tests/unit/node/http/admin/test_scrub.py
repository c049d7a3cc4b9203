"""`/admin/scrub`: how it goes on each node, and to have it done now."""

from __future__ import annotations

from node.api.scrub import ScrubView
from tests.one_node import until


async def test_a_scrub_is_begun_and_told_for_every_node(client, broker):
    begun = await client.post("/v1/admin/scrub")
    assert begun.status == 202

    found = await until(lambda: client.get("/admin/scrub"), lambda a: a.json["state"] == "idle")
    [node] = found.json["nodes"]
    assert (node["id"], node["state"], node["rounds"]) == (broker.node.node_id, "idle", 1)


async def test_a_node_that_does_not_answer_is_unknown_and_damage_is_the_state(
    client, broker, monkeypatch
):
    async def scrub(*, begin: bool) -> dict[str, ScrubView | None]:
        return {
            "a": ScrubView(running=False, rounds=2, ended_ms=1_700_000_000_000, damaged=["t-0"]),
            "b": None,
        }

    monkeypatch.setattr(broker.scrubs, "scrub", scrub)
    found = (await client.get("/v1/admin/scrub")).json

    assert found["state"] == "damaged"
    assert [node["state"] for node in found["nodes"]] == ["idle", "unknown"]
    assert found["nodes"][0]["ended_at"] == "2023-11-14T22:13:20.000Z"


async def test_while_any_node_reads_the_state_is_running(client, broker, monkeypatch):
    async def scrub(*, begin: bool) -> dict[str, ScrubView | None]:
        return {"a": ScrubView(running=True, rounds=0, damaged=["t-0"])}

    monkeypatch.setattr(broker.scrubs, "scrub", scrub)
    assert (await client.get("/admin/scrub")).json["state"] == "running"
