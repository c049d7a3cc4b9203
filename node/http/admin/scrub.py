"""Reading again what is stored: how it goes on each node, and to have it done now."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from node.api.scrub import ScrubView
from node.api.times import format_time
from node.http.request.call import Call, answer


class NodeScrub(Struct):
    """One node's. The figures are of the round that runs, or of the last one. `state` is running,
    idle, or unknown where the node does not answer."""

    id: str
    state: str
    rounds: int
    started_at: str | None
    ended_at: str | None
    bytes_total: int
    bytes_done: int
    damaged_entries: int
    mended_files: int
    ranges_compared: int
    found: list[str]
    damaged: list[str]
    diverged: list[str]


class ScrubAnswer(Struct):
    """`state` is running, idle, or damaged: idle, and something waits for repair."""

    state: str
    nodes: list[NodeScrub]


async def status(call: Call) -> web.Response:
    return answer(_answer(await call.broker.scrubs.scrub(begin=False)))


async def begin(call: Call) -> web.Response:
    """202: every node that answers reads everything it stores, once more after a running round."""
    return answer(_answer(await call.broker.scrubs.scrub(begin=True)), 202)


def _answer(views: dict[str, ScrubView | None]) -> ScrubAnswer:
    nodes = [_node(node, view) for node, view in sorted(views.items())]
    if any(node.state == "running" for node in nodes):
        state = "running"
    else:
        state = "damaged" if any(node.damaged or node.diverged for node in nodes) else "idle"
    return ScrubAnswer(state, nodes)


def _node(node: str, view: ScrubView | None) -> NodeScrub:
    known = view or ScrubView(running=False, rounds=0)
    state = "unknown" if view is None else "running" if view.running else "idle"
    return NodeScrub(
        id=node,
        state=state,
        rounds=known.rounds,
        started_at=format_time(known.started_ms) if known.started_ms else None,
        ended_at=format_time(known.ended_ms) if known.ended_ms else None,
        bytes_total=known.bytes_total,
        bytes_done=known.bytes_done,
        damaged_entries=known.damaged_entries,
        mended_files=known.mended_files,
        ranges_compared=known.ranges_compared,
        found=known.found,
        damaged=known.damaged,
        diverged=known.diverged,
    )
