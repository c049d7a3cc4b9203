"""Raft's messages between nodes: fixed binary layouts, nothing that could run code.

Little-endian. Every frame but the coalesced heartbeats belongs to one group and begins with
kind u8, flags u8, zero u16, term u64; for ACK and VOTE_REPLY the term is the sender's own.

APPEND       prev_index u64, prev_term u64, commit u64, count u32, then `count` entry frames as
             they are stored
ACK          match u64                            flags: none
  rejected   prev_index u64, hint_index u64, hint_term u64
VOTE         last_index u64, last_term u64, incarnation u64: of the voter that is asked, as the
             candidate's configuration names it; 0 unstated    flags: pre-vote, transfer, everyone
VOTE_REPLY   asked_term u64                       flags: pre-vote, granted, suspect
TIMEOUT_NOW
BEAT         commit u64, round u64, last_index u64      flags: answer (wanted)
BEAT_ANSWER  the same layout
HEARTBEATS   all groups of a node: count u32, then items of group (20 bytes), term, commit, round;
             answers to them: items of group, term, round, last_index
NODE_BEAT    for all groups that rest between two nodes: count u32, mark u64 of those at rest, then
             items of group, term, last_index, what (rests, or is roused)    flags: more (follows)
NODE_BEAT_ANSWER  the same layout: the groups that do not rest        flags: more, all (are roused)
ASK_END      nonce u64, 0 u64: a suspect follower's
END          the same nonce, last_index u64
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from goqueue.wire.types import PARTITION_ID_BYTES, PartitionId, TopicId

HEARTBEAT_GROUP = PartitionId(TopicId(0, 0), 0xFFFF_FFFF)
"""The address of coalesced heartbeats on the link: no group has it."""

HEAD = struct.Struct("<BBHQ")
_APPEND = struct.Struct("<BBHQQQQI")
APPEND_BYTES = _APPEND.size
_ACK = struct.Struct("<BBHQQQQ")
_VOTE = struct.Struct("<BBHQQQQ")
_VOTE_REPLY = struct.Struct("<BBHQQ")
_BEAT = struct.Struct("<BBHQQQQ")
_END = struct.Struct("<BBHQQQ")
_BEATS = struct.Struct("<BBHI")
_NODE_BEAT = struct.Struct("<BBHIQ")
_ITEM = struct.Struct(f"<{PARTITION_ID_BYTES}sQQQ")
ITEM_BYTES = _ITEM.size
ITEMS_MAX = 16_384
"""Heartbeat items per frame: 700 KiB."""

REJECTED = 1
PRE = 1
GRANTED = 2
TRANSFER = 4
EVERYONE = 8
"""A vote that counts only together with all others: what suspect replicas may give."""
SUSPECT = 16
"""This replica may have lost entries that it acknowledged."""
ANSWER = 1
MORE = 1
ALL = 2
RESTS, ROUSED, OFFERED = 1, 2, 3
"""What an item of a node's beat, or of its answer, says of a group."""


class FrameKind(IntEnum):
    APPEND = 1
    ACK = 2
    VOTE = 3
    VOTE_REPLY = 4
    TIMEOUT_NOW = 5
    BEAT = 6
    BEAT_ANSWER = 7
    HEARTBEATS = 8
    HEARTBEAT_ANSWERS = 9
    ASK_END = 10
    END = 11
    NODE_BEAT = 12
    NODE_BEAT_ANSWER = 13


_APPEND_KIND, _ACK_KIND, _VOTE_KIND, _REPLY_KIND, _TIMEOUT_KIND, _BEAT_KIND, _ANSWER_KIND = map(
    int, list(FrameKind)[:7]
)


def append_head(term: int, prev_index: int, prev_term: int, commit: int, count: int) -> bytes:
    """What precedes the entries' own frames."""
    return _APPEND.pack(_APPEND_KIND, 0, 0, term, prev_index, prev_term, commit, count)


def parse_append(frame: memoryview) -> tuple[int, int, int, int, int]:
    """Term, prev_index, prev_term, commit, count; entries begin at `APPEND_BYTES`."""
    return _APPEND.unpack_from(frame)[3:]


def ack(term: int, match: int) -> bytes:
    return _ACK.pack(_ACK_KIND, 0, 0, term, match, 0, 0)


