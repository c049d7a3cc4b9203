"""How a node is configured that runs in a program's process: for one voter, and a small directory.

The environment is the program's, and so are `GOQUEUE_*` in it: none of them is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from urllib.parse import quote

from node.config.file import load_config
from node.config.node import NodeConfig

MIB = 1 << 20
WAL_FILE_BYTES = 8 * MIB
"""Made anew with each opening: large ones would cost a small directory disk and time."""
RESERVE_BYTES = 64 * MIB
"""Of free space, below which publishes are refused; no share of a disk that is the program's."""


def embedded_config(directory: str, settings: Mapping[str, object] | None = None) -> NodeConfig:
    """Of the node in this directory, with further `settings`. It has the name that
    `goqueue --data DIR` gives its node, so that a server goes on as the voter that it is."""
    config = load_config(
        env={},
        overrides={
            "broker.dataDir": directory,
            "broker.autoCreateTopics": True,
            "cluster.clientAdvertise": f"file://{quote(directory)}",
            "cluster.autoFinish": True,
            "storage.walFileBytes": WAL_FILE_BYTES,
            "storage.reserveBytes": RESERVE_BYTES,
            "storage.reservePercent": 0,
            "http.console": False,
            **(settings or {}),
        },
    )
    return dataclasses.replace(config, embedded=True)
