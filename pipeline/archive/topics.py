"""Archiving the topics that a run is asked for, and telling the brokers how far that is."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from goqueue.archive.layout import Kind, Series, kind_folder, parse_topic_folder
from goqueue.archive.manifest import Manifest, topic_ids
from goqueue.archive.store import ReadableStore
from goqueue.errors import GoQueueError, NotFound, UnknownTopic
from goqueue.transport.http import join
from goqueue.wire.ids import INTERNAL_PREFIX
from pipeline.archive.events_feed import Events
from pipeline.archive.feed import Feed, Messages
from pipeline.archive.job import Archived, archive
from pipeline.archive.run import Run
from pipeline.archive.sweep import sweep
from pipeline.broker import Broker
from pipeline.source.reading import Pace

TIMELINE_OFF = "timeline_off"
"""The code of brokers whose timelines are switched off."""


def chosen(broker: Broker, patterns: Sequence[str]) -> list[str]:
    """The topics that names, or patterns with `*` and `?`, tell; without any, all but the
    cluster's own. Raises UnknownTopic for a name that there is no topic of."""
    there = broker.topics()
    if not patterns:
        return [name for name in there if not name.startswith(INTERNAL_PREFIX)]
    found: dict[str, None] = {}
    for pattern in patterns:
        if not _is_pattern(pattern):
            if pattern not in there:
                raise UnknownTopic(pattern)
            found[pattern] = None
        else:
            found.update(dict.fromkeys(name for name in there if fnmatchcase(name, pattern)))
    return list(found)


def _has_no_events(error: GoQueueError) -> bool:
    """Whether the brokers keep none, or are of a version that does not tell them."""
    return error.code == TIMELINE_OFF or isinstance(error, NotFound)


def archived(store: ReadableStore, patterns: Sequence[str], kinds: Iterable[Kind]) -> list[Series]:
    """The series in an archive of the topics that names or patterns tell; without any, all.
    Raises UnknownTopic for a name that nothing is archived of."""
    found: list[Series] = []
    for kind in kinds:
        folders = map(parse_topic_folder, store.names(kind_folder(kind)))
        for topic in sorted(topic for topic in folders if topic is not None):
            if not patterns or any(fnmatchcase(topic, pattern) for pattern in patterns):
                found += [Series(kind, topic, id_) for id_ in topic_ids(store, kind, topic)]
    for pattern in patterns:
        if not _is_pattern(pattern) and pattern not in {series.topic for series in found}:
            raise UnknownTopic(pattern)
    return found


def _is_pattern(text: str) -> bool:
    return bool(set(text) & set("*?["))


@dataclass(frozen=True, slots=True)
class Failure:
    """What of a run did not work."""

    topic: str
    text: str


def archive_topics(
    run: Run,
    broker: Broker,
    patterns: Sequence[str],
    kinds: Iterable[Kind],
    pace: Pace,
    *,
    replace: bool = False,
) -> tuple[Archived, list[Failure]]:
    """Bring what is asked for up to what is committed now; a topic that fails stops no other.

    `replace`: the brokers are to wait for this archive in place of another one that they know.
    """
    total, failures = Archived(), []
    reporter = Reporter(broker, run.store.root, run.say, replace=replace)
    for topic in chosen(broker, patterns):
        for kind in kinds:
            try:
                feed = feed_of(kind, broker, topic, pace)
                done = archive(run.telling(reporter.report), feed)
                swept = sweep(run, feed.series)
            except UnknownTopic:
                run.say(f"{topic}: it was deleted meanwhile")
            except GoQueueError as error:
                if kind is Kind.EVENTS and _has_no_events(error):
                    run.say(f"{topic}: no events are archived: {error.message}")
                    continue
                failures.append(Failure(topic, error.message))
            else:
                total = total.and_(done)
                if swept.orphans or swept.replaced:
                    run.say(
                        f"{topic}: removed {swept.orphans} files of runs that were killed,"
                        f" {swept.replaced} that compaction replaced"
                    )
    return total, [*failures, *reporter.failures]


def feed_of_series(broker: Broker, series: Series, pace: Pace) -> Feed | None:
    """What the brokers still have of a series; None where its topic is deleted."""
    try:
        feed = feed_of(series.kind, broker, series.topic, pace)
    except UnknownTopic:
        return None
    return feed if feed.series == series else None


def feed_of(kind: Kind, broker: Broker, topic: str, pace: Pace) -> Feed:
    """What a topic has of this kind."""
    return Events(broker, topic) if kind is Kind.EVENTS else Messages(broker, topic, pace)


class Reporter:
    """Tells the brokers how far an archive holds a topic, once that is committed there.

    What they refuse is kept in `failures`, and archiving goes on: messages that wait for the
    archive stay until a later run can tell. Brokers of an older version are told nothing.
    """

    def __init__(
        self, broker: Broker, archive: str, say: Callable[[str], None], *, replace: bool = False
    ) -> None:
        self._broker, self._archive, self._say = broker, archive, say
        self._replace, self._replaced = replace, set[str]()
        self._is_silent = False
        self.failures: list[Failure] = []

    def report(self, manifest: Manifest) -> None:
        """A manifest that has been committed."""
        if manifest.kind != Kind.MESSAGES or self._is_silent:
            return
        anew = self._replace and manifest.topic_id not in self._replaced
        body = {
            "replace": anew,
            "archive": self._archive,
            "topic_id": manifest.topic_id,
            "positions": {str(number): at for number, at in manifest.positions().items()},
        }
        try:
            self._broker.request(
                "POST",
                join("topics", manifest.topic, "archived"),
                body=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
                repeatable=True,
            )
            self._replaced.add(manifest.topic_id)
        except GoQueueError as error:
            if isinstance(error, NotFound) and not isinstance(error, UnknownTopic):
                self._is_silent = True
                self._say("the brokers are of a version that archives do not report to")
            elif manifest.topic not in {failure.topic for failure in self.failures}:
                self.failures.append(Failure(manifest.topic, f"archived, but {error.message}"))


class Stop:
    """SIGTERM and SIGINT end a continuous run after the round that is under way."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def listen(self) -> None:
        """Have signals ask for it, of this process's main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._asked.set())

    def rounds(self, interval_s: float) -> Iterator[None]:
        """Again and again, a round beginning so many seconds after the last, until it is asked."""
        while not self._asked.is_set():
            began_s = time.monotonic()
            yield
            self._asked.wait(max(0.0, began_s + interval_s - time.monotonic()))
