"""Errors as gRPC tells them: a status of its own, and `goqueue.v1.Error` among its details.

The status' code is for who looks at nothing else; the detail has all that HTTP's body has.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.any_pb2 import Any as Packed
from google.rpc.status_pb2 import Status

from goqueue.wire.errors import GoQueueError
from node.http.text.errors import RETRY_AFTER_S
from node.listeners.grpc.library import Context, grpc
from node.listeners.grpc.protocol import goqueue_pb2 as pb

DETAILS_KEY = "grpc-status-details-bin"
"""Where clients look for a status with details: gRPC's own convention."""
TEXT_CHARACTERS_MAX, DATA_CHARACTERS_MAX = 1_000, 300
"""Of an error's text, and of each of its data: HTTP/2 has bounds for what stands in trailers."""

_Code = grpc.StatusCode
_OF_HTTP: dict[int, Any] = {
    400: _Code.INVALID_ARGUMENT,
    401: _Code.UNAUTHENTICATED,
    403: _Code.PERMISSION_DENIED,
    404: _Code.NOT_FOUND,
    408: _Code.DEADLINE_EXCEEDED,
    409: _Code.FAILED_PRECONDITION,
    413: _Code.INVALID_ARGUMENT,
    429: _Code.RESOURCE_EXHAUSTED,
    503: _Code.UNAVAILABLE,
    504: _Code.DEADLINE_EXCEEDED,
    507: _Code.RESOURCE_EXHAUSTED,
}
_OF_CODE: dict[str, Any] = {
    "topic_exists": _Code.ALREADY_EXISTS,
    "offset_out_of_range": _Code.OUT_OF_RANGE,
    "producer_fenced": _Code.ABORTED,
    "out_of_order": _Code.ABORTED,
    "stale_generation": _Code.ABORTED,
    "not_implemented": _Code.UNIMPLEMENTED,
    "corrupt": _Code.DATA_LOSS,
    "outcome_unknown": _Code.UNKNOWN,
}
_FAMILIES: dict[str, int] = {
    "unknown_topic": pb.ERROR_CODE_TOPIC_NOT_FOUND,
    "topic_exists": pb.ERROR_CODE_TOPIC_ALREADY_EXISTS,
    "unknown_partition": pb.ERROR_CODE_PARTITION_NOT_FOUND,
    "invalid_partition": pb.ERROR_CODE_INVALID_PARTITION,
    "unknown_group": pb.ERROR_CODE_GROUP_NOT_FOUND,
    "unknown_member": pb.ERROR_CODE_NOT_GROUP_MEMBER,
    "stale_generation": pb.ERROR_CODE_INVALID_GENERATION,
    "payload_too_large": pb.ERROR_CODE_MESSAGE_TOO_LARGE,
    "bad_message": pb.ERROR_CODE_INVALID_MESSAGE,
    "delay_too_long": pb.ERROR_CODE_INVALID_MESSAGE,
    "key_required": pb.ERROR_CODE_INVALID_MESSAGE,
    "invalid_receipt": pb.ERROR_CODE_RECEIPT_HANDLE_INVALID,
    "receipt_expired": pb.ERROR_CODE_RECEIPT_HANDLE_EXPIRED,
    "not_in_flight": pb.ERROR_CODE_MESSAGE_NOT_FOUND,
    "not_found": pb.ERROR_CODE_MESSAGE_NOT_FOUND,
    "producer_fenced": pb.ERROR_CODE_PRODUCER_FENCED,
    "not_leader": pb.ERROR_CODE_NOT_LEADER,
    "no_quorum": pb.ERROR_CODE_REPLICATION_FAILED,
    "outcome_unknown": pb.ERROR_CODE_REPLICATION_FAILED,
    "timeout": pb.ERROR_CODE_REPLICATION_FAILED,
    "unavailable": pb.ERROR_CODE_BROKER_NOT_AVAILABLE,
}
"""Codes of ours that one of GoQueue's says. Its others stay unused: nothing here ends like that."""


class NotImplementedYet(GoQueueError):
    """Named in the protocol, and not there: nothing was done."""

    code, http_status, text = "not_implemented", 501, "not implemented by this version"


def error_of(error: GoQueueError) -> pb.Error:
    """As a message. `details` hold its code, whether it is `retriable`, its `outcome`, and all its
    data as text."""
    data = {name: _text(value) for name, value in error.data.items()}
    told = pb.Error(
        code=_FAMILIES.get(error.code, pb.ERROR_CODE_UNSPECIFIED),  # type: ignore[arg-type]
        message=error.message[:TEXT_CHARACTERS_MAX],
        details={
            **data,
            "code": error.code,
            "retriable": str(error.retriable).lower(),
            "outcome": error.outcome,
        },
    )
    if error.retriable:
        after_s = error.data.get("retry_after_s", RETRY_AFTER_S)
        told.retry_after.seconds = int(after_s) if isinstance(after_s, int | float) else 1
    return told


def status_of(error: GoQueueError) -> Any:
    """The code that a failed call ends with."""
    found = _OF_CODE.get(error.code) or _OF_HTTP.get(error.http_status)
    if found is None:
        found = _Code.INVALID_ARGUMENT if 400 <= error.http_status < 500 else _Code.INTERNAL
    return found


def fail(context: Context, error: GoQueueError) -> None:
    """End the call with this error, once its handler returns."""
    code = status_of(error)
    detail = Packed()
    detail.Pack(error_of(error))
    told = Status(code=code.value[0], message=error.message[:TEXT_CHARACTERS_MAX], details=[detail])
    context.set_code(code)
    context.set_details(told.message)
    context.set_trailing_metadata(((DETAILS_KEY, told.SerializeToString()),))


def _text(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:DATA_CHARACTERS_MAX]
