"""A node that is to begin anew: its data set aside, another incarnation, in the same process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.wire.types import CLUSTER_GROUP
from log.store.directory import Store
from node import server
from node.config.file import load_config
from node.config.node import NodeConfig
from node.server import EXIT_OK, run_node


class Lives:
    """Stands in for a node: what each of its lives found, and what it does in it."""

    def __init__(self, *acts: Callable[[Callable[[], None]], None]) -> None:
        self._acts = list(acts)
        self.incarnations: list[int] = []
        self.groups: list[int] = []

    def assemble(self, _config: NodeConfig, store: Store, **told: Any) -> SimpleNamespace:
        self.incarnations.append(store.incarnation)
        self.groups.append(len(store.partition_ids()))
        if not store.partition_ids():
            store.create_log(CLUSTER_GROUP)

        async def start() -> None:
            self._acts.pop(0)(told["begin_anew"])

        async def stop() -> None:
            store.close()

        async def nothing(_timeout_s: float) -> None:
            return None

        return SimpleNamespace(
            services=SimpleNamespace(start=start, stop=stop),
            status=SimpleNamespace(stopping=False),
            front=SimpleNamespace(begin_stop=lambda: None),
            maintenance=SimpleNamespace(hand_over_all=nothing),
        )


def terminate(_anew: Callable[[], None]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def lived(lives: Lives, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(server, "assemble", lives.assemble)
    return await run_node(load_config(env={}, overrides={"broker.dataDir": str(folder)}))


async def test_it_sets_its_data_aside_and_starts_as_another_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Lives(lambda anew: anew(), terminate)

    assert await lived(lives, tmp_path, monkeypatch) == EXIT_OK

    first, second = lives.incarnations
    assert first != second
    assert lives.groups == [0, 0]
    assert list((tmp_path / "set-aside").iterdir())


async def test_a_restart_finds_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Lives(terminate)
    assert await lived(lives, tmp_path, monkeypatch) == EXIT_OK

    again = Lives(terminate)
    assert await lived(again, tmp_path, monkeypatch) == EXIT_OK

    assert again.incarnations == lives.incarnations
