"""The tables of `goqueue-cli group`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cli.output.formats import Column, Row, age_text
from cli.output.stale import or_stale
from cli.run.session import Json


def age(field: str) -> Callable[[Row], str | None]:
    """A cell of a field that holds seconds."""

    def text(row: Row) -> str | None:
        seconds = row.get(field)
        return None if seconds is None else age_text(seconds * 1000)

    return text


def age_ms(field: str) -> Callable[[Row], str | None]:
    """A cell of a field that holds milliseconds."""

    def text(row: Row) -> str | None:
        found = row.get(field)
        return None if found is None else age_text(found)

    return text


def places_text(places: Iterable[Json]) -> str:
    """`orders:0,3 returns:1`: the partitions of each topic."""
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place["topic"], []).append(int(place["partition"]))
    return " ".join(
        f"{topic}:{','.join(map(str, sorted(numbers)))}"
        for topic, numbers in sorted(by_topic.items())
    )


def _setting(name: str) -> Callable[[Row], object]:
    return lambda row: row["settings"].get(name)


GROUP_COLUMNS = (
    Column("GROUP", "name"),
    Column("STATE", "state"),
    Column("MEMBERS", "members"),
    Column("GENERATION", "generation"),
    Column("LAG", "total_lag"),
    Column("BEHIND", age("max_lag_seconds")),
    Column("CREATED", "created_at"),
    Column("OWNER", "owner", wide=True),
    Column("TOPICS", "topics", wide=True),
    Column("MODE", _setting("mode"), wide=True),
    Column("VISIBILITY", _setting("visibility_timeout"), wide=True),
    Column("ATTEMPTS", _setting("max_attempts"), wide=True),
    Column("ORDERING", _setting("ordering"), wide=True),
)
MEMBER_COLUMNS = (
    Column("MEMBER", "member_id", whole=True),
    Column("CLIENT", "client_id"),
    Column("HOST", "host"),
    Column("PARTITIONS", lambda row: places_text(row["assignment"])),
    Column("LETTING GO", lambda row: places_text(row.get("revoking") or ())),
    Column("JOINED", "joined_at"),
    Column("LAST HEARTBEAT", "last_heartbeat"),
    Column("INSTANCE", "instance_id", wide=True),
    Column("SESSION", age_ms("session_timeout_ms"), wide=True),
)
PARTITION_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("COMMITTED", "committed_offset"),
    Column("END", "end_offset"),
    Column("LAG", "lag"),
    Column("BEHIND", age("lag_seconds")),
    Column("READY", or_stale("ready")),
    Column("IN FLIGHT", "in_flight"),
    Column("WAITING", "waiting"),
    Column("DEAD", "dead"),
    Column("OWNER", "owner"),
    Column("HALTED", lambda row: row.get("halted") or "no"),
    Column("DELAYED", "delayed", wide=True),
    Column("ACKED", "acked", wide=True),
    Column("NACKED", "nacked", wide=True),
    Column("REJECTED", "rejected", wide=True),
    Column("EXPIRED", "expired", wide=True),
    Column("DELIVERED", "delivered", wide=True),
)
LAG_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("COMMITTED", "committed_offset"),
    Column("END", "end_offset"),
    Column("LAG", "lag"),
    Column("BEHIND", age("lag_seconds")),
    Column("IN FLIGHT", "in_flight"),
    Column("DELAYED", "delayed"),
    Column("DEAD", "dead"),
    Column("OWNER", "owner"),
    Column("GENERATION", "generation", wide=True),
)
OFFSET_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("OFFSET", "committed_offset"),
    Column("END", "end_offset"),
    Column("LAG", "lag"),
    Column("OWNER", "owner", wide=True),
)
RESET_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("BEFORE", "before"),
    Column("AFTER", "after"),
    Column("REPLAYED", "replayed"),
    Column("SKIPPED", "skipped"),
)
REBALANCE_COLUMNS = (
    Column("ID", "id"),
    Column("CAUSE", "cause"),
    Column("STARTED", "started_at"),
    Column("DURATION", lambda row: age_ms("duration_ms")(row) or row["state"]),
    Column("MOVED", "moved"),
    Column("LONGEST PAUSE", lambda row: longest_pause(row)),
    Column("MEMBERS", "members", wide=True),
)
MOVE_COLUMNS = (
    Column("ID", "id"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("FROM", "from"),
    Column("TO", "to"),
    Column("PAUSE", age_ms("pause_ms")),
    Column("IN FLIGHT", "in_flight"),
    Column("FENCED", "fenced"),
)
PARKED_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("KEY", "key"),
    Column("WAITING", "waiting"),
)


def longest_pause(rebalance: Row) -> str | None:
    """Of all its moves; None where nothing moved."""
    pauses_ms = [move["pause_ms"] for move in rebalance["moves"]]
    return age_text(max(pauses_ms)) if pauses_ms else None
