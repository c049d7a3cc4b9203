"""What members subscribe to: topics by name, and patterns that existing and future topics match.

A pattern is a glob: `*`, `?`, `[seq]` and `[!seq]`, letter case counts. It is made of characters
that a topic's name may have, and of those four, so nothing of it is left to the regular expression
that it becomes; that one has no way to backtrack from one `*` to another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from goqueue.wire.ids import INTERNAL_PREFIX, NAME_CHARACTERS_MAX
from goqueue.wire.types import TopicId

Topics = Mapping[str, tuple[TopicId, int]]
"""Every topic's id and number of partitions, by name."""
Subscription = tuple[tuple[str, ...], tuple[str, ...]]
"""(topics, patterns), each in order and without repetitions."""
Matched = tuple[tuple[str, TopicId, int], ...]
"""(topic, its id, how many partitions it has) in the order of names."""

SUBSCRIBED_MAX = 100
"""Topics and patterns of one member."""
PATTERNS_MAX = 10
"""Patterns of one member: each is held against every topic."""
SUBSCRIPTION_CHARACTERS_MAX = 4096
PATTERNS_KEPT_MAX = 10_000
NAMES_KEPT_MAX = 1_000_000
"""Of all patterns whose topics are remembered; those of others are found whenever they are asked
for."""

_PATTERN = re.compile(rf"[A-Za-z0-9._*?\[\]!-]{{1,{NAME_CHARACTERS_MAX}}}", re.ASCII)


def subscription_problems(topics: list[str], patterns: list[str]) -> list[str]:
    """Why nobody can subscribe to this; nothing where one can."""
    problems = []
    if not topics and not patterns:
        problems.append("topics: a member subscribes to at least one topic or pattern")
    if len(topics) + len(patterns) > SUBSCRIBED_MAX:
        problems.append(f"topics: more than {SUBSCRIBED_MAX} topics and patterns")
    if len(patterns) > PATTERNS_MAX:
        problems.append(f"patterns: more than {PATTERNS_MAX}")
    if sum(map(len, topics)) + sum(map(len, patterns)) > SUBSCRIPTION_CHARACTERS_MAX:
        problems.append(
            f"topics: more than {SUBSCRIPTION_CHARACTERS_MAX} characters of topics and patterns"
        )
    problems += [
        f"patterns: {pattern[:64]!r} is not 1 to {NAME_CHARACTERS_MAX} of the characters of "
        "topic names and * ? [ ] !"
        for pattern in patterns[:PATTERNS_MAX]
        if _PATTERN.fullmatch(pattern) is None
    ]
    return problems


class Patterns:
    """Which topics match which pattern, remembered: topics come one at a time, and there may be
    many of both. Shared by all groups."""

    def __init__(self) -> None:
        self._topics: Topics | None = None
        self._names: set[str] = set()
        self._found: dict[str, set[str]] = {}
        self._kept = 0
        """Names in all of `_found`."""

    def matching(self, pattern: str, topics: Topics) -> set[str]:
        """Names of the topics that match. Not to be changed."""
        self._follow(topics)
        found = self._found.get(pattern)
        if found is None:
            if len(self._found) >= PATTERNS_KEPT_MAX:
                self._found, self._kept = {}, 0
            found = {name for name in self._names if fnmatchcase(name, pattern)}
            if self._kept + len(found) <= NAMES_KEPT_MAX:
                self._found[pattern] = found
                self._kept += len(found)
        return found

    def _follow(self, topics: Topics) -> None:
        if topics is self._topics:
            return
        came, gone = topics.keys() - self._names, self._names - topics.keys()
        came = {name for name in came if not name.startswith(INTERNAL_PREFIX)}
        self._topics = topics
        self._names |= came
        self._names -= gone
        for pattern, found in self._found.items():
            found.difference_update(gone)
            found.update(name for name in came if fnmatchcase(name, pattern))
        self._kept = sum(map(len, self._found.values()))


class Subscribed:
    """What each subscription of one group comes to, remembered for as long as no topic changes."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._topics: Topics | None = None
        self._matched: dict[Subscription, Matched] = {}

    def matched(self, subscription: Subscription, topics: Topics) -> Matched:
        """The topics that are subscribed to."""
        if topics is not self._topics:
            self._topics = topics
            self._matched = {}
        found = self._matched.get(subscription)
        if found is None:
            found = self._matched[subscription] = self.match(subscription, topics)
        return found

    def forget(self, subscription: Subscription) -> None:
        """It may be that nobody subscribes to this any more."""
        self._matched.pop(subscription, None)

    def match(self, subscription: Subscription, topics: Topics) -> Matched:
        """The same of a subscription that nobody has yet."""
        names, patterns = subscription
        found = {name for name in names if name in topics}
        for pattern in patterns:
            found |= self._patterns.matching(pattern, topics)
        return tuple((name, *topics[name]) for name in sorted(found))
