"""What the audit log tells, and of which requests: a record's fields, and the rule that picks."""

from __future__ import annotations

import msgspec

from node.api.auth.access import Access

TARGET_CHARACTERS_MAX = 300
METHOD_CHARACTERS_MAX = 16
ANONYMOUS = "anonymous"
OK, FAILED, DENIED, LOST = "ok", "failed", "denied", "lost"
SUM = "sum"
OUTCOMES = (OK, FAILED, DENIED, LOST)

LOOKS = frozenset(("GET", "HEAD", "OPTIONS"))
DATA_PATH = frozenset(
    (
        "publish",
        "publishBatch",
        "publishBase64",
        "publishRecordBatches",
        "flushTopic",
        "initProducer",
        "producerHeartbeat",
        "receive",
        "peek",
        "settle",
        "ackMessage",
        "nackMessage",
        "rejectMessage",
        "extendVisibility",
        "ackReceipts",
        "ackIds",
        "nackReceipts",
        "rejectReceipts",
        "extendReceipts",
        "commit",
        "commitOffsets",
        "joinGroup",
        "joinCooperative",
        "heartbeat",
        "heartbeatCooperative",
        "leaveGroup",
        "leaveCooperative",
        "revoke",
    )
)
"""What producers and consumers do all day. Everything else that changes something is recorded."""
LOOKING = frozenset(
    (
        "describeGroup",
        "describeTopic",
        "getLag",
        "getMessage",
        "getOffsets",
        "listGroups",
        "listMembers",
        "listTopics",
        "openapi",
        "readPartition",
        "readTopic",
        "readyz",
        "stats",
        "streamGroup",
        "tailTopic",
        "version",
    )
)
"""What changes nothing, by whatever protocol it is asked: others than HTTP have no GET."""


class Sample(msgspec.Struct, omit_defaults=True):
    """One of the requests of a sum."""

    address: str
    action: str
    method: str
    target: str
    code: str = ""
    request_id: str = ""


class AuditRecord(msgspec.Struct, omit_defaults=True):
    """One request and what became of it. `who` is a key's id, or `anonymous`; `address` the one the
    request came from. `outcome`: ok, failed or denied; lost: `count` records could not be kept.

    Requests without a key are told in sums, of action `sum`: `count` of them since `since`, how
    many with each `code`, from how many `addresses` (of IPv6: /64), and a sample."""

    time: str
    node: str
    who: str
    action: str
    outcome: str
    role: str = ""
    address: str = ""
    method: str = ""
    target: str = ""
    status: int = 0
    code: str = ""
    request_id: str = ""
    count: int = 0
    since: str = ""
    reasons: dict[str, int] = {}
    addresses: int = 0
    sample: list[Sample] = []


def outcome_of(access: Access) -> str:
    if access.status in (401, 403) or access.code == "too_many_failures":
        return DENIED
    return FAILED if access.status >= 400 else OK


def is_audited(access: Access) -> bool:
    """Whatever was denied, and what changed something, or tried to, beside the data's own path."""
    if outcome_of(access) == DENIED:
        return True
    if not access.operation or access.method in LOOKS:
        return False
    return access.operation not in DATA_PATH | LOOKING


def record_of(access: Access, time: str, node: str) -> AuditRecord:
    principal = access.principal
    return AuditRecord(
        time=time,
        node=node,
        who=ANONYMOUS if principal is None else principal.key_id,
        action=access.operation,
        outcome=outcome_of(access),
        role="" if principal is None else principal.role.value,
        address=access.remote,
        method=access.method[:METHOD_CHARACTERS_MAX],
        target=access.target[:TARGET_CHARACTERS_MAX],
        status=access.status,
        code=access.code,
        request_id=access.request_id,
    )
