"""One topic in an archive: which of the topics of its name, and what of it is committed by now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from goqueue.archive.arrow_store import ArrowStore
from goqueue.archive.layout import ROOT, Kind, Series
from goqueue.archive.manifest import File, Manifest, newest, topic_ids
from goqueue.archive.rows import read_messages
from goqueue.models.messages import Message
from goqueue.wire.errors import BadRequest, NotFound


class ArchivedTopic:
    """The messages of one topic id, opened when first asked for. What blocks is done on threads."""

    def __init__(
        self, url: str, topic: str, topic_id: str | None = None, *, is_live: bool = False
    ) -> None:
        """Of a topic that `is_live`, nothing need be archived yet. Without an id: the only topic
        of this name that the archive has."""
        self.url = url
        self.others: list[str] = []
        """The ids of other topics of the same name that the archive holds, once it is open."""
        self._topic, self._topic_id, self._is_live = topic, topic_id, is_live
        self._opened: tuple[ArrowStore, Manifest] | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> Manifest:
        """The manifest read last.

        Opens the archive: raises ExtraMissing, BadRequest, NotFound, UnreadableArchive.
        """
        return (await self._open())[1]

    async def refresh(self) -> Manifest:
        """The newest manifest, the current one from now on."""
        store, manifest = await self._open()
        manifest = await asyncio.to_thread(newest, store, manifest.series)
        self._opened = store, manifest
        return manifest

    async def messages(self, file: File, first: int) -> AsyncGenerator[list[Message], None]:
        """The file's messages from an offset on, in runs; see `read_messages`."""
        store, manifest = await self._open()
        rows = read_messages(store, manifest.series, file, first)
        try:
            while (run := await asyncio.to_thread(next, rows, None)) is not None:
                yield run
        finally:
            await asyncio.to_thread(rows.close)

    async def _open(self) -> tuple[ArrowStore, Manifest]:
        async with self._lock:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._find)
            return self._opened

    def _find(self) -> tuple[ArrowStore, Manifest]:
        store = ArrowStore(self.url)
        ids = topic_ids(store, Kind.MESSAGES, self._topic)
        chosen = self._topic_id or self._only(ids)
        if not ids and not store.names(ROOT):
            raise NotFound(f"there is no archive at {self.url}")
        if chosen not in ids and not self._is_live:
            raise NotFound(f"the archive has no topic {self._topic} with id {chosen}")
        try:
            series = Series(Kind.MESSAGES, self._topic, chosen)
        except ValueError as error:
            raise BadRequest(str(error)) from None
        self.others = [known for known in ids if known != chosen]
        return store, newest(store, series)

    def _only(self, ids: Sequence[str]) -> str:
        if not ids:
            raise NotFound(f"the archive at {self.url} has no topic {self._topic}")
        if len(ids) > 1:
            raise BadRequest(
                f"{len(ids)} topics were called {self._topic}: choose one by its id"
                f" ({', '.join(ids)})"
            )
        return ids[0]
