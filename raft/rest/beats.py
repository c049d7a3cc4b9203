"""One beat between two nodes for all groups that rest between them.

The node that leads them sends it, with a mark: equal on both nodes if the same groups rest at both
in the same terms. What has gone to rest or was roused since the last beat is told in it. A lost
frame makes the marks differ; where they still do after some beats, all of these groups are roused.
A follower's node that hears no beat in an election's time, nor for a while anything else of that
node, rouses what it has at rest, and so does a leader's that is not answered: each group then does
what it always does, by itself.

A link that is made rouses nobody either: what rests is offered to the node that is there again, and
each replica that holds the same follows at once. A node that has just begun keeps what it is
offered until it has started the replica.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from goqueue.wire.types import NodeId
from raft import frames
from raft.config import RaftConfig
from raft.frames import HEARTBEAT_GROUP, FrameKind
from raft.interfaces import Network
from raft.rest.replica import Rest

UNEQUAL_MAX = 3
"""Beats with different marks, one after another, after which everything is roused."""
OTHER_FRAMES_S = 4.0
"""For so long other frames of a node stand for a beat, or an answer, that does not come."""
OFFERS_S, OFFERS_MAX = 60.0, 65_536
"""For so long after its start a node keeps offers of groups that it has not started yet, and so
many of each node."""
NEVER = float("inf")


class Resting(Protocol):
    """A group's place in its host: what is at rest here. Compared by identity."""

    key: bytes

    @property
    def rests(self) -> bool: ...

    @property
    def rest(self) -> Rest: ...

    @property
    def term(self) -> int: ...

    @property
    def peers_there(self) -> Iterable[NodeId]: ...

    @property
    def last_index(self) -> int: ...

    def roused(self) -> None:
        """It rests no more: where it is led here, beats are sent for it again."""
        ...

    def changed(self) -> None:
        """It rests on, with other nodes than before."""
        ...

    def rests_too(self, node: NodeId) -> None:
        """It is led here, and this node's replica rests with it, and holds the same."""
        ...


class Marked:
    """Groups, and a mark of all of them."""

    def __init__(self) -> None:
        self._marks: dict[Resting, int] = {}
        self.mark = 0

    def __iter__(self) -> Iterator[Resting]:
        return iter(list(self._marks))

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, group: Resting, term: int) -> None:
        self.discard(group)
        self._marks[group] = mark = mark_of(group.key, term)
        self.mark ^= mark

    def discard(self, group: Resting) -> None:
        self.mark ^= self._marks.pop(group, 0)


class Offers:
    """Groups at rest that another node leads, and that are still to be started here; and a mark of
    all of them."""

    def __init__(self) -> None:
        self._offered: dict[bytes, tuple[int, int]] = {}
        self.mark = 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._offered)

    def __len__(self) -> int:
        return len(self._offered)

    def keep(self, key: bytes, term: int, last_index: int) -> bool:
        """Keeps what is offered, if there is room."""
        self.take(key)
        if len(self) >= OFFERS_MAX:
            return False
        self._offered[key] = term, last_index
        self.mark ^= mark_of(key, term)
        return True

    def take(self, key: bytes) -> tuple[int, int] | None:
        """The term and the last index that were offered; kept no more."""
        offered = self._offered.pop(key, None)
        if offered is not None:
            self.mark ^= mark_of(key, offered[0])
        return offered


