"""Names and numbers as requests give them, checked."""

from __future__ import annotations

from goqueue.wire.errors import BadName, BadRequest
from goqueue.wire.ids import is_name


class InvalidPartition(BadRequest):
    """A partition that no topic can have."""

    code = "invalid_partition"


def group_of(name: str) -> str:
    """The name itself. Raises BadName."""
    if not is_name(name):
        raise BadName(
            f"bad group name {name[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]{{0,248}}",
            name=name[:64],
        )
    return name
