"""A publish of any JSON object, as the load tools around GoQueue send it, under `/api/v1`."""

from __future__ import annotations

import msgspec

from node.http.request.call import Call

PREFIX = "/api/v1/"
OBJECT_BYTES_MAX = 64 * 1024
"""What is larger is none of theirs (1 KB): it is decoded twice, and the loop waits for it."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def as_message(call: Call, body: bytes) -> bytes:
    """A publish under `/api/v1`: an object that is none of ours is one message's whole value."""
    if not call.request.path.startswith(PREFIX) or len(body) > OBJECT_BYTES_MAX:
        return body
    try:
        fields = _OBJECT.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body  # told where bodies are decoded
    if "messages" in fields or "value" in fields:
        return body
    return b'{"value":' + body + b"}"
