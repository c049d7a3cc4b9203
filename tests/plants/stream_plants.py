"""Bugs of streams: what is confirmed, how much is delivered, and how streams end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from node.http.stream.session import End
from tests.plants.plant import Plant, always

Call = Callable[..., Any]
SETTLING = "tests/unit/node/http/stream/test_settling.py::"
STREAM = "tests/unit/node/http/stream/test_stream.py::"
ENDS = "tests/unit/node/http/stream/test_ends.py::"


def _confirmed_before_the_commit(_original: Call) -> Call:
    async def run(self: Any, batch: Any) -> None:
        for asked in batch.frames:
            asked.outcomes = list(asked.entries)
        batch.is_done = True
        await self._confirm_all()
        await self._settle([entry for asked in batch.frames for entry in asked.entries])

    return run


def _confirmed_as_they_commit(_original: Call) -> Call:
    async def confirm_all(self: Any) -> None:
        for batch in [one for one in self._batches if one.is_done]:
            self._batches.remove(batch)
            for asked in batch.frames:
                await self._confirm(asked)
                self._done(asked)

    return confirm_all


def _all_credit_again(_original: object) -> property:
    return property(lambda self: self.totals.messages)


def _closed_is_lost(original: Call) -> Call:
    def closed(kind: Any, code: int | None) -> End:
        end: End = original(kind, code)
        return end._replace(returned=False)

    return closed


STREAM_PLANTS = (
    Plant(
        "settle-confirmed-before-its-commit",
        "node.http.stream.settling:Settling._run",
        _confirmed_before_the_commit,
        SETTLING + "test_nothing_is_confirmed_before_its_entry_was_applied",
    ),
    Plant(
        "settle-confirmed-out-of-order",
        "node.http.stream.settling:Settling._confirm_all",
        _confirmed_as_they_commit,
        SETTLING + "test_what_commits_early_waits_for_what_came_before_it",
    ),
    Plant(
        "stream-credit-exceeded",
        "node.http.stream.credit:Outstanding.messages_left",
        _all_credit_again,
        STREAM + "test_no_more_is_delivered_than_there_is_credit_for",
    ),
    Plant(
        "stream-closed-in-order-counts-an-attempt",
        "node.http.stream.session:_closed",
        _closed_is_lost,
        ENDS + "test_a_client_that_closes_in_order_gives_back_as_if_nothing_had_been",
    ),
    Plant(
        "stream-silent-for-ever",
        "node.http.stream.session:Session.look",
        always(False),
        ENDS + "test_a_client_that_is_silent_is_lost_and_one_that_answers_pings_is_not",
    ),
)
