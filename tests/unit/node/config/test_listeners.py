"""Listeners for other protocols: where they listen, and why a node does not start with one."""

from __future__ import annotations

import socket

import pytest

from log.disk.memory import MemoryDisk
from node.config import free_ports, listeners, open_listener
from node.config.file import ConfigError, load_config

ON = {"listeners.redis.enabled": True}


def test_they_are_off_until_they_are_wanted() -> None:
    assert list(load_config(env={}).listeners.each()) == []
    found = dict(load_config(env={"GOQUEUE_LISTENERS_REDIS_ENABLED": "true"}).listeners.each())
    assert found["redis"].port == 6379


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_is_one(port: str) -> None:
    with pytest.raises(ConfigError, match=r"listeners\.redis\.port"):
        load_config(env={}, overrides={"listeners.redis.port": port})


def test_one_whose_extra_is_missing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(listeners.EXTRAS, "redis", ("no_such_module_anywhere",))

    assert not listeners.is_installed("redis")
    assert listeners.missing(load_config(env={}).listeners) == ""
    problem = listeners.missing(load_config(env={}, overrides=ON).listeners)
    assert "pip install 'goqueue-server[redis]'" in problem


def test_a_port_that_is_taken_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = load_config(
            env={},
            overrides={**ON, "broker.listeners.http": "127.0.0.1:0", "listeners.redis.port": port},
        )
        problem = free_ports.refusal(config)
    assert f"127.0.0.1:{port} is in use" in problem
    assert "--set listeners.redis.port" in problem


def test_one_that_listens_beyond_loopback_without_keys_is_open() -> None:
    config = load_config(env={}, overrides={**ON, "listeners.redis.host": "0.0.0.0"})

    assert open_listener.is_open(config)
    assert "0.0.0.0:6379" in open_listener.refusal(config, MemoryDisk())
    assert not open_listener.is_open(load_config(env={}, overrides=ON))
    off = load_config(env={}, overrides={"listeners.redis.host": "0.0.0.0"})
    assert not open_listener.is_open(off)
