"""GoQueue's options that are accepted, and warned about, until what they control exists."""

# ruff: noqa: RUF009 - `option` is `dataclasses.field` with a description

from __future__ import annotations

from dataclasses import dataclass

from node.config_option import (
    Address,
    address,
    duration_ms,
    flag,
    integer,
    names,
    option,
    text,
)

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Receiving with leases; accepted for files written for GoQueue."""

    visibility_timeout_ms: int = option(
        30_000,
        key="defaults.delivery.visibilityTimeout",
        parse=duration_ms,
        unit="ms",
        effect=False,
        why="GoQueue's default",
    )
    max_retries: int = option(
        3,
        key="defaults.delivery.maxRetries",
        parse=integer,
        effect=False,
        why="GoQueue's default",
    )
    dlq_enabled: bool = option(
        True,
        key="defaults.delivery.dlqEnabled",
        parse=flag,
        effect=False,
        why="GoQueue's default",
    )
    delay_enabled: bool = option(
        True, key="defaults.delay.enabled", parse=flag, effect=False, why="GoQueue's default"
    )
    max_delay_ms: int = option(
        604_800_000,
        key="defaults.delay.maxDelay",
        parse=duration_ms,
        unit="ms",
        effect=False,
        why="168 h, GoQueue's default",
    )
    lanes: int = option(
        5,
        key="defaults.priority.lanes",
        parse=integer,
        low=1,
        high=5,
        effect=False,
        why="critical, high, normal, low, background; always all five",
    )
    grpc_listen: Address = option(
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
