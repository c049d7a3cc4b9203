"""Upgrades: which versions run, which feature levels they speak, and finishing the next one."""

from __future__ import annotations

import msgspec
from aiohttp import web
from msgspec import Struct

from node.api.upgrade import LevelsView
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body


class BrokerVersionAnswer(Struct):
    """A broker's version and the levels that it speaks; `status` is alive, dead or wiped."""

    id: str
    version: str
    status: str
    lowest_level: int
    highest_level: int


class ClusterVersion(Struct):
    """What runs. `finished_level` is what may be used; `next_level` what an upgrade would finish,
    the same where there is nothing to finish; `waiting` says what must happen before."""

    version: str
    finished_level: int
    next_level: int
    brokers: list[BrokerVersionAnswer]
    waiting: list[str]


class UpgradeBody(Body):
    dry_run: bool | None = None


_UPGRADE = msgspec.json.Decoder(UpgradeBody)


async def show(call: Call) -> web.Response:
    return answer(_answer(call, await call.broker.upgrade.levels()))


async def finish(call: Call) -> web.Response:
    """With `dry_run` only what would be finished, and what it waits for. Again, it changes
    nothing."""
    wanted = await call.document(_UPGRADE, empty=b"{}")
    if wanted.dry_run:
        return answer(_answer(call, await call.broker.upgrade.levels()))
    return answer(_answer(call, await call.broker.upgrade.finish_level()))


def _answer(call: Call, view: LevelsView) -> ClusterVersion:
    brokers = [
        BrokerVersionAnswer(one.id, one.version, one.status, one.lowest_level, one.highest_level)
        for one in view.brokers
    ]
    version = call.broker.upgrade.version().version
    return ClusterVersion(version, view.finished, view.next, brokers, list(view.waiting))
