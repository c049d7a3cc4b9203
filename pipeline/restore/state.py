"""What a restoring run has to know again: its plan, who it publishes as, and how far it is.

One small file beside the archive, written whole. A plan is fixed when the run begins: so a run that
was killed goes on with the same messages in the same order, whatever came to the archive since.
The log itself counts what was stored; the counts here save reading all of it again, and tell when
the log has forgotten.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from goqueue.archive.layout import ROOT
from goqueue.archive.schema import UnreadableArchive

FOLDER = f"{ROOT}/_restores"
NAME_CHARACTERS_MAX = 100


class Range(msgspec.Struct, frozen=True):
    """Of a partition: offsets `first` to below `end`. `count` messages of it are in the window."""

    partition: int
    first: int
    end: int
    count: int


class Plan(msgspec.Struct, frozen=True):
    """What is restored, and to where. `partitions` is how many the target has, `begins` where each
    of them ended before the run stored anything. `is_spread`: messages go by key, as the topic has
    another number of partitions."""

    run: str
    topic: str
    topic_id: str
    target: str
    target_id: str
    partitions: int
    ranges: tuple[Range, ...]
    begins: dict[int, int]
    is_spread: bool
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def count(self) -> int:
        return sum(one.count for one in self.ranges)


class State(msgspec.Struct):
    """How far a run is: `done` rows in each partition of the target, which carry its marks.

    `producer_id` numbers them there, from `bases` on; `saved_ms` is when this was written.
    """

    plan: Plan
    producer_id: int
    epoch: int
    done: dict[int, int] = {}
    bases: dict[int, int] = {}
    saved_ms: int = 0
    is_complete: bool = False


class Files(Protocol):
    """Where states are kept."""

    def read(self, path: str) -> bytes: ...

    def replace(self, path: str, data: bytes) -> None: ...


def run_name(*facts: object) -> str:
    """The name of the run that these facts ask for: the same command, the same run."""
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def load(files: Files, run: str) -> State | None:
    """The state of a run, None where it has none. Raises UnreadableArchive."""
    try:
        return msgspec.json.decode(files.read(_path(run)), type=State)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableArchive(f"{_path(run)} is no state of a run: {error}") from None


def save(files: Files, state: State, now_ms: int) -> None:
    """Write it in place of the one before. Raises UnreadableArchive."""
    state.saved_ms = now_ms
    files.replace(_path(state.plan.run), msgspec.json.encode(state))


def _path(run: str) -> str:
    return f"{FOLDER}/{run}.json"
