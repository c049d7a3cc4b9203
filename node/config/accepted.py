"""GoQueue's options that are accepted, and warned about, until what they control exists."""

# ruff: noqa: RUF009 - `option` is `dataclasses.field` with a description

from __future__ import annotations

from dataclasses import dataclass

from node.config.option import Address, address, option

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """Where GoQueue listens for gRPC: here `listeners.grpc` says whether, and where."""

    listen: Address = option(
        (LOOPBACK, 9000),
        key="broker.listeners.grpc",
        env="GOQUEUE_LISTENERS_GRPC",
        parse=address,
        effect=False,
        why="GoQueue's way to say it: listeners.grpc.enabled, .host and .port count",
    )
