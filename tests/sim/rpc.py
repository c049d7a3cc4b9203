"""What one simulated node asks of another: lost where their link lets nothing through."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from goqueue.wire.types import NodeId

if TYPE_CHECKING:
    from tests.sim.process import Process

HOP_S = 0.001
SLOW = 0.1
SLOW_S = 1.2
"""One in so many takes up to so long, while faults strike."""

Reply = Callable[[object], object]
Serve = Callable[["Process", Reply], None]


def call(source: Process, target: NodeId, serve: Serve, ended: Reply, timeout_s: float) -> None:
    """Let `serve` run in the process at the target; `ended` gets what it replies, or None where
    no answer came in time. Nothing happens in processes that are paused or dead."""
    world, over = source.world, False

    def end(answer: object) -> None:
        nonlocal over
        if not over:
            over = True
            ended(answer)

    def arrive() -> None:
        process = world.machines.process(target)
        if process is None or not world.net.reaches(source.node, target):
            return

        def reply(answer: object) -> None:
            if process.network.alive and world.net.reaches(target, source.node):
                world.loop.call_later(HOP_S, source.time.call_soon, end, answer)

        process.time.call_soon(serve, process, reply)

    rng, hop_s = world.rng("rpc"), HOP_S
    if not world.is_quiet and rng.random() < SLOW:
        hop_s = rng.uniform(HOP_S, SLOW_S)
    world.loop.call_later(hop_s, arrive)
    source.time.call_later(timeout_s, end, None)
