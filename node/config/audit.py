"""What a node does for the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from node.config.option import duration_ms, flag, option, size_bytes

AUTO = "auto"
DAY_MS = 86_400_000
MIB = 1 << 20


def flag_or_auto(raw: object) -> str:
    """`auto`, `true` or `false`."""
    return AUTO if raw == AUTO else str(flag(raw)).lower()


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Records of the topic `__audit`. Every node should say the same."""

    enabled: str = option(
        AUTO,
        key="audit.enabled",
        parse=flag_or_auto,
        why="auto: kept where auth.enabled is on; without keys it can name addresses only",
    )
    retention_ms: int = option(
        90 * DAY_MS,
        key="audit.retention",
        parse=duration_ms,
        unit="ms",
        low=60_000,
        why="long enough to look into what is noticed late",
    )
    retention_bytes: int = option(
        256 * MIB,
        key="audit.retentionBytes",
        parse=size_bytes,
        unit="bytes",
        low=MIB,
        why="about a million records; keys that are refused something make records too",
    )

    def is_kept(self, *, has_keys: bool) -> bool:
        return has_keys if self.enabled == AUTO else self.enabled == "true"
