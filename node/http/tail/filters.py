"""Which messages a reader wants: with a key, and with headers."""

from __future__ import annotations

from dataclasses import dataclass

from node.http.lookup.search import headers_of
from node.http.messages.fields import Message, key_of
from node.http.messages.render import MessageView, text_or_base64
from node.http.request.call import Call

Shown = tuple[str, str | None]
"""A text, and the encoding that bytes are shown in which are no UTF-8."""


@dataclass(frozen=True, slots=True)
class Filter:
    """All that is named is meant; `key` None is any."""

    key: Shown | None = None
    headers: tuple[tuple[str, Shown], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether everything passes."""
        return self.key is None and not self.headers

    def passes(self, view: MessageView) -> bool:
        """Whether the message is wanted, as it is shown."""
        if self.key is not None and self.key != (view.key, view.key_encoding):
            return False
        found, encodings = view.headers or {}, view.header_encodings or {}
        return all(
            found.get(name) == text and encodings.get(name) == encoding
            for name, (text, encoding) in self.headers
        )


def filter_of(call: Call) -> Filter:
    """What the query asks for: `key`, `key_encoding`, and `header`, which may be given several
    times. Raises BadRequest."""
    key = key_of(Message(key=call.query.get("key"), key_encoding=call.query.get("key_encoding")))
    return Filter(
        None if key is None else text_or_base64(key),
        tuple((name, text_or_base64(value)) for name, value in headers_of(call)),
    )
