"""Clusters for the tests of this folder, and the rule that none outlives its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Cluster

Start = Callable[..., Cluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a cluster of real processes and waits until it serves."""
    started: list[Cluster] = []

    def begin(size: int = 3, *settings: str, auto_create: bool = True) -> Cluster:
        cluster = Cluster(
            tmp_path / f"cluster-{len(started)}", size, settings, auto_create=auto_create
        )
        started.append(cluster)
        return cluster.start()

    yield begin
    for cluster in started:
        cluster.__exit__()
