"""Every error a caller can see, with its code, HTTP status, and what is known of the outcome.

An error crosses the wire as `{"error", "status", "code", "retriable", "outcome", ...data}` and
comes back as the same class, whichever node raised it. `outcome` is `none` (what was asked has
definitely not happened) or `unknown` (it may have, and may still); only `none`, or a request with
identity, may be repeated without thought. `retriable` says that the same request may succeed later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self, cast

Outcome = Literal["none", "unknown"]

_BODY_FIELDS = frozenset({"error", "status", "code", "retriable", "outcome"})


class GoQueueError(Exception):
    """The root. `data` holds the facts beside the message, all of them JSON values."""

    code: str = "error"
    http_status: int = 500
    retriable: bool = False
    outcome: Outcome = "none"
    text: ClassVar[str] = "the request failed"

    def __init__(
        self,
        message: str | None = None,
        *,
        retriable: bool | None = None,
        outcome: Outcome | None = None,
        **data: object,
    ) -> None:
        self.message = self.text if message is None else message
        self.data: dict[str, object] = data
        if retriable is not None:
            self.retriable = retriable
        if outcome is not None:
            self.outcome = outcome
        super().__init__(self.message)

    def to_body(self) -> dict[str, object]:
        """The answer's JSON body; the fixed fields win over data of the same name."""
        return {
            **self.data,
            "error": self.message,
            "status": self.http_status,
            "code": self.code,
            "retriable": self.retriable,
            "outcome": self.outcome,
        }

    @staticmethod
    def from_body(body: Mapping[str, object]) -> GoQueueError:
        """The error that `to_body` wrote, of its own class, with status and outcome as told.

        A code that this version does not know is kept in `code`, in an error of the family that
        its status belongs to. Never raises, whatever the body holds.
        """
        code = body.get("code")
        known = _class_of(code) if isinstance(code, str) else None
        status = body.get("status")
        if known is not None:
            return known._rebuild(body)
        is_request = isinstance(status, int) and 400 <= status <= 499
        error = (BadRequest if is_request else ServerError)._rebuild(body)
        if isinstance(code, str):
            error.code = code
        return error

    @classmethod
    def _rebuild(cls, body: Mapping[str, object]) -> Self:
        error = cls.__new__(cls)
        GoQueueError.__init__(error, str(body.get("error", cls.text)))
        error.data = {name: value for name, value in body.items() if name not in _BODY_FIELDS}
        status = body.get("status")
        if isinstance(status, int) and 400 <= status <= 599:
            error.http_status = status
        error.retriable = bool(body.get("retriable", cls.retriable))
        if body.get("outcome") in ("none", "unknown"):
            error.outcome = cast(Outcome, body["outcome"])
        return error


class BadRequest(GoQueueError):
    code, http_status, text = "bad_request", 400, "the request is not understood"


class BadName(BadRequest):
    code, text = "invalid_name", "names match [A-Za-z0-9][A-Za-z0-9._-]{0,248}"


class BadReceipt(BadRequest):
    code, text = "invalid_receipt", "this is not a receipt of this server"


class DelayTooLong(BadRequest):
    code, text = "delay_too_long", "the delay is beyond the topic's horizon"


class KeyRequired(BadRequest):
    code, text = "key_required", "the topic is compacted: its messages have keys"


class NullValue(BadRequest):
    code, text = "null_value", "a null value deletes a key, in compacted topics only"


class BatchError(BadRequest):
    """A record batch that is not one: torn, flipped, of another version, or inconsistent."""

    code, text = "bad_batch", "not a valid record batch"


class OffsetOutOfRange(GoQueueError):
    code, http_status = "offset_out_of_range", 400

    def __init__(self, offset: int, first: int, next: int) -> None:
        super().__init__(
            f"offset {offset} is outside {first} to {next}", offset=offset, first=first, next=next
        )


class Unauthenticated(GoQueueError):
    code, http_status, text = "unauthenticated", 401, "an API key is needed"


class Forbidden(GoQueueError):
    code, http_status, text = "forbidden", 403, "not allowed"


class ReadOnlyDirectory(Forbidden):
    """What was asked for changes something, and the directory is open with `mode="r"`."""

    code, text = "read_only_directory", 'the directory is open for reading only (mode="r")'


class NotFound(GoQueueError):
    code, http_status, text = "not_found", 404, "not found"


class UnknownTopic(NotFound):
    code = "unknown_topic"

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic not found: {topic}", topic=topic)


class UnknownPartition(NotFound):
    code = "unknown_partition"

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            f"topic {topic} has no partition {partition}", topic=topic, partition=partition
        )


class UnknownGroup(NotFound):
    code = "unknown_group"

    def __init__(self, group: str) -> None:
        super().__init__(f"group not found: {group}", group=group)


class UnknownMember(NotFound):
    """The group has no such member: it never joined, left, or was not heard of for too long.

    One that was `replaced`, by another consumer with its instance id, must not join again: they
    would take each other's place for ever.
    """

    code = "unknown_member"

    def __init__(self, group: str, member: str, *, replaced: bool = False) -> None:
        name = member[:100]
        text = f"group {group} has no member {name}: join again"
        if replaced:
            text = f"in group {group} another consumer with its instance id replaced {name}"
        super().__init__(text, group=group, member=member, replaced=replaced)


class NotInFlight(NotFound):
    """The receipt's message was settled before, or was never delivered with it."""

    code, text = "not_in_flight", "message not found or already processed"


class MethodNotAllowed(GoQueueError):
    code, http_status, text = "method_not_allowed", 405, "method not allowed"


class Conflict(GoQueueError):
    code, http_status, text = "conflict", 409, "in conflict with what is there"


