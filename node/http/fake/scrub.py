"""The scrub of the fake broker: it keeps nothing that could be damaged, and is done at once."""

from __future__ import annotations

from node.api.scrub import ScrubView


class FakeScrub:
    """The scrub's part of `FakeBroker`."""

    node_id: str
    _rounds = 0

    async def scrub(self, *, begin: bool) -> dict[str, ScrubView | None]:
        self._rounds += begin
        return {self.node_id: ScrubView(running=False, rounds=self._rounds)}
