"""Where a node exports spans to; GoQueue's keys."""

# ruff: noqa: RUF009 - `option` is `dataclasses.field` with a description

from __future__ import annotations

from dataclasses import dataclass, field

from node.config.option import duration_ms, flag, labels, option, text


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """OTLP over HTTP. Timelines, which are in the log, need none of it."""

    enabled: bool = option(
        False,
        key="tracing.otlp.enabled",
        parse=flag,
        why="a collector is a choice; requests that carry a sampled trace context make spans then",
    )
    endpoint: str = option(
        "http://127.0.0.1:4318",
        key="tracing.otlp.endpoint",
        parse=text,
        why="the standard port of OTLP over HTTP; /v1/traces is added where it is missing",
    )
    headers: dict[str, str] = option(
        {},
        key="tracing.otlp.headers",
        parse=labels,
        why="of every export, as collectors that ask for a key want it; NAME=VALUE,... or a map",
    )
    flush_ms: int = option(
        5000,
        key="tracing.otlp.flushInterval",
        parse=duration_ms,
        unit="ms",
        low=100,
        high=60_000,
        why="GoQueue's; spans are sent in batches",
    )
    service_name: str = option(
        "goqueue",
        key="tracing.otlp.serviceName",
        parse=text,
        why="GoQueue's default",
    )


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """What is told of messages beside the log."""

    otlp: OtlpConfig = field(default_factory=OtlpConfig)
