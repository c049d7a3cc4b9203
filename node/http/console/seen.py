"""The census as one visitor may see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from node.api.auth.principal import Principal
from node.http.console.census import Census, Point, Sweep, TopicFigures


class SeenCensus:
    """As `Census`, without the topics beyond the visitor's key; None is a visitor without one,
    where the doors are open."""

    __slots__ = ("_census", "_principal")

    def __init__(self, census: Census, principal: Principal | None) -> None:
        self._census = census
        self._principal = principal

    async def all(self) -> Sweep:
        sweep = await self._census.all()
        if self._principal is None or self._principal.is_everywhere:
            return sweep
        mine = [figures for figures in sweep.topics if self._principal.covers(figures.topic)]
        return replace(sweep, topics=mine)

    async def some(self, names: Iterable[str]) -> dict[str, TopicFigures]:
        return await self._census.some([name for name in names if self._covers(name)])

    async def topic(self, name: str) -> TopicFigures:
        """Raises OutOfScope, and what `Census.topic` does."""
        self._require(name)
        return await self._census.topic(name)

    def points(self, name: str) -> list[Point]:
        """Raises OutOfScope."""
        self._require(name)
        return self._census.points(name)

    def _covers(self, name: str) -> bool:
        return self._principal is None or self._principal.covers(name)

    def _require(self, name: str) -> None:
        if self._principal is not None:
            self._principal.require(name)
