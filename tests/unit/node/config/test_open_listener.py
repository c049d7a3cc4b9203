"""Whether a node may serve whoever reaches it, and what the next start is told."""

from __future__ import annotations

import random

import pytest

from log.disk.memory import MemoryDisk
from node.config.file import load_config
from node.config.node import NodeConfig
from node.config.open_listener import NOT_OPEN, is_open, refusal, remember, warning

ROOT = "/data"
BEYOND = {"broker.listeners.http": ":8080"}
LOOPBACK = {"broker.listeners.http": "127.0.0.1:8080"}


def config(**settings: object) -> NodeConfig:
    return load_config(env={}, overrides={"broker.dataDir": ROOT, **settings})


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def use(disk: MemoryDisk) -> None:
    """As a node does when it opens its data."""
    disk.make_directories(f"{ROOT}/wal")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        (LOOPBACK, False),
        ({"broker.listeners.http": "[::1]:8080"}, False),
        ({"broker.listeners.http": "localhost:8080"}, False),
        (BEYOND, True),
        ({"broker.listeners.http": "[::]:8080"}, True),
        ({"broker.listeners.http": "10.0.0.1:8080"}, True),
        ({"broker.listeners.http": "broker-1:8080"}, True),
        ({**BEYOND, "auth.enabled": True}, False),
        ({**BEYOND, "tls.enabled": True, "tls.certFile": "c", "tls.keyFile": "k"}, True),
        (
            {
                **BEYOND,
                "tls.enabled": True,
                "tls.certFile": "c",
                "tls.keyFile": "k",
                "tls.caFile": "a",
            },
            False,
        ),
    ],
)
def test_open_is_who_listens_beyond_loopback_and_asks_nobody_who_they_are(
    settings: dict[str, object], expected: bool, disk: MemoryDisk
) -> None:
    assert is_open(config(**settings)) is expected
    assert bool(refusal(config(**settings), disk)) is expected


def test_a_refusal_says_what_to_do(disk: MemoryDisk) -> None:
    told = refusal(config(**BEYOND), disk)

    for word in ("auth.enabled", "127.0.0.1:8080", "--insecure-open", "GOQUEUE_AUTH_INSECURE_OPEN"):
        assert word in told


def test_who_says_that_it_is_meant_is_neither_refused_nor_warned(disk: MemoryDisk) -> None:
    meant = config(**BEYOND, **{"auth.insecureOpen": True})

    assert refusal(meant, disk) == warning(meant) == ""


def test_a_directory_that_was_served_openly_goes_on_with_a_warning(disk: MemoryDisk) -> None:
    use(disk)
    remember(config(**BEYOND, **{"auth.insecureOpen": True}), disk)

    assert refusal(config(**BEYOND), disk) == ""
    assert "auth.insecureOpen" in warning(config(**BEYOND))


def test_a_directory_of_a_release_that_kept_no_note_goes_on(disk: MemoryDisk) -> None:
    use(disk)

    assert refusal(config(**BEYOND), disk) == ""


@pytest.mark.parametrize("before", [LOOPBACK, {**BEYOND, "auth.enabled": True}])
def test_a_directory_that_was_not_served_openly_is_not_from_now_on(
    disk: MemoryDisk, before: dict[str, object]
) -> None:
    use(disk)
    remember(config(**before), disk)

    assert refusal(config(**BEYOND), disk)
    assert refusal(config(**before), disk) == warning(config(**before)) == ""


def test_the_note_is_of_the_last_start_and_survives_a_power_cut(disk: MemoryDisk) -> None:
    use(disk)
    remember(config(**LOOPBACK), disk)
    disk = disk.crash(random.Random(1), keep=0.0)
    assert disk.exists(f"{ROOT}/{NOT_OPEN}")

    remember(config(**BEYOND), disk)
    assert not disk.exists(f"{ROOT}/{NOT_OPEN}")
