"""How errors look: one JSON shape for all of them, whoever found the fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from aiohttp import web

from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget, PayloadTooLarge

RETRY_AFTER_S = 1
CHALLENGE = 'Bearer realm="goqueue"'
"""What a 401 asks for: RFC 6750."""


class NotSupported(GoQueueError):
    """Understood, but this version can't do it; refused rather than done half."""

    code, http_status = "not_supported", 400
    text: ClassVar[str] = "not supported by this version"


class RequestTimeout(GoQueueError):
    """The client sent its request too slowly."""

    code, http_status, retriable = "request_timeout", 408, True
    text: ClassVar[str] = "the request arrived too slowly"


class HeadTooLarge(GoQueueError):
    """A request's line and headers are more than a request may begin with."""

    code, http_status = "head_too_large", 431

    def __init__(self, limit: int) -> None:
        super().__init__(f"line and headers of a request over {limit} bytes", limit=limit)


class BadMessage(BadRequest):
    """One message of a publish is unusable; the others are not."""

    code, text = "bad_message", "the message is not understood"


def decoded_too_large(error: OverBudget) -> GoQueueError:
    """What is told where decoded values find no room: 413 if they never would, in one request."""
    if error.data["bound"] != "connection":
        return error
    limit = error.data["limit"]
    text = f"decoded, the body takes over {limit} bytes of memory: send less at a time"
    return PayloadTooLarge(text, limit=limit)


def error_answer(error: GoQueueError, extra: dict[str, object] | None = None) -> web.Response:
    """The answer to a whole request that failed; `extra` joins the body."""
    body = {**error.to_body(), **(extra or {})}
    headers = {"Content-Type": "application/json"}
    if error.retriable and error.http_status in (429, 503, 507):
        headers["Retry-After"] = str(error.data.get("retry_after_s", RETRY_AFTER_S))
    allow = error.data.get("allow")
    if isinstance(allow, list):
        headers["Allow"] = ", ".join(map(str, allow))
    if error.http_status == 426:
        headers["Upgrade"] = "websocket"
    if error.http_status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    answer = web.Response(body=encode_error(body), status=error.http_status, headers=headers)
    if error.http_status in (408, 413):
        answer.force_close()
    return answer


def parts_failed_answer(errors: Sequence[GoQueueError], extra: dict[str, object]) -> web.Response:
    """The answer to a request none of whose parts succeeded: the first one's error. What is not
    known of any part is not known of the request."""
    if any(error.outcome == "unknown" for error in errors):
        extra = {**extra, "outcome": "unknown"}
    return error_answer(errors[0], extra)


def encode_error(body: dict[str, object]) -> bytes:
    """JSON of an error's body; data that JSON can't hold is shown as text."""
    return msgspec.json.encode(body, enc_hook=str)


def result_of(error: GoQueueError, partition: int) -> dict[str, object]:
    """What a failed message's place in `results` holds; partition -1 where none was chosen."""
    return {"partition": partition, "offset": -1, **error.to_body()}
