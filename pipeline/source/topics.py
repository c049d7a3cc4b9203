"""The topics of a read as they are now, and where in them it begins and ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goqueue.errors import UnknownTopic
from pipeline.broker import Broker, Span, TopicFacts
from pipeline.options import OptionError
from pipeline.source.options import EARLIEST, LATEST, Border, Chosen
from pipeline.source.ranges import Key


@dataclass(frozen=True, slots=True)
class Known:
    """A topic and what the partitions that are read of it hold."""

    facts: TopicFacts
    spans: dict[int, Span]


def look(broker: Broker, chosen: Chosen, *, missing_ok: bool = False) -> dict[str, Known]:
    """By name, each topic that is read. Raises OptionError for a topic or partition that does not
    exist; with `missing_ok` such a topic is left out."""
    wanted: dict[str, tuple[int, ...] | None] = dict.fromkeys(chosen.topics)
    if chosen.pattern is not None:
        wanted, missing_ok = dict.fromkeys(broker.topics_like(chosen.pattern)), True
    elif chosen.assigned:
        wanted = dict(chosen.assigned)
    found: dict[str, Known] = {}
    for name, numbers in wanted.items():
        try:
            facts = broker.topic(name)
        except UnknownTopic:
            if missing_ok:
                continue
            raise no_topic(chosen, name) from None
        beyond = [number for number in numbers or () if number >= facts.partitions]
        if beyond:
            text = f"{name} has {facts.partitions} partitions, and no {beyond[0]}"
            raise OptionError(f"{chosen.option}: {text}")
        read = range(facts.partitions) if numbers is None else numbers
        found[name] = Known(facts, broker.spans(name, read))
    return found


def no_topic(chosen: Chosen, name: str) -> OptionError:
    return OptionError(f"{chosen.option}: there is no topic {name}")


def keys(known: dict[str, Known]) -> list[Key]:
    return [(name, number) for name, topic in known.items() for number in topic.spans]


def resolve(
    broker: Broker, border: Border, known: dict[str, Known], *, latest_where_none: bool
) -> dict[Key, int]:
    """The offset of a border in each partition.

    A time that no message has is the partition's end with `latest_where_none`. Raises OptionError
    where it is not, and where places name too few partitions, or too many.
    """
    if border.places is not None:
        _check_places(border, keys(known))
    found: dict[Key, int] = {}
    for name, topic in known.items():
        if border.by_time:
            found.update(_by_time(broker, border, name, topic.spans, latest_where_none))
            continue
        for number, span in topic.spans.items():
            at = border.at if border.places is None else border.places[name][number]
            if at > span.end:
                raise OptionError(
                    f"{border.name}: {name}:{number}: {at} is beyond the end, {span.end}"
                )
            found[name, number] = {EARLIEST: span.start, LATEST: span.end}.get(at, at)
    return found


def _by_time(
    broker: Broker, border: Border, topic: str, spans: dict[int, Span], latest_where_none: bool
) -> dict[Key, int]:
    found: dict[Key, int] = {}
    for time_ms, numbers in _by_moment(border, topic, spans).items():
        for number, offset in broker.offsets_at(topic, numbers, time_ms).items():
            if offset is None and not latest_where_none:
                raise OptionError(
                    f"{border.name}: {topic}:{number} has no message at {time_ms} or later; "
                    "with startingOffsetsByTimestampStrategy=latest it is read from its end"
                )
            found[topic, number] = spans[number].end if offset is None else offset
    return found


def _by_moment(border: Border, topic: str, numbers: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number in numbers:
        time_ms = border.time_ms if border.places is None else border.places[topic][number]
        assert time_ms is not None, "a border by time has one"
        found.setdefault(time_ms, []).append(number)
    return found


def _check_places(border: Border, wanted: list[Key]) -> None:
    assert border.places is not None
    told = {(topic, number) for topic, places in border.places.items() for number in places}
    for text, missing in (("not named", set(wanted) - told), ("not read", told - set(wanted))):
        if missing:
            some = ", ".join(f"{topic}:{number}" for topic, number in sorted(missing)[:5])
            raise OptionError(
                f"{border.name}: {some} is {text}: name every partition that is read, and no other"
            )