def rejection(term: int, prev_index: int, hint_index: int, hint_term: int) -> bytes:
    """`hint`: the follower's newest entry that may match, so that back-off goes by terms."""
    return _ACK.pack(_ACK_KIND, REJECTED, 0, term, prev_index, hint_index, hint_term)


def parse_ack(frame: memoryview) -> tuple[int, int, int, int, int]:
    """Flags, term, index (matched or rejected), hint_index, hint_term."""
    _kind, flags, _zero, term, index, hint_index, hint_term = _ACK.unpack_from(frame)
    return flags, term, index, hint_index, hint_term


def vote(term: int, last_index: int, last_term: int, flags: int, incarnation: int = 0) -> bytes:
    return _VOTE.pack(_VOTE_KIND, flags, 0, term, last_index, last_term, incarnation)


def parse_vote(frame: memoryview) -> tuple[int, int, int, int, int]:
    """Flags, term, last_index, last_term, the asked voter's incarnation."""
    _kind, flags, _zero, term, last_index, last_term, incarnation = _VOTE.unpack_from(frame)
    return flags, term, last_index, last_term, incarnation


def vote_reply(term: int, asked_term: int, flags: int) -> bytes:
    return _VOTE_REPLY.pack(_REPLY_KIND, flags, 0, term, asked_term)


def parse_vote_reply(frame: memoryview) -> tuple[int, int, int]:
    """Flags, the voter's term, the term that was asked for."""
    _kind, flags, _zero, term, asked = _VOTE_REPLY.unpack_from(frame)
    return flags, term, asked


def timeout_now(term: int) -> bytes:
    return HEAD.pack(_TIMEOUT_KIND, 0, 0, term)


def beat(term: int, commit: int, round_: int, flags: int = 0) -> bytes:
    return _BEAT.pack(_BEAT_KIND, flags, 0, term, commit, round_, 0)


def beat_answer(term: int, round_: int, last_index: int) -> bytes:
    return _BEAT.pack(_ANSWER_KIND, 0, 0, term, 0, round_, last_index)


def parse_beat(frame: memoryview) -> tuple[int, int, int, int, int]:
    """Flags, term, commit, round, last_index."""
    _kind, flags, _zero, term, commit, round_, last_index = _BEAT.unpack_from(frame)
    return flags, term, commit, round_, last_index


def ask_end(term: int, nonce: int) -> bytes:
    """Where does the leader's log end, at some time after this question?"""
    return _END.pack(FrameKind.ASK_END, 0, 0, term, nonce, 0)


def end(term: int, nonce: int, last_index: int) -> bytes:
    return _END.pack(FrameKind.END, 0, 0, term, nonce, last_index)


def parse_end(frame: memoryview) -> tuple[int, int, int]:
    """Term, nonce, last_index."""
    return _END.unpack_from(frame)[3:]


def beat_item(key: bytes, first: int, second: int, third: int) -> bytes:
    return _ITEM.pack(key, first, second, third)


def heartbeats(kind: FrameKind, items: list[bytes]) -> list[bytes]:
    """The parts of one frame for many groups: HEARTBEATS or HEARTBEAT_ANSWERS."""
    return [_BEATS.pack(kind, 0, 0, len(items)), *items]


def parse_heartbeats(frame: memoryview) -> tuple[int, Iterator[tuple[bytes, int, int, int]]]:
    """Kind and items. Raises struct.error where the length is not the count's."""
    kind, _flags, _zero, count = _BEATS.unpack_from(frame)
    if len(frame) != _BEATS.size + count * ITEM_BYTES:
        raise struct.error("heartbeats of another length than their count says")
    return kind, _ITEM.iter_unpack(frame[_BEATS.size :])


def node_beat(kind: FrameKind, flags: int, mark: int, items: list[bytes]) -> list[bytes]:
    """The parts of a NODE_BEAT or a NODE_BEAT_ANSWER."""
    return [_NODE_BEAT.pack(kind, flags, 0, len(items), mark), *items]


def parse_node_beat(frame: memoryview) -> tuple[int, int, Iterator[tuple[bytes, int, int, int]]]:
    """Flags, mark and items. Raises struct.error where the length is not the count's."""
    _kind, flags, _zero, count, mark = _NODE_BEAT.unpack_from(frame)
    if len(frame) != _NODE_BEAT.size + count * ITEM_BYTES:
        raise struct.error("a node's beat of another length than its count says")
    return flags, mark, _ITEM.iter_unpack(frame[_NODE_BEAT.size :])
