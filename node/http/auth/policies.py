"""What each route asks of whoever calls it: a role, and how far the key must reach.

A route that is not here is refused to everybody while authentication is on. Topics in a path are
checked before the handler runs; those in queries, bodies and receipts where the handler asks the
broker for them (`node.http.auth.scoped_broker`), so no way of naming a topic gets around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from node.api.auth.principal import Role


class Reach(StrEnum):
    """How far a key must reach. The value says so in the documentation."""

    NOTHING = "names no topic"
    TOPIC = "the topic in the path"
    NAMED = "the topics that it names"
    GROUP = "the group: its owner, or all its topics where it has none"
    SEEN = "shows what is within the prefixes"
    EVERYWHERE = "every topic"


@dataclass(frozen=True, slots=True)
class Policy:
    """`roles` None is anybody, without a key. `names` says which parameters and fields name topics,
    other than `{topic}` in the path."""

    roles: tuple[Role, ...] | None
    reach: Reach = Reach.NOTHING
    names: tuple[str, ...] = ()


ANY_ROLE = tuple(Role)
READ = (Role.READONLY, Role.CONSUMER, Role.ADMIN)
CONSUME = (Role.CONSUMER, Role.ADMIN)
PUBLISH = (Role.PRODUCER, Role.ADMIN)
ADMIN = (Role.ADMIN,)

ANYBODY = Policy(None)
_SEE_CLUSTER = Policy((Role.READONLY, Role.ADMIN), Reach.EVERYWHERE)
_RUN_CLUSTER = Policy(ADMIN, Reach.EVERYWHERE)
_LOOK_AT_TOPIC = Policy(ANY_ROLE, Reach.TOPIC)
_READ_TOPIC = Policy(READ, Reach.TOPIC)
_CHANGE_TOPIC = Policy(ADMIN, Reach.TOPIC)
_PUBLISH = Policy(PUBLISH, Reach.TOPIC)
_SEE_GROUP = Policy(READ, Reach.GROUP)
_SEE_GROUPS_TOPIC = Policy(READ, Reach.GROUP, ("?topic",))
_USE_GROUP = Policy(CONSUME, Reach.GROUP)
_SETTLE = Policy(CONSUME, Reach.NAMED, ("receipt", "receipts", "items"))
_MOVE_GROUP = Policy(CONSUME, Reach.NAMED, ("topic",))
_FIND = Policy(READ, Reach.SEEN, ("?topic",))
_LIST = Policy(READ, Reach.SEEN)
_SCHEDULE = Policy(PUBLISH, Reach.NAMED, ("{schedule}",))

POLICIES: dict[str, Policy] = {
    "createTopic": Policy(ADMIN, Reach.NAMED, ("name",)),
    "createBrowserToken": Policy(ANY_ROLE),
    "listTopics": Policy(ANY_ROLE, Reach.SEEN),
    "describeTopic": _LOOK_AT_TOPIC,
    "alterTopic": _CHANGE_TOPIC,
    "replaceTopic": _CHANGE_TOPIC,
    "deleteTopic": _CHANGE_TOPIC,
    "flushTopic": _PUBLISH,
    "trimTopic": _CHANGE_TOPIC,
    "getCompaction": _LOOK_AT_TOPIC,
    "runCompaction": _CHANGE_TOPIC,
    "compactTopic": _CHANGE_TOPIC,
    "reportArchived": _CHANGE_TOPIC,
    "describeQueue": _LOOK_AT_TOPIC,
    "consume": Policy(CONSUME, Reach.TOPIC, ("?group",)),
    "ackIds": Policy(CONSUME, Reach.TOPIC, ("messageId", "messageIds")),
    "listPartitions": _LOOK_AT_TOPIC,
    "publish": _PUBLISH,
    "publishBatch": _PUBLISH,
    "publishBase64": _PUBLISH,
    "publishRecordBatches": _PUBLISH,
    "readPartition": _READ_TOPIC,
    "readTopic": _READ_TOPIC,
    "tailTopic": _READ_TOPIC,
    "readEvents": _READ_TOPIC,
    "findMessages": _FIND,
    "listTraces": _LIST,
    "searchTraces": _FIND,
    "traceStats": _SEE_CLUSTER,
    "getTrace": Policy(READ, Reach.SEEN, ("{trace_id}",)),
    "getMessage": Policy(READ, Reach.NAMED, ("{id}",)),
    "getTimeline": Policy(READ, Reach.NAMED, ("{id}", "?topic")),
    "getWhy": Policy(READ, Reach.NAMED, ("{id}", "?topic")),
    "initProducer": Policy(PUBLISH, Reach.NAMED, ("transactional_id",)),
    "producerHeartbeat": Policy(PUBLISH),
    "ackMessage": _SETTLE,
    "nackMessage": _SETTLE,
    "rejectMessage": _SETTLE,
    "extendVisibility": _SETTLE,
    "listGroups": _LIST,
    "describeGroup": _SEE_GROUPS_TOPIC,
    "putGroup": _USE_GROUP,
    "changeGroup": _USE_GROUP,
    "deleteGroup": _USE_GROUP,
    "assignGroup": _RUN_CLUSTER,
    "joinGroup": Policy(CONSUME, Reach.GROUP, ("topics", "patterns")),
    "heartbeat": _USE_GROUP,
    "leaveGroup": _USE_GROUP,
    "poll": _USE_GROUP,
    "listMembers": _SEE_GROUP,
    "getAssignment": _SEE_GROUP,
    "joinCooperative": Policy(CONSUME, Reach.GROUP, ("topics", "patterns")),
    "heartbeatCooperative": _USE_GROUP,
    "leaveCooperative": _USE_GROUP,
    "revoke": _USE_GROUP,
    "describeCooperative": _SEE_GROUP,
    "listRebalances": _SEE_GROUP,
    "groupRebalanceStats": _SEE_GROUP,
    "rebalanceStats": _LIST,
    "getOffsets": _SEE_GROUPS_TOPIC,
    "commitOffsets": Policy(CONSUME, Reach.NAMED, ("offsets", "topics")),
    "getLag": _SEE_GROUPS_TOPIC,
    "resetOffsets": _MOVE_GROUP,
    "receive": Policy(CONSUME, Reach.NAMED, ("topic", "topics")),
    "streamGroup": Policy(CONSUME, Reach.NAMED, ("topics", "patterns")),
    "peek": Policy(READ, Reach.NAMED, ("topic", "topics")),
    "settle": _SETTLE,
    "ackReceipts": _SETTLE,
    "nackReceipts": _SETTLE,
    "rejectReceipts": _SETTLE,
    "extendReceipts": _SETTLE,
    "commit": _MOVE_GROUP,
    "seek": _MOVE_GROUP,
    "resume": Policy(CONSUME, Reach.GROUP, ("topic",)),
    "parkKey": _MOVE_GROUP,
    "releaseKey": _MOVE_GROUP,
    "listParkedKeys": _SEE_GROUPS_TOPIC,
    "listDeadLetters": Policy(READ, Reach.NAMED, ("?topic",)),
    "countDeadLetters": Policy(READ, Reach.NAMED, ("?topic",)),
    "redrive": _MOVE_GROUP,
    "listRedrives": _LIST,
    "describeRedrive": _LIST,
    "stopRedrive": Policy(CONSUME, Reach.NAMED, ("{job}",)),
    "purge": _MOVE_GROUP,
    "listDelayed": _LOOK_AT_TOPIC,
    "findDelayed": _LOOK_AT_TOPIC,
    "describeDelayed": _LOOK_AT_TOPIC,
    "cancelDelayed": _PUBLISH,
    "createSchedule": Policy(PUBLISH, Reach.NAMED, ("topic",)),
    "listSchedules": Policy(ANY_ROLE, Reach.SEEN),
    "describeSchedule": Policy(ANY_ROLE, Reach.NAMED, ("{schedule}",)),
    "deleteSchedule": _SCHEDULE,
    "pauseSchedule": _SCHEDULE,
    "resumeSchedule": _SCHEDULE,
    "delayStats": _LIST,
    "priorityStats": _LIST,
    "reliabilityStats": _LIST,
    "getCluster": Policy(ANY_ROLE, Reach.SEEN),
    "getClusterInfo": Policy(ANY_ROLE, Reach.SEEN),
    "listNodes": Policy(ANY_ROLE, Reach.SEEN),
    "getClusterHealth": Policy(ANY_ROLE, Reach.SEEN),
    "getClusterState": Policy(ANY_ROLE, Reach.SEEN),
    "getScrub": _SEE_CLUSTER,
    "beginScrub": _RUN_CLUSTER,
    "getClusterOverview": _SEE_CLUSTER,
    "listBrokers": _SEE_CLUSTER,
    "getClusterVersion": _SEE_CLUSTER,
    "finishUpgrade": _RUN_CLUSTER,
    "describeBroker": _SEE_CLUSTER,
    "removeBroker": _RUN_CLUSTER,
    "drainBroker": _RUN_CLUSTER,
    "undrainBroker": _RUN_CLUSTER,
    "rebalanceCluster": _RUN_CLUSTER,
    "reassign": _RUN_CLUSTER,
    "listReassignments": _SEE_CLUSTER,
    "describeReassignment": _SEE_CLUSTER,
    "cancelReassignment": _RUN_CLUSTER,
    "addPartitions": _CHANGE_TOPIC,
    "getScalingStatus": _LOOK_AT_TOPIC,
    "readAudit": _RUN_CLUSTER,
    "createKey": _RUN_CLUSTER,
    "listKeys": _RUN_CLUSTER,
    "describeKey": _RUN_CLUSTER,
    "rotateKey": _RUN_CLUSTER,
    "revokeKey": _RUN_CLUSTER,
    "health": ANYBODY,
    "healthz": ANYBODY,
    "livez": ANYBODY,
    "readyz": ANYBODY,
    "version": ANYBODY,
    "stats": _LIST,
    "metrics": _SEE_CLUSTER,
    "openapi": Policy(ANY_ROLE),
}
"""By the route's operation."""

PAGE_SEEN = Policy(READ, Reach.SEEN)
"""Pages ask a broker, and a census, that show what is within the key's prefixes."""
PAGE_ACTED = Policy(CONSUME, Reach.NAMED, ("{topic}",))
"""Redrives and purges from the console."""
