"""What keeps a stream from going on: its client is told once, and each pause is twice the last."""

from __future__ import annotations

FIRST_S, MOST_S = 0.25, 5.0
"""The first pause between tries that fail, and the longest."""


class Troubles:
    """Of one stream, or one piece of work that is repeated until it succeeds. Pure."""

    def __init__(self) -> None:
        self._code = ""
        self._pause_s = FIRST_S

    def is_new(self, code: str) -> bool:
        """Whether it is another one than the last, by its code: whoever waits is told then."""
        was, self._code = self._code, code
        return code != was

    def next_pause_s(self) -> float:
        """How long to wait before the next try."""
        pause_s, self._pause_s = self._pause_s, min(MOST_S, 2 * self._pause_s)
        return pause_s

    def passed(self) -> None:
        """Something succeeded: the next trouble is a new one."""
        self._code, self._pause_s = "", FIRST_S
