"""Commands of Redis' clients that were sound once, on raw sockets: answered in RESP, or cut off
with a word, and never a crash; what declares much takes no memory."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import partial

from tests.fuzz.mutation import any_of, mutate
from tests.fuzz.raw import Tally, heard, sent

CONNECTIONS = 32
REPLIES, ERRORS, SILENT = 200, 400, 0
"""How a tally counts: conversations with a reply that is no error, with errors only, or nothing."""
_WORD = re.compile(rb"[\x20-\x7e\x80-\xff]*")
_DECLARED = (
    b"*100000000\r\n",
    b"*16384\r\n$16000000\r\n",
    b"*1\r\n$16777216\r\n",
    b"*2147483647\r\n",
)


def command(*words: str | bytes) -> bytes:
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    head = b"*%d\r\n" % len(encoded)
    return head + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


@dataclass(frozen=True)
class Samples:
    """Sound commands, as words, and sound conversations, as bytes."""

    commands: list[list[bytes]]
    whole: list[bytes]


def samples(stream: str, topic: str, group: str) -> Samples:
    """Sound commands of every kind. None waits for longer than some ms."""
    said = [
        "HELLO 3 SETNAME x",
        "HELLO 2",
        "CLIENT SETINFO LIB-NAME x",
        "COMMAND INFO xadd ping",
        f"XADD {stream} MAXLEN ~ 10 * value v a b",
        f"XLEN {stream}",
        f"XRANGE {stream} - + COUNT 3",
        f"XREVRANGE {stream} + (1-1 COUNT 2",
        f"XREAD COUNT 2 BLOCK 5 STREAMS {stream} 0",
        f"XGROUP CREATE {stream} {group} 0 MKSTREAM",
        f"XGROUP SETID {stream} {group} 0",
        f"XREADGROUP GROUP {group} c COUNT 2 BLOCK 5 STREAMS {stream} >",
        f"XREADGROUP GROUP {group} c STREAMS {stream} 0",
        f"XACK {stream} {group} 1-1 2-2",
        f"XPENDING {stream} {group} IDLE 1 - + 5 c",
        f"XAUTOCLAIM {stream} {group} d 0 0 COUNT 2 JUSTID",
        f"XINFO STREAM {stream}",
        f"XINFO GROUPS {stream}",
        f"LPUSH {topic} a b c",
        f"BRPOP {topic} 0.01",
        f"LPOP {topic} 2",
        f"LLEN {topic}",
        f"PUBLISH {topic} x",
        "TOPICS",
        "PING",
        "INFO",
        "ECHO x",
        "SELECT 0",
    ]
    commands = [line.encode().split() for line in said]
    arrays = [command(*words) for words in commands]
    subscribed = command("PUBLISH", topic, "x") + command("SUBSCRIBE", topic)
    subscribed += b"".join(command(*words.split()) for words in ("NACK", "DACK 0", "BACK", "ACK"))
    lines = [f"{line}\r\n".encode() for line in said] + [b"echo \"a\\x41\" 'b'\r\n"]
    together = (b"".join(arrays[:6]), b"".join(arrays[4:9]) * 3)
    return Samples(commands, [*arrays, *lines, subscribed, *together])


async def fuzz(host: str, port: int, kept: Samples, rng: random.Random, count: int) -> Tally:
    """So many conversations, a few at once."""
    inputs = [_conversation(kept, rng) for _ in range(count)]
    return await sent(inputs, partial(_talk, host, port), CONNECTIONS)


def _conversation(kept: Samples, rng: random.Random) -> bytes:
    chance = rng.random()
    if chance < 0.05:
        return rng.choice(_DECLARED) + rng.randbytes(rng.randrange(64))
    if chance < 0.2:
        return b"".join(rng.choices(kept.whole, k=rng.randrange(1, 6)))
    if chance < 0.6:
        return b"".join(_broken(rng.choice(kept.commands), rng) for _ in range(5))
    return any_of(kept.whole, rng)


def _broken(words: list[bytes], rng: random.Random) -> bytes:
    """A sound array of words, one or two of which are not what they were, or not there."""
    words = list(words)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(words))
        words[at : at + 1] = rng.choice(([], [mutate(words[at], rng)], [words[at]] * 2))
        if not words:
            return b""
    return command(*words)


async def _talk(host: str, port: int, data: bytes, tally: Tally) -> None:
    answer = await heard(host, port, data, is_all=True)
    if defect := judge(answer, tally):
        tally.defects.append(f"{defect} to {data.hex()[:4000]}")


def judge(answer: bytes, tally: Tally) -> str:
    """What is wrong with an answer, "" where nothing is; one that is cut off is not."""
    at, found = 0, SILENT
    while at < len(answer):
        end = answer.find(b"\r\n", at)
        if end < 0:
            break
        kind, rest, at = answer[at : at + 1], answer[at + 1 : end], end + 2
        if kind in b"*%:_+":
            found = REPLIES
        if kind in b"*%" and kind and not re.fullmatch(rb"-1|\d+", rest):
            return f"a count of {rest[:40]!r}"
        if kind == b"-":
            found = found or ERRORS
            if b"(internal)" in rest or not _WORD.fullmatch(rest):
                return f"told {rest[:200]!r}"
        elif kind == b"$":
            found = REPLIES
            if not re.fullmatch(rb"-1|\d+", rest):
                return f"a length of {rest[:40]!r}"
            at += max(0, int(rest)) + 2 if rest != b"-1" else 0
            if at <= len(answer) and rest != b"-1" and answer[at - 2 : at] != b"\r\n":
                return "a bulk string without its end"
        elif kind not in (b"*", b"%", b":", b"_", b"+"):
            return f"no RESP: {answer[end - 20 : end + 20]!r}"
    tally.statuses[found] += 1
    return ""
