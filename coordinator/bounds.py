"""Bounds that commands and the settings of topics share."""

from __future__ import annotations

PARTITIONS_MAX = 10_000
PARTITIONS_MAX_BASE = 1024
"""Of a topic; and below the level of `Feature.MANY_PARTITIONS`, whose nodes refuse more."""
