"""What a cluster says of a group: its members, its rebalances, what is left to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from tests.chaos.cluster import Cluster, ClusterError
from tests.chaos.group_crew import Journal
from tests.chaos.http import Http, NoAnswer

SETTLES_S = 30.0
DRAIN_S = 120.0
POLL_S = 0.1
RECEIPTS = 100
CALM_POLLS = 3


class GroupWatch:
    """Asks any node that runs. Receipts go into the journal, each once, when it is complete."""

    def __init__(self, cluster: Cluster, http: Http, group: str, journal: Journal) -> None:
        self.group = group
        self.names: dict[str, str] = {}
        """Of members, by id: the client ids that they joined with."""
        self.rebalances: list[dict[str, Any]] = []
        """Those that are done, oldest first."""
        self._cluster = cluster
        self._http = http
        self._journal = journal

    async def settled(self, members: Sequence[str]) -> None:
        """Return once these are the members, by client id, and nothing moves."""
        end = time.monotonic() + SETTLES_S
        said: dict[str, Any] = {}
        while time.monotonic() < end:
            said = await self.ask("GET", f"/groups/{self.group}")
            found = said.get("members", [])
            self.names |= {one["id"]: one["client_id"] for one in found}
            if said.get("state") == "stable" and sorted(
                one["client_id"] for one in found
            ) == sorted(members):
                return
            await asyncio.sleep(POLL_S)
        raise ClusterError(f"not settled within {SETTLES_S:.0f} s: {said}")

    async def receipts(self) -> list[dict[str, Any]]:
        """Those that are new. Call when the group is settled."""
        known = {one["id"] for one in self.rebalances}
        said = await self.ask("GET", f"/groups/{self.group}/rebalances?limit={RECEIPTS}")
        new = [one for one in reversed(said["rebalances"]) if one["id"] not in known]
        for rebalance in new:
            for move in rebalance["moves"]:
                self._journal.add(
                    "moved",
                    partition=move["partition"],
                    generation=rebalance["id"],
                    former=self._name(move["from"]),
                    member=self._name(move["to"]),
                )
        self.rebalances += new
        return new

    async def drained(self) -> None:
        """Return once the group has nothing left, in flight or dead."""
        end = time.monotonic() + DRAIN_S
        calm = 0
        left: list[dict[str, Any]] = []
        while time.monotonic() < end:
            said = await self.ask("GET", f"/groups/{self.group}/lag")
            dead = [p for p in said["partitions"] if p["dead"]]
            if dead:
                raise ClusterError(f"dead letters: {dead}")
            left = [p for p in said["partitions"] if p["lag"] or p["in_flight"]]
            calm = 0 if left else calm + 1
            if calm == CALM_POLLS:
                self._journal.add("drained")
                return
            await asyncio.sleep(POLL_S)
        raise ClusterError(f"not drained within {DRAIN_S:.0f} s: {left}")

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Of the first node that does it."""
        said: object = None
        for _ in range(100):
            for node in self._cluster.running():
                try:
                    answer = await self._http.ask(method, node.url + path, json=body)
                except NoAnswer as error:
                    said = error
                    continue
                said = answer.body
                if answer.status < 300 or answer.status == 409:
                    found: dict[str, Any] = answer.body
                    return found
            await asyncio.sleep(POLL_S)
        raise ClusterError(f"{method} {path}: {said}")

    def _name(self, id: str | None) -> str:
        return self.names.get(id, id) if id else ""
