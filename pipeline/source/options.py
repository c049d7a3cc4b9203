"""What a read is told: options of Spark's Kafka connector under its names, and a few of ours."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from goqueue.models.times import time_ms
from pipeline.broker_access import Access
from pipeline.options import ACCESS_OPTIONS, OptionError, Options

TOPICS: Final = ("assign", "subscribe", "subscribePattern")
STARTS: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TRIGGERS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
READS: Final = (
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "maxBytesPerSecond",
)
KNOWN: Final = (*ACCESS_OPTIONS, *TOPICS, *STARTS, *ENDS, *TRIGGERS, *READS)
FOREIGN: Final = {
    "groupIdPrefix": "no group takes part in this read: leave it out",
    "fetchOffset.numRetries": "requestTimeout bounds how long is retried: leave it out",
    "fetchOffset.retryIntervalMs": "requestTimeout bounds how long is retried: leave it out",
    "kafka.bootstrap.servers": "name the nodes in servers",
    "kafka.group.id": "no group takes part in this read: leave it out",
}
"""Options of Kafka's connector that mean nothing here, and what to do about them."""

EARLIEST: Final = -2
LATEST: Final = -1
"""In place of an offset, as in Kafka's connector."""
MAX_TRIGGER_DELAY_S: Final = 900.0
SPLITS_MAX: Final = 100_000

Places = dict[str, dict[int, int]]
"""By topic and partition: an offset, or Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which partitions are read: exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def option(self) -> str:
        """The one that is given."""
        return "assign" if self.assigned else "subscribe" if self.topics else "subscribePattern"

    @property
    def names(self) -> tuple[str, ...]:
        """Topics that are named, and should be there; a pattern names none."""
        return self.topics or tuple(name for name, _ in self.assigned)


@dataclass(frozen=True, slots=True)
class Border:
    """Where reading begins or ends, in each partition: at an offset, EARLIEST or LATEST; or at the
    first message whose log time is at least `time_ms`. `at` is for all that `places` does not
    name; `name` is the option that said so."""

    name: str
    at: int = EARLIEST
    time_ms: int | None = None
    places: Places | None = None
    by_time: bool = False


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A read, checked. Rates are a task's own: bytes of stored batches in a second."""

    access: Access
    chosen: Chosen
    start: Border
    end: Border
    latest_where_none: bool = False
    """A start by time at which no message is: the end, not an error."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    records_max: int | None = None
    """Of one Spark partition."""
    bytes_per_second: int | None = None
    offsets_max: int | None = None
    offsets_min: int | None = None
    trigger_delay_s: float = MAX_TRIGGER_DELAY_S


def parse(options: Options, *, streaming: bool) -> SourceOptions:
    """Raises OptionError, one sentence that begins with the option's name."""
    for name, advice in FOREIGN.items():
        if name in options:
            raise OptionError(f"{name}: {advice}")
    options.refuse_others(KNOWN)
    for name in ENDS if streaming else TRIGGERS:
        if name in options:
            kind = "a stream has no end" if streaming else "it is for streams"
            raise OptionError(f"{name}: {kind}")
    offsets_max = options.number("maxOffsetsPerTrigger", least=1)
    offsets_min = options.number("minOffsetsPerTrigger", least=1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError("minOffsetsPerTrigger: it is more than maxOffsetsPerTrigger")
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return SourceOptions(
        access=options.access(),
        chosen=_chosen(options),
        start=_start(options, streaming),
        end=_end(options),
        latest_where_none=strategy == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        min_partitions=options.number("minPartitions", least=1, most=SPLITS_MAX),
        records_max=options.number("maxRecordsPerPartition", least=1),
        bytes_per_second=options.number("maxBytesPerSecond", least=1),
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        trigger_delay_s=options.span_s("maxTriggerDelay", MAX_TRIGGER_DELAY_S),
    )


def _chosen(options: Options) -> Chosen:
    given = [name for name in TOPICS if options.text(name) is not None]
    if len(given) != 1:
        told = f", not {' and '.join(given)}" if given else ""
        raise OptionError(f"subscribe: give one of {', '.join(TOPICS)}{told}")
    text = options.required(given[0])
    if given[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise OptionError("subscribe: no topic is named")
        return Chosen(topics=names)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern: {text[:80]!r} is no pattern: {error}") from None
        return Chosen(pattern=text)
    found: list[tuple[str, tuple[int, ...]]] = []
    for topic, numbers in _json("assign", text).items():
        if not isinstance(numbers, list) or not numbers or not all(map(_is_count, numbers)):
            raise OptionError(f'assign: want {{"{topic}": [0, 1]}}, partitions by topic')
        found.append((topic, tuple(sorted(set(numbers)))))
    if not found:
        raise OptionError("assign: no partition is named")
    return Chosen(assigned=tuple(found))


def _start(options: Options, streaming: bool) -> Border:
    default = "latest" if streaming else "earliest"
    border = _border(options, "starting", default)
    if not streaming and _has(border, LATEST):
        raise OptionError(f"{border.name}: a batch that begins at the latest reads nothing")
    return border


def _end(options: Options) -> Border:
    border = _border(options, "ending", "latest")
    if _has(border, EARLIEST):
        raise OptionError(f"{border.name}: a read that ends at the earliest reads nothing")
    return border


def _has(border: Border, at: int) -> bool:
    if border.by_time:
        return False
    if border.places is None:
        return border.at == at
    return any(at in numbers.values() for numbers in border.places.values())


def _border(options: Options, which: str, default: str) -> Border:
    """The first of the three ways to say it, in the order that Kafka's connector has."""
    moment, by_time, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    text = options.text(moment)
    if text is not None:
        try:
            return Border(moment, time_ms=max(0, time_ms(text)), by_time=True)
        except ValueError:
            raise OptionError(
                f"{moment}: {text[:80]!r} is neither Unix milliseconds nor an ISO 8601 time"
            ) from None
    text = options.text(by_time)
    if text is not None:
        return Border(by_time, places=_places(by_time, text, least=0), by_time=True)
    text = options.text(offsets, default) or default
    if text.lower() in ("earliest", "latest"):
        return Border(offsets, at=EARLIEST if text.lower() == "earliest" else LATEST)
    return Border(offsets, places=_places(offsets, text, least=EARLIEST))


def _places(name: str, text: str, *, least: int) -> Places:
    found: Places = {}
    for topic, numbers in _json(name, text).items():
        if not isinstance(numbers, dict) or not numbers:
            raise OptionError(f'{name}: want {{"{topic}": {{"0": 123}}}}, by topic and partition')
        found[topic] = {}
        for partition, value in numbers.items():
            if not (partition.isascii() and partition.isdigit()):
                raise OptionError(f"{name}: {topic}: {partition[:20]!r} is no partition")
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OptionError(f"{name}: {topic}:{partition}: {value!r} is out of range")
            found[topic][int(partition)] = value
    return found


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"{name}: {text[:80]!r} is no JSON object")
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
