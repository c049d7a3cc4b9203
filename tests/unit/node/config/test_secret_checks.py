"""Secrets that could be guessed found no cluster, and files that others may read are warned of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from log.disk.memory import MemoryDisk
from node.config.file import load_config
from node.config.node import NodeConfig
from node.config.secret_checks import SECRET_CHARACTERS_MIN, founding_refusal, warnings
from tests.unit.node.test_node import config as node_config
from tests.unit.node.test_node import eventually, running

LONG = "s" * SECRET_CHARACTERS_MIN
SHORT = LONG[1:]


def config(**settings: object) -> NodeConfig:
    return load_config(env={}, overrides=settings)


def test_short_secret_founds_no_cluster_and_a_long_one_or_none_does() -> None:
    assert "31 characters" in founding_refusal(config(**{"cluster.secret": SHORT}))
    assert founding_refusal(config(**{"cluster.secret": LONG})) == ""
    assert founding_refusal(config()) == ""


async def test_cluster_that_was_founded_with_a_short_secret_goes_on_and_warns() -> None:
    disk = MemoryDisk()
    peers = {"broker.listeners.internal": "127.0.0.1:0"}
    short = node_config(**peers, **{"cluster.secret": SHORT})

    async with running(disk, short, wait=False) as node:
        await eventually(lambda: "31 characters" in str(node.broker.node.ready()))
        assert node.broker.node.cluster_view().cluster_id == ""
    async with running(disk, node_config(**peers, **{"cluster.secret": LONG})) as node:
        founded = node.broker.node.cluster_view()
        assert founded.warnings == ()
    async with running(disk, short) as node:
        view = node.broker.node.cluster_view()

    assert view.cluster_id == founded.cluster_id
    assert [warning.partition(",")[0] for warning in view.warnings] == [
        "cluster.secret has 31 characters"
    ]


@pytest.mark.parametrize(
    ("mode", "whom"),
    [
        (0o600, ""),
        (0o400, ""),
        (0o644, "every user"),
        (0o604, "every user"),
        (0o602, "every user"),
        (0o640, "group"),
        (0o660, "group"),
    ],
)
@pytest.mark.parametrize("key", ["cluster.secretFile", "auth.adminKeyFile", "tls", "cluster.tls"])
def test_file_that_others_may_use_is_warned_of(
    tmp_path: Path, key: str, mode: int, whom: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(LONG)
    path.chmod(mode)
    settings: dict[str, object] = {key: str(path)}
    if key.endswith("tls"):
        settings = {
            f"{key}.enabled": True,
            f"{key}.certFile": "c",
            f"{key}.caFile": "a",
            f"{key}.keyFile": str(path),
        }

    found = warnings(config(**settings))

    assert len(found) == bool(whom)
    assert all(key in text and whom in text and "chmod 600" in text for text in found)


def test_pod_may_read_what_its_secret_gives_to_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cluster-secret"
    path.write_text(LONG)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    def found(mode: int) -> int:
        path.chmod(mode)
        return len(warnings(config(**{"cluster.secretFile": str(path)})))

    assert [found(mode) for mode in (0o440, 0o640, 0o644, 0o460)] == [0, 0, 1, 1]


def test_file_that_is_not_there_is_somebody_else_s_to_tell() -> None:
    tls = {"tls.enabled": True, "tls.certFile": "c", "tls.keyFile": "/nowhere/key"}

    assert warnings(config(**tls)) == ()
