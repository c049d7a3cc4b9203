"""Arguments of commands as what they mean. All raise RedisError, in Redis' own words."""

from __future__ import annotations

import re
from functools import lru_cache

from goqueue.wire.errors import BadName
from goqueue.wire.ids import is_name, validate_topic_name
from node.listeners.redis.replies import RedisError

SYNTAX = "ERR syntax error"
NOT_A_NUMBER = "ERR value is not an integer or out of range"
_INT = re.compile(rb"-?\d{1,18}")
_SECONDS = re.compile(rb"\d{1,12}(?:\.\d{1,9})?")


class Words:
    """The arguments behind a command's name, taken one after the other."""

    __slots__ = ("_at", "_words")

    def __init__(self, words: list[bytes]) -> None:
        self._words = words
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._words) - self._at

    def take(self) -> bytes:
        if self._at >= len(self._words):
            raise RedisError(SYNTAX)
        self._at += 1
        return self._words[self._at - 1]

    def rest(self) -> list[bytes]:
        found = self._words[self._at :]
        self._at = len(self._words)
        return found

    def option(self) -> str:
        """The next word as an option's name, in capitals."""
        return self.take().decode(errors="replace").upper()

    def looks_like(self, *names: str) -> bool:
        """Whether the next word is one of these; it is taken where it is."""
        if self._at < len(self._words):
            word = self._words[self._at].upper()
            if any(word == name.encode() for name in names):
                self._at += 1
                return True
        return False

    def number(self, low: int = 0, high: int = 2**53) -> int:
        return number(self.take(), low, high)

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            raise RedisError(SYNTAX)


def wrong_number(name: str) -> RedisError:
    """Of a command's arguments."""
    return RedisError(f"ERR wrong number of arguments for '{name.lower()}' command")


def number(text: bytes, low: int, high: int) -> int:
    if not _INT.fullmatch(text) or not low <= int(text) <= high:
        raise RedisError(NOT_A_NUMBER)
    return int(text)


def seconds(text: bytes) -> float:
    """How long to wait, as BLPOP has it: 0 is for ever."""
    if not _SECONDS.fullmatch(text):
        raise RedisError("ERR timeout is not a float or out of range")
    return float(text)


@lru_cache(maxsize=1024)
def topic(text: bytes) -> str:
    """A key as the topic that it names; those that are named often are not checked each time.
    Raises BadName."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        raise BadName(f"bad topic name {text[:64]!r}: it is not UTF-8") from None
    return validate_topic_name(name)


def group(text: bytes) -> str:
    """Raises BadName."""
    name = text.decode(errors="replace")
    if not is_name(name):
        raise BadName(
            f"bad group name {name[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]{{0,248}}"
        )
    return name


def consumer(text: bytes) -> str:
    """A consumer's name, which leases carry."""
    name = text.decode(errors="replace")
    if not is_name(name):
        raise BadName(
            f"bad consumer name {name[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]{{0,248}}"
        )
    return name


def group_of(topic: str, suffix: str) -> str:
    """The consumer group that a topic has for commands which name none. Raises BadName."""
    name = f"{topic}{suffix}"
    if not is_name(name):
        raise BadName(f"topic name {topic[:64]!r} is too long: {suffix} is appended to it")
    return name