def mark_of(key: bytes, term: int) -> int:
    """What a group adds to the mark of those that it rests with."""
    digest = hashlib.blake2b(key + struct.pack("<Q", term), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _roused(key: bytes) -> bytes:
    """The item of a group that does not rest."""
    return frames.beat_item(key, 0, 0, frames.ROUSED)


class Link:
    """What rests between this node and another one."""

    def __init__(self, now: float) -> None:
        self.led = Marked()
        """Led here, and followed there."""
        self.followed = Marked()
        """Led there, and followed here."""
        self.beat_at = now
        """When a beat for those followed here came."""
        self.answer_at = now
        """When a beat for those led here was answered."""
        self.there_at = now
        """When any frame came from that node."""
        self.news: dict[bytes, bytes] = {}
        """Of groups led here, for the next beat: the newest of each."""
        self.refused: dict[bytes, bytes] = {}
        """Of groups led there that do not rest here, for the next answer."""
        self.refused_mark = 0
        """Of those that were refused since the last answer: their leader can't know it yet."""
        self.unequal = 0
        self.offers = Offers()
        self.taken: dict[bytes, bytes] = {}
        """Of groups led there that were offered, and rest here, for the next answer."""

    @property
    def mark(self) -> int:
        """Of what rests here, and what is offered, of that node."""
        return self.followed.mark ^ self.offers.mark

    def refuse_offers(self) -> None:
        """Of what was not started here its leaders hear with the next answer."""
        self.refused.update((key, _roused(key)) for key in self.offers)
        self.refused_mark ^= self.offers.mark
        self.offers = Offers()

    @property
    def heard_at(self) -> float:
        """When that node spoke last for what it leads."""
        return self._word(self.beat_at)

    @property
    def answered_at(self) -> float:
        """When that node answered last for what it follows."""
        return self._word(self.answer_at)

    def _word(self, at: float) -> float:
        """A node that is busy sends its beats late; other frames of it stand for them, for a while:
        it may have nothing at rest any more, and what it told of that may be lost."""
        return max(at, min(self.there_at, at + OTHER_FRAMES_S))

    def forgive(self, late_s: float, now: float) -> None:
        self.beat_at = min(self.beat_at + late_s, now)
        self.answer_at = min(self.answer_at + late_s, now)
        self.there_at = min(self.there_at + late_s, now)


class NodeBeats:
    """The groups of a node that rest, by the node at the other end of the link. Loop thread only.

    A link that is closed takes what it knows with it.
    """

    def __init__(
        self,
        network: Network,
        config: RaftConfig,
        group_of: Callable[[bytes], Resting | None],
        now: float,
    ) -> None:
        self._network = network
        self._config = config
        self._group_of = group_of
        self._links: dict[NodeId, Link] = {}
        self._led: dict[Resting, tuple[NodeId, ...]] = {}
        """At rest, led here: with whom. Who can't be reached is told when there is a link again."""
        self._followed: dict[Resting, NodeId] = {}
        """At rest, led by others: by whom."""
        self._offers_until = now + OFFERS_S

    # -- going to rest, and being roused

    def put_to_rest(self, group: Resting, now: float) -> None:
        """A group that is led here rests from now on; the next beat tells the others."""
        group.rest.begin()
        self._led[group] = nodes = tuple(group.peers_there)
        for node in nodes:
            self._tell(group, node, frames.RESTS, now)

    def peer_connected(self, group: Resting, node: NodeId, now: float) -> None:
        """A replica of a group that is led here, and rests, can be reached again: it rests with the
        others if it holds the same. If it does not, it refuses, and the group is roused."""
        self._led[group] = (*self._led[group], node)
        self._tell(group, node, frames.OFFERED, now)
        group.changed()

    def started(self, group: Resting, now: float) -> None:
        """A replica runs here from now on: it follows who has offered it, if it holds the same."""
        for node, link in self._links.items():
            offered = link.offers.take(group.key)
            if offered is not None:
                self._take(link, node, group, *offered, frames.OFFERED)

    def rouse(self, group: Resting) -> None:
        """The group does by itself again what this node did for it; nothing where it does not
        rest."""
        if not group.rests:
            return
        nodes, leader = self._led.pop(group, None), self._followed.pop(group, None)
        item = _roused(group.key)
        if nodes is not None:
            group.rest.end()
            for node in nodes:
                if node in self._links:
                    self._links[node].led.discard(group)
                    self._links[node].news[group.key] = item
            group.roused()
        elif leader is not None:
            group.rest.end()
            group.roused()
            if leader in self._links:
                self._links[leader].followed.discard(group)
                self._links[leader].refused[group.key] = item

    def heard_at(self, node: NodeId) -> float:
        """When this node told last that it leads what follows it here at rest."""
        link = self._links.get(node)
        return -NEVER if link is None else link.heard_at

    def answered_at(self, node: NodeId) -> float:
        """When this node answered last for what follows there at rest."""
        link = self._links.get(node)
        return -NEVER if link is None else link.answered_at

    # -- links and time

    def disconnected(self, node: NodeId) -> None:
        """Rouses what that node leads, and what has no majority here without it."""
        link = self._links.get(node)
        if link is None:
            return
        for group in link.led:
            if group.rest.goes_on_without(node):
                self._led[group] = tuple(other for other in self._led[group] if other != node)
                group.changed()
            else:
                self.rouse(group)
        self._rouse_all(link.followed)
        del self._links[node]

    def heard(self, node: NodeId, now: float) -> None:
        """That node has said something, whatever it is: it is there, for all that rests between."""
        link = self._links.get(node)
        if link is not None:
            link.there_at = now

    def forgive(self, late_s: float, now: float) -> None:
        """This node was stalled: what it did not hear meanwhile is no evidence against others."""
        for link in self._links.values():
            link.forgive(late_s, now)

    @property
    def is_busy(self) -> bool:
        """Whether there is a beat to be sent."""
        return any(link.led or link.news for link in self._links.values())

    @property
    def deadline(self) -> float:
        """When the silence of some node will have lasted too long for those that it leads."""
        heard = [link.heard_at for link in self._links.values() if link.followed]
        return min(heard) + self._config.election_min_s if heard else NEVER

    def look(self, now: float) -> None:
        """Rouses what is followed here and led by a node that has been silent too long."""
        for link in list(self._links.values()):
            if link.followed and link.heard_at + self._config.election_min_s <= now:
                self._rouse_all(link.followed)

    def rouse_unanswered(self, now: float) -> None:
        """Rouses what is led here and followed by a node that does not answer; each group finds out
        whether it still has a majority."""
        for link in list(self._links.values()):
            if link.led and link.answered_at < now - self._config.quorum_s / 2:
                self._rouse_all(link.led)

    # -- beats

    def send(self) -> None:
        """A beat to each node with which something rests, or which is to be told something."""
        for node, link in self._links.items():
            if link.led or link.news:
                news, link.news = list(link.news.values()), {}
                self._send(node, FrameKind.NODE_BEAT, news, link.led.mark, 0)

    def on_beat(self, node: NodeId, frame: memoryview, now: float) -> None:
        """A beat of the node that leads. Raises struct.error where it is malformed."""
        flags, mark, items = frames.parse_node_beat(frame)
        link = self._link(node, now)
        link.beat_at = now
        unknown: list[bytes] = []
        """Of groups that are not here: not kept beyond this frame."""
        for key, term, last_index, what in items:
            group = self._group_of(key)
            if what == frames.ROUSED:
                if group is not None and self._followed.get(group) == node:
                    self.rouse(group)
                link.refused.pop(key, None)
                link.offers.take(key)
            elif group is not None:
                self._take(link, node, group, term, last_index, what)
            elif now < self._offers_until and link.offers.keep(key, term, last_index):
                link.refused.pop(key, None)
            else:
                link.refused_mark ^= mark_of(key, term)
                unknown.append(_roused(key))
        if flags & frames.MORE:
            if unknown:
                self._send(node, FrameKind.NODE_BEAT_ANSWER, unknown, 0, 0)
            return
        if now >= self._offers_until:
            link.refuse_offers()
        mark, link.refused_mark = mark ^ link.refused_mark, 0
        link.unequal = 0 if link.mark == mark else link.unequal + 1
        flags = 0
        if link.unequal >= UNEQUAL_MAX:
            link.unequal = 0
            self._rouse_all(link.followed)
            link.offers = Offers()
            link.refused.clear()
            flags = frames.ALL
        said = [*link.refused.values(), *unknown, *link.taken.values()]
        link.refused, link.taken = {}, {}
        self._send(node, FrameKind.NODE_BEAT_ANSWER, said, link.mark, flags)

    def on_answer(self, node: NodeId, frame: memoryview, now: float) -> None:
        """The answer of a node that follows. Raises struct.error where it is malformed."""
        flags, _mark, items = frames.parse_node_beat(frame)
        link = self._links.get(node)
        if link is None:
            return
        link.answer_at = now
        for key, term, last_index, what in items:
            group = self._group_of(key)
            if group is None or node not in self._led.get(group, ()):
                continue
            if what != frames.RESTS:
                group.rest.refused()
                self.rouse(group)
            elif (term, last_index) == (group.term, group.last_index):
                group.rests_too(node)
        if flags & frames.ALL:
            self._rouse_all(link.led)

    # -- private

    def _tell(self, group: Resting, node: NodeId, what: int, now: float) -> None:
        """The next beat asks this node's replica to rest."""
        link = self._link(node, now)
        if not link.led:
            link.answer_at = now
        link.led.add(group, group.term)
        item = frames.beat_item(group.key, group.term, group.last_index, what)
        link.news[group.key] = item

    def _take(
        self, link: Link, node: NodeId, group: Resting, term: int, last_index: int, what: int
    ) -> None:
        """The group rests here, led by that node; or that node hears with the next answer that it
        does not. It also hears of one that was offered, as it can't know what is held here."""
        if group.rest.accept(node, term, last_index):
            self._followed[group] = node
            link.followed.add(group, term)
            link.refused.pop(group.key, None)
            if what == frames.OFFERED:
                link.taken[group.key] = frames.beat_item(group.key, term, last_index, frames.RESTS)
        else:
            self.rouse(group)
            link.refused_mark ^= mark_of(group.key, term)
            link.refused[group.key] = _roused(group.key)

    def _link(self, node: NodeId, now: float) -> Link:
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = Link(now)
        return link

    def _rouse_all(self, groups: Marked) -> None:
        for group in groups:
            self.rouse(group)

    def _send(
        self, node: NodeId, kind: FrameKind, items: list[bytes], mark: int, flags: int
    ) -> None:
        last = max(0, len(items) - 1) // frames.ITEMS_MAX * frames.ITEMS_MAX
        for at in range(0, last + 1, frames.ITEMS_MAX):
            more = frames.MORE if at < last else 0
            parts = frames.node_beat(kind, flags | more, mark, items[at : at + frames.ITEMS_MAX])
            self._network.send(node, HEARTBEAT_GROUP, parts)
