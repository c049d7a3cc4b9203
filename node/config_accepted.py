"""GoQueue's options that are accepted, and warned about, until what they control exists."""

# ruff: noqa: RUF009 - `option` is `dataclasses.field` with a description

from __future__ import annotations

from dataclasses import dataclass

from node.config_option import (
    Address,
    address,
    flag,
    names,
    option,
    text,
)

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """A listener that does not exist yet."""

    listen: Address = option(
        (LOOPBACK, 9000),
        key="broker.listeners.grpc",
        env="GOQUEUE_LISTENERS_GRPC",
        parse=address,
        effect=False,
        why="GoQueue's port; nothing listens there yet",
    )


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """Keys of GoQueue that are accepted, and warned about, until authentication exists."""

    auth_enabled: bool = option(
        False, key="auth.enabled", parse=flag, effect=False, why="authentication is to come"
    )
    allow_health: bool = option(
        True, key="auth.allowHealth", parse=flag, effect=False, why="GoQueue's default"
    )
    root_key: str = option(
        "",
        key="auth.rootKey",
        env="GOQUEUE_API_ROOT_KEY",
        parse=text,
        effect=False,
        why="authentication is to come",
    )
    acl_enabled: bool = option(
        False,
        key="auth.aclEnabled",
        env="GOQUEUE_ACL_ENABLED",
        parse=flag,
        effect=False,
        why="authorisation is to come",
    )
    trusted_proxies: list[str] = option(
        [],
        key="auth.trustedProxies",
        env="GOQUEUE_TRUSTED_PROXIES",
        parse=names,
        effect=False,
        why="no rule depends on the client's address yet",
    )
