"""Bugs in what requests share: batches of many publishes, settles beside receives, looks that are
told of what has changed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

from node.http.messages.columns import Rows
from tests.plants.plant import Plant, nothing

Call = Callable[..., Any]
SHARING = "tests/unit/node/http/messages/test_sharing.py::"
SETTLING = "tests/unit/node/http/queue/test_receive_settling.py::"


def _last_is_lost(original: Call) -> Call:
    """The last of those who share a batch is told of a place, and stored nowhere."""

    def together(parts: list[Rows]) -> Rows:
        rows: Rows = original(parts[:-1] if len(parts) > 1 else parts)
        return rows

    return together


def _settled_alone(_original: Call) -> Call:
    """What a receive brings is settled, and nothing is received."""

    async def both(
        settling: Coroutine[Any, Any, Any], receiving: Coroutine[Any, Any, Any], _polled: Call
    ) -> tuple[Any, None]:
        receiving.close()
        return await settling, None

    return both


def _untold(_original: Call) -> Call:
    """An error of the receive hides that its settles were done."""
    return lambda _settled: nullcontext()


TURN_PLANTS = (
    Plant(
        "one-lost-between-shared-publishes",
        "node.http.messages.publish:together",
        _last_is_lost,
        SHARING + "test_what_comes_at_once_is_a_batch_a_partition_and_each_is_told_its_place",
    ),
    Plant(
        "settled-without-its-receive",
        "node.http.queue.receive:_both",
        _settled_alone,
        SETTLING + "test_what_came_before_is_settled_and_the_next_is_leased_by_one_entry",
    ),
    Plant(
        "settled-beside-a-refused-receive-and-untold",
        "node.http.queue.receive:_telling",
        _untold,
        SETTLING + "test_it_is_settled_where_the_receive_is_refused_and_the_error_tells",
    ),
    Plant(
        "roused-replica-not-looked-at",
        "node.runtime.looks:Looks.again",
        nothing,
        "tests/unit/node/replicas/test_local.py::"
        "test_what_is_led_here_follows_roused_replicas_at_the_cost_of_these",
    ),
    Plant(
        "refused-rest-asked-for-as-often",
        "raft.rest.replica:Rest.refused",
        nothing,
        "tests/unit/raft/test_rest.py::"
        "test_a_leader_whose_follower_never_rests_asks_it_less_and_less_often",
    ),
)