class TopicExists(GoQueueError):
    code, http_status = "topic_exists", 409

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic already exists: {topic}", topic=topic)


class OutOfOrder(GoQueueError):
    """A producer's batch does not continue its sequence: an earlier batch is missing, or another
    one has taken its place.

    `within` is where everything lies that the producer has stored in its epoch, or is about to:
    from the first offset to the one after the last. Whoever took its place is found there. Where
    it is None the partition knows nothing of the producer's epoch (`unknown_producer` in `data`):
    it has stored nothing, or was forgotten, after days of silence or for want of room. It begins
    again with a new identity; what it sent before may be stored.
    """

    code, http_status = "out_of_order", 409

    def __init__(self, expected: int, got: int, within: tuple[int, int] | None = None) -> None:
        problem = f"sequence {got} does not continue: expected {expected}"
        if within is None:
            problem += ", as the partition knows nothing of this producer's epoch (any more)"
        super().__init__(problem, expected=expected, got=got)
        if within is None:
            self.data["unknown_producer"] = True
        else:
            self.data["first_offset"], self.data["end_offset"] = within


class ProducerFenced(GoQueueError):
    """A newer epoch of the same producer id has written: this one must stop."""

    code, http_status, text = "producer_fenced", 409, "a newer epoch of this producer is in use"


class ReceiptExpired(Conflict):
    """The lease ended before the settle: the message was, or will be, delivered again."""

    code, text = "receipt_expired", "this delivery is over: the message comes, or came, again"


class AlreadyDue(Conflict):
    """A delayed message that is due can't be cancelled: it is or will be delivered."""

    code, text = "already_due", "the message is due: it can't be cancelled any more"


class StaleGeneration(Conflict):
    """The partition is another member's by now: who asks must look at its assignment again.

    `generation` is the owner's, `partitions` names those that were refused.
    """

    code, text = "stale_generation", "this partition belongs to another member of the group now"


class OtherArchive(Conflict):
    """The topic is archived elsewhere: what is reported of another archive does not count."""

    code = "other_archive"

    def __init__(self, topic: str, partition: int, archive: str) -> None:
        super().__init__(
            f"partition {partition} of topic {topic} is archived at {archive}",
            topic=topic,
            partition=partition,
            archive=archive,
        )


class GroupActive(Conflict):
    """The group has members: this would take what they work on away from them."""

    code, text = "group_active", "the group has active members"


class GroupHalted(Conflict):
    """The group stopped because its messages fail; `reason` says which."""

    code, text = "group_halted", "the group is halted: resume it once its consumers are mended"


class PayloadTooLarge(GoQueueError):
    code, http_status, text = "payload_too_large", 413, "the payload is too large"


class UnsupportedMediaType(GoQueueError):
    code, http_status, text = "unsupported_media_type", 415, "unsupported media type"


class Busy(GoQueueError):
    code, http_status, retriable, text = "busy", 429, True, "too much is in flight"


class TooManyInFlight(Busy):
    """The group holds as many leases in the partition as it may: settle some first."""

    code, text = "too_many_in_flight", "too many messages are in flight"


class TooManyDelayed(Busy):
    """The partition holds as many delayed messages as its topic allows."""

    code, text = "too_many_delayed", "too many messages are delayed"


class OverBudget(Busy):
    """No room in the server's memory for this request now, or for its client: `bound` says whose
    limit that is: of the connection, of the holder (its key or address), of the node, or of the
    share that is kept for those who hold little."""

    code = "over_budget"

    def __init__(self, kind: str, bound: str, limit: int) -> None:
        super().__init__(
            f"no room for more {kind}: the bound of the {bound} is {limit} bytes",
            kind=kind,
            bound=bound,
            limit=limit,
        )


class Corrupt(GoQueueError):
    code, http_status, text = "corrupt", 500, "stored data is damaged"


class ServerError(GoQueueError):
    """A fault of the server; also stands for codes this version does not know."""

    code, http_status, outcome, text = "internal", 500, "unknown", "internal error"


class Unavailable(GoQueueError):
    code, http_status, retriable, text = "unavailable", 503, True, "not available now"


class NotLeader(Unavailable):
    """The node asked does not lead the group; `leader` names the one that does, if known."""

    code = "not_leader"

    def __init__(self, leader: str | None = None) -> None:
        known = f"{leader} leads" if leader else "no leader is known"
        super().__init__(f"this node does not lead the partition: {known}", leader=leader)


class NoQuorum(Unavailable):
    code, text = "no_quorum", "a majority of the replicas can't be reached"


class OutcomeUnknown(Unavailable):
    """Leadership moved while the request was in flight: it may have happened, or may yet."""

    code, outcome, text = "outcome_unknown", "unknown", "the outcome is not known"


class ConnectionFailed(Unavailable):
    """No server answered. `outcome` is `none` only if nothing was sent."""

    code, text = "connection_failed", "no server could be reached"


class Timeout(GoQueueError):
    code, http_status, retriable, text = "timeout", 504, True, "no answer in time"
    outcome: Outcome = "unknown"


class DiskFull(GoQueueError):
    code, http_status, retriable, text = "disk_full", 507, True, "no disk space for new records"


def _class_of(code: str) -> type[GoQueueError] | None:
    if code not in _CLASSES:  # a floor above may have added its own since
        _CLASSES.update(_codes(GoQueueError))
    return _CLASSES.get(code)


def _codes(root: type[GoQueueError]) -> dict[str, type[GoQueueError]]:
    """Classes by their codes; what inherits its code stands behind the class that has it."""
    found = {root.code: root}
    for error in root.__subclasses__():
        found = {**_codes(error), **found}
    return found


_CLASSES = _codes(GoQueueError)
from_body = GoQueueError.from_body
