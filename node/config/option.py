"""One configuration option: its key, its environment variable, its unit and why it is as it is."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Address = tuple[str, int]

_DURATIONS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(-?\d+(?:\.\d+)?)\s*([kmgt]?i?b)?", re.IGNORECASE)
_ORIGIN = re.compile(r"\*|https?://[a-z0-9._\-]+(:\d{1,5})?|https?://\[[0-9a-f:.]+\](:\d{1,5})?")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Option:
    """What the loader and the documentation know about one field.

    `key` is the dotted path in the YAML file, `env` the environment variable; `effect` is False
    for keys that are accepted, and warned about, because what they control does not exist yet.
    """

    key: str
    env: str
    parse: Callable[[object], object]
    why: str
    unit: str
    effect: bool
    low: float | None
    high: float | None
    choices: tuple[str, ...]

    def read(self, raw: object) -> object:
        """The value for a raw one of any source; raises `ValueError` that says what is wrong."""
        value = self.parse(raw)
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}, got {raw!r}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                raise ValueError(f"must be at least {self.low:g}, got {raw!r}")
            if self.high is not None and value > self.high:
                raise ValueError(f"must be at most {self.high:g}, got {raw!r}")
        return value


def option(
    default: T,
    *,
    key: str,
    parse: Callable[[object], object],
    why: str,
    unit: str = "",
    env: str | None = None,
    effect: bool = True,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """A dataclass field that the loader fills; `why` says the reason of the default."""
    described = Option(key, env or env_name(key), parse, why, unit, effect, low, high, choices)
    made: Any
    if isinstance(default, dict | list):
        made = field(default_factory=lambda: default, metadata={"option": described})
    else:
        made = field(default=default, metadata={"option": described})
    result: T = made
    return result


def env_name(key: str) -> str:
    """The environment variable of a key: `cluster.clientAdvertise` ->
    `GOQUEUE_CLUSTER_CLIENT_ADVERTISE`."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    return "GOQUEUE_" + snake.replace(".", "_").upper()


def text(raw: object) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return str(raw)
    raise ValueError(f"must be a text, got {raw!r}")


def node_name(raw: object) -> str:
    name = text(raw)
    if not _NODE_NAME.fullmatch(name):
        raise ValueError(
            f"must be 1 to 63 letters, digits, dots, dashes or underscores, got {raw!r}"
        )
    return name


def flag(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "yes", "on", "1"):
        return True
    if isinstance(raw, str) and raw.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"must be true or false, got {raw!r}")


def integer(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and re.fullmatch(r"-?\d{1,18}", raw.strip()):
        return int(raw)
    raise ValueError(f"must be a whole number, got {raw!r}")


def port_number(raw: object) -> int:
    """0 means any free one."""
    port = integer(raw)
    if not 0 <= port <= 65535:
        raise ValueError(f"must be a port from 0 to 65535, got {raw!r}")
    return port


def size_bytes(raw: object) -> int:
    """Bytes as a number or with a unit: `10737418240`, `10GiB`, `64 MB`."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    match = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None:
        raise ValueError(f"must be a size such as 64MiB or 10737418240, got {raw!r}")
    return int(float(match[1]) * _SIZES[(match[2] or "").lower()])


def duration_ms(raw: object) -> int:
    """Milliseconds from `50ms`, `30s`, `1h30m`, `7d`; a bare number is refused as ambiguous."""
    if isinstance(raw, str):
        at, total = 0, 0.0
        for part in _DURATION_PART.finditer(raw.strip()):
            if part.start() != at:
                break
            total += float(part[1]) * _DURATIONS_MS[part[2]]
            at = part.end()
        if at and at == len(raw.strip()):
            return round(total)
    raise ValueError(f"must be a duration such as 50ms, 30s or 168h, got {raw!r}")


def address(raw: object) -> Address:
    """(host, port) of `host:port` or `:port` (all interfaces); port 0 means any free one."""
    if not isinstance(raw, str):
        raise ValueError(f"must be host:port, got {raw!r}")
    host, colon, port = raw.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"must be host:port with a port up to 65535, got {raw!r}")
    return host.strip("[]") or "0.0.0.0", int(port)


def peers(raw: object) -> dict[str, Address]:
    """Nodes by name: `{node-1: host:7000}`, or a list or comma-separated text of `id=host:port`
    (of `host:port` alone, the first label of the host is the id)."""
    if isinstance(raw, dict):
        return {node_name(name): address(where) for name, where in raw.items()}
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list):
        raise ValueError(f"must map node ids to host:port, got {raw!r}")
    found: dict[str, Address] = {}
    for item in (text(item).strip() for item in items):
        if not item:
            continue
        name, equals, where = item.rpartition("=")
        if not equals:
            name = where.split(":")[0].split(".")[0]
            if name.isdigit():
                raise ValueError(f"an IP address needs an id: id=host:port, got {item!r}")
        if name in found:
            raise ValueError(f"names {name} twice")
        found[node_name(name)] = address(where)
    return found


def labels(raw: object) -> dict[str, str]:
    """`{name: value}`, or `name=value,name=value`."""
    if isinstance(raw, dict):
        return {text(name): text(value) for name, value in raw.items()}
    if isinstance(raw, str):
        pairs = [item.partition("=") for item in raw.split(",") if item.strip()]
        if all(equals for _, equals, _ in pairs):
            return {name.strip(): value.strip() for name, _, value in pairs}
    raise ValueError(f"must map names to values, got {raw!r}")


def names(raw: object) -> list[str]:
    """A list of texts, or comma-separated."""
    if isinstance(raw, str):
        return [item.strip() for item in raw.split(",") if item.strip()]
    if isinstance(raw, list):
        return [text(item) for item in raw]
    raise ValueError(f"must be a list, got {raw!r}")


def origins(raw: object) -> list[str]:
    """Origins as browsers write them: `https://host[:port]`; `*` is any."""
    found = names(raw)
    for origin in found:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"must list origins such as https://tools.example.com, got {origin!r}")
    return found


def networks(raw: object) -> list[str]:
    """Addresses, or networks such as 10.0.0.0/8."""
    found = names(raw)
    for one in found:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            raise ValueError(f"must list networks such as 10.0.0.0/8: {error}") from None
    return found


def flatten(tree: Mapping[str, object], leaves: frozenset[str]) -> dict[str, object]:
    """Dotted keys of a YAML tree; descends into mappings except at `leaves`, whose value is one."""
    flat: dict[str, object] = {}
    pending: list[tuple[str, object]] = [(str(key), value) for key, value in tree.items()]
    while pending:
        key, value = pending.pop(0)
        if isinstance(value, dict) and key not in leaves:
            pending.extend((f"{key}.{name}", inner) for name, inner in value.items())
        elif not (value is None and key not in leaves):
            flat[key] = value
    return flat
