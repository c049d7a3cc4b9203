"""Acks of a subscription over HTTP/2, of which no answer tells: a later message does."""

from __future__ import annotations

import base64
import json
from collections import deque

from tests.protocols.ledger import Ledger

CREDIT = 50
INIT, ACK = b'"INIT"', b'"ACK"'


class Acks:
    """A node has at most `CREDIT` messages out, so with each message that comes beyond these, one
    more of the acks that were said has been applied, in the order of the messages."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._said: deque[int] = deque()

    def take(self, line: bytes, *, is_told: bool = False) -> bytes:
        """What is to be said to this line; nothing where the body has ended."""
        told = json.loads(line)
        if "msg" not in told:  # an ack that was too late, or why nothing comes
            self.lost()
            return b""
        number = self._ledger.give(base64.b64decode(told["msg"]))
        if is_told:
            return b""
        self._said.append(number)
        while len(self._said) > CREDIT:
            self._ledger.ack(self._said.popleft())
        return ACK

    def ended(self) -> None:
        """The answer ended in order, after the body did: all that was said has been applied."""
        while self._said:
            self._ledger.ack(self._said.popleft())

    def lost(self) -> None:
        """Nobody knows which of them were."""
        self._ledger.ack_unanswered(self._said)
        self._said.clear()
