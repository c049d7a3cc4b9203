"""Where the archive keeps what: folders and names, relative to the archive's destination.

    archive/v1/kind=messages/topic=T/id=I/date=D/partition=NNNNN/T+NNNNN+first-last.parquet
    archive/v1/kind=messages/topic=T/id=I/_manifest/<version>.json.zst
    archive/v1/kind=messages/topic=T/id=I/_staging/<run>/...

The first form is Hive's, so that every engine finds its partitions. Names that begin with an
underscore are hidden from such engines. Numbers are padded, so that names sort as they do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Final

from goqueue.wire.ids import is_name
from goqueue.wire.types import TopicId

ROOT: Final = "archive/v1"
MANIFESTS: Final = "_manifest"
STAGING: Final = "_staging"
TEMPORARY: Final = f"{ROOT}/_temporary"
"""Files on their way to a name, of stores that need that."""
MANIFEST_SUFFIX: Final = ".json.zst"

PARTITION_DIGITS: Final = 5
NUMBER_DIGITS: Final = 19
"""Of offsets and indexes: as many as 2**63 - 1 has."""
VERSION_DIGITS: Final = 12

_FILE = re.compile(r"(.+)\+(\d{5,10})\+(\d{19})-(\d{19})\.parquet", re.ASCII)
_MANIFEST = re.compile(r"(\d{12})\.json\.zst", re.ASCII)


class Kind(StrEnum):
    """What a file holds: a topic's messages, or the events of their timelines."""

    MESSAGES = "messages"
    EVENTS = "events"


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """What one sequence of manifests describes: one kind of one topic.

    A topic that is deleted and created again has another id, and so another series.
    """

    kind: Kind
    topic: str
    topic_id: str

    def __post_init__(self) -> None:
        """Raises ValueError on what could lead out of the archive's folders."""
        if not is_name(self.topic.removeprefix("__")):
            raise ValueError(f"not a topic's name: {self.topic!r}")
        TopicId.parse(self.topic_id)

    @property
    def folder(self) -> str:
        """Where everything of this series is."""
        return f"{topic_folder(self.kind, self.topic)}/id={self.topic_id}"

    @property
    def manifest_folder(self) -> str:
        return f"{self.folder}/{MANIFESTS}"

    @property
    def staging_folder(self) -> str:
        """Below it, each run that writes has a folder of its own, which nobody else reads."""
        return f"{self.folder}/{STAGING}"

    def manifest_path(self, version: int) -> str:
        """The manifest of this version, from 1."""
        return f"{self.manifest_folder}/{version:0{VERSION_DIGITS}d}{MANIFEST_SUFFIX}"

    def data_folder(self, day: date, partition: int) -> str:
        """Below the series' folder: where a partition's files of one day are."""
        return f"date={day.isoformat()}/partition={partition:0{PARTITION_DIGITS}d}"

    def data_path(self, day: date, partition: int, first: int, last: int) -> str:
        """Below the series' folder: the one name that a file of this range can have."""
        return f"{self.data_folder(day, partition)}/{file_name(self.topic, partition, first, last)}"


@dataclass(frozen=True, slots=True, order=True)
class FileRange:
    """What a file's name tells: `first` to `last`, both within, of one partition."""

    partition: int
    first: int
    last: int


def kind_folder(kind: Kind) -> str:
    """Where the topics of a kind are."""
    return f"{ROOT}/kind={kind}"


def topic_folder(kind: Kind, topic: str) -> str:
    """Where the ids that a topic's name has had are, one folder `id=...` each."""
    return f"{kind_folder(kind)}/topic={topic}"


def file_name(topic: str, partition: int, first: int, last: int) -> str:
    """`T+NNNNN+first-last.parquet`. The cluster's own topics lose their leading underscores
    here: engines take files that begin with one for hidden."""
    number = f"0{NUMBER_DIGITS}d"
    stem = f"{topic.lstrip('_')}+{partition:0{PARTITION_DIGITS}d}"
    return f"{stem}+{first:{number}}-{last:{number}}.parquet"


def parse_file_name(name: str) -> FileRange | None:
    """What the name of a data file tells, or None where it is none."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    found = FileRange(int(match[2]), int(match[3]), int(match[4]))
    return found if found.first <= found.last else None


def is_below(path: str) -> bool:
    """Whether a path that a manifest names stays below its series' folder, and leads to nothing
    that is hidden there. A manifest is written by whoever may write to the store."""
    if "\\" in path or "\0" in path:
        return False
    return all(part not in ("", ".", "..") and part[0] != "_" for part in path.split("/"))


def parse_manifest_name(name: str) -> int | None:
    """The version of a manifest, or None for anything else that lies beside them."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match is not None and int(match[1]) > 0 else None


def parse_id_folder(name: str) -> str | None:
    """The topic id that a folder `id=...` is of, or None where it is none."""
    prefix, _, text = name.partition("=")
    try:
        return str(TopicId.parse(text)) if prefix == "id" else None
    except ValueError:
        return None


def parse_topic_folder(name: str) -> str | None:
    """The topic that a folder `topic=...` is of, or None where it is none."""
    prefix, _, topic = name.partition("=")
    return topic if prefix == "topic" and is_name(topic.removeprefix("__")) else None


def day_of(time_ms: int) -> date:
    """The day, in UTC, of a time in Unix milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()
