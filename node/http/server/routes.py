"""Every route, once: what it answers to, who handles it, and what goes in and comes out.

Each is mounted at `/` and at `/v1`. The router matches from this table, the OpenAPI document is
generated from it, and metrics are labelled with its templates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from node.http.admin import audit, cluster, health, keys, scrub, upgrade
from node.http.compat import cooperative, load_tools, poll, traces
from node.http.compat import settle as goqueue_settle
from node.http.groups import catalog as groups
from node.http.groups import members, offsets, positions, rebalances
from node.http.groups import settings as group_settings
from node.http.lookup import events, timeline, why
from node.http.lookup import search as searching
from node.http.messages import batches, producers, publish, read, render
from node.http.messages import columns as messages
from node.http.messages.results import PublishAnswer
from node.http.placement import brokers, reassignments, scaling
from node.http.placement.plans import PlanAnswer, ReassignmentDetail
from node.http.queue import dead_letters, dead_topic, delayed, receive, schedules, settle
from node.http.queue import stats as queue_stats
from node.http.queue.dead_topic import dead_or
from node.http.request.call import Call
from node.http.server import openapi
from node.http.stream import registry as streams
from node.http.tail import stream
from node.http.text.router import Router
from node.http.topics import archived, compaction
from node.http.topics import as_queue as topic_queue
from node.http.topics import catalog as topics

Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Query:
    """A query field: its name, JSON type and meaning."""

    name: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `request` and `response` are msgspec types, None where there is no JSON.

    `plan` is what a dry run answers, with 200, where that is another type. `nothing` says when
    the answer is 204, which has no body.
    `events` describes a stream of server-sent events, which the answer is then; `upgrade` what is
    said on a WebSocket.
    """

    method: str
    path: str
    handler: Handler
    operation: str
    summary: str
    request: Any = None
    response: Any = None
    status: int = 200
    query: tuple[Query, ...] = ()
    batch_in: bool = False
    batch_out: bool = False
    plan: Any = None
    nothing: str = ""
    events: str = ""
    upgrade: str = ""


_LIMIT = Query("limit", "integer", "messages in one answer; at most 1000, more in batches")
_FROM = Query("from_time", "string", "first log time, RFC 3339 or epoch milliseconds")
_TO = Query("to_time", "string", "log time to stop before, RFC 3339 or epoch milliseconds")
_DEAD_GROUP = Query("group", "string", "of <topic>.dlq: whose dead letters")
_VISIBLE = (
    Query("visible", "boolean", "leave out what is not due, cancelled or expired"),
    Query("skip_pending", "boolean", "go past what is not due; the answer names it"),
)
_READ = (
    Query("offset", "string", "first offset, or earliest (the default), or latest"),
    _LIMIT,
    Query("max_bytes", "integer", "bytes of stored batches in one answer"),
    Query("wait", "string", "how long to wait for a message: 5s, 500ms, or milliseconds"),
    Query("timeout", "string", "the same as wait"),
    _FROM,
    _TO,
    *_VISIBLE,
    Query("current", "boolean", "end_offset as of a moment after the question, or stale"),
    _DEAD_GROUP,
)
_TAIL = (
    Query("partition", "integer", "only this partition; else all, 256 at most"),
    Query("offset", "string", "where to begin: latest (the default), earliest, or an offset"),
    Query("offsets", "string", "where to begin, by partition: 0:12,1:7, as an event's id has it"),
    Query("from_time", "string", "not before this log time, RFC 3339 or epoch milliseconds"),
    Query("key", "string", "only messages with this key"),
    Query("key_encoding", "string", "base64 where the key is given so"),
    Query("header", "string", "only messages with this header, NAME:VALUE; several are all meant"),
    Query("wait", "string", "end once no message came for so long: 5s or milliseconds"),
)
_EVENTS = (
    Query("after", "integer", "events of the log's entries after this one; 0, the default: all"),
    Query("after_offset", "integer", "of the first of these, only of messages after this offset"),
    Query("until", "integer", "the last entry that is wanted"),
    Query("limit", "integer", "events in one answer, about; at most 20000"),
    Query("wait", "string", "how long to wait for an event: 5s, 500ms, or milliseconds"),
    Query("timeout", "string", "the same as wait"),
)
_TOPIC = "/topics/{topic}"
_MESSAGES = "/topics/{topic}/messages"
_PARTITION_MESSAGES = "/topics/{topic}/partitions/{partition}/messages"
_PARTITION = Query("partition", "integer", "where record batches go")
_DELAYED = "/topics/{topic}/delayed"
_GROUP = "/groups/{group}"
_DEAD = "/groups/{group}/dlq"
_SCHEDULE = "/schedules/{schedule}"
_REASSIGNMENT = "/admin/reassignment"
_BROKER = "/admin/brokers/{broker}"
_KEY = "/admin/keys/{key}"
_DEAD_FILTER = (
    Query("topic", "string", "of this topic; required"),
    Query("reason", "string", "a part of the reason's text"),
    Query("key", "string", "with this key"),
    Query("from_time", "string", "first time of death, RFC 3339 or epoch milliseconds"),
    Query("to_time", "string", "time of death to stop before"),
    Query("partition", "integer", "in this partition"),
    _LIMIT,
    Query("after", "string", "where to go on: next of an earlier answer"),
)
_MEMBER = Query("member_id", "string", "whose; required")
_ID_TOPIC = Query("topic", "string", "the id is its producer's message_id, in this topic")
_FIND = (
    Query("topic", "string", "in this topic; else in all"),
    Query("partition", "integer", "in this partition"),
    Query("message_id", "string", "with this id of its producer's"),
    Query("trace_id", "string", "that carries this W3C trace id, 32 hex digits"),
    Query("key", "string", "with this key"),
    Query("key_encoding", "string", "base64 where the key is given so"),
    Query("header", "string", "with this header, NAME:VALUE; several are all meant"),
    Query("from_time", "string", "first log time, RFC 3339 or epoch milliseconds; also start"),
    Query("to_time", "string", "log time to stop before; also end"),
    Query("group", "string", "whose state and status are meant; also consumer_group"),
    Query(
        "state",
        "string",
        "in one of these states, comma separated: delayed, ready, in_flight, "
        "retrying, acked, dead, cancelled, expired",
    ),
    Query(
        "status",
        "string",
        "in_progress, completed, failed, retrying, delayed, cancelled or expired",
    ),
)
_OF_TOPIC = Query("topic", "string", "of this topic only")

ROUTES: tuple[Route, ...] = (
    Route("POST", "/topics", topics.create, "createTopic", "Create a topic",
          topics.CreateTopic, topics.TopicCreated, 201),
    Route("GET", "/topics", topics.list_names, "listTopics", "Name all topics",
          response=topics.TopicNames),
    Route("GET", _TOPIC, dead_or(topics.describe, dead_topic.describe), "describeTopic",
          "Describe a topic, or <topic>.dlq: its dead letters",
          response=topics.TopicAnswer | dead_topic.DeadTopicAnswer),
    Route("PATCH", _TOPIC, topics.alter, "alterTopic", "Change a topic's settings",
          topics.TopicSettings, topics.TopicAnswer),
    Route("PUT", _TOPIC, topics.alter, "replaceTopic", "Change a topic's settings",
          topics.TopicSettings, topics.TopicAnswer),
    Route("DELETE", _TOPIC, topics.delete, "deleteTopic", "Delete a topic and its messages",
          response=topics.TopicDeleted),
    Route("POST", _TOPIC + "/flush", topics.flush, "flushTopic",
          "Sync what was acked under relaxed durability", response=topics.TopicFlushed),
    Route("POST", _TOPIC + "/trim", topics.trim, "trimTopic",
          "Let go of what all groups have settled, with its space", response=topics.TopicTrimmed),
    Route("GET", _TOPIC + "/compaction", compaction.status, "getCompaction",
          "How much of each partition is compacted", response=compaction.CompactionAnswer),
    Route("POST", _TOPIC + "/compaction", compaction.run, "runCompaction",
          "Compact now, or tell what that would do", compaction.CompactBody,
          compaction.CompactionAnswer),
    Route("POST", "/admin/topics/{topic}/compact", compaction.run_for_goqueue, "compactTopic",
          "Compact now, or tell what that would do, in GoQueue's words",
          compaction.GoQueueCompactBody, compaction.GoQueueCompaction),
    Route("GET", _TOPIC + "/queue", topic_queue.describe, "describeQueue",
          "A topic as a queue: what was stored and delayed, and where its groups stand",
          response=topic_queue.TopicQueue),
    Route("GET", _TOPIC + "/consume", load_tools.consume, "consume",
          "Lease messages for a group, as k6 scripts of GoQueue's do",
          response=load_tools.K6Messages, nothing="no message came in time", query=(
              Query("group", "string", "the group; required"),
              Query("timeout", "string", "how long to wait: 5s or milliseconds; to 60s"),
              Query("maxMessages", "integer", "messages in one answer; at most 1000"))),
    Route("POST", _TOPIC + "/ack", load_tools.ack, "ackIds",
          "Ack messages by the ids that came with them", load_tools.K6Ack, load_tools.K6Acked),
    Route("POST", _TOPIC + "/archived", archived.report, "reportArchived",
          "Tell how far an archive holds each partition", archived.ArchivedBody,
          archived.ArchivedAnswer),
    Route("GET", _TOPIC + "/partitions/{partition}/events", events.read, "readEvents",
          "What happened to a partition's messages, in order",
          response=events.EventsAnswer, query=_EVENTS),
    Route("GET", _TOPIC + "/partitions", topics.partitions, "listPartitions",
          "Leaders and replicas", response=topics.PartitionsAnswer, query=(
              Query("current", "boolean", "ends as of a moment after the question, or 503"),)),
    Route("POST", _MESSAGES, publish.publish, "publish", "Publish messages",
          messages.PublishBody, PublishAnswer, query=(_PARTITION,), batch_in=True),
    Route("POST", _MESSAGES + "/batch", publish.publish, "publishBatch", "Publish messages",
          messages.PublishBody, PublishAnswer, query=(_PARTITION,), batch_in=True),
    Route("POST", _TOPIC + "/publish", publish.publish_base64, "publishBase64",
          "Publish messages whose values are base64", messages.PublishBody, PublishAnswer),
    Route("POST", _PARTITION_MESSAGES, batches.publish_to_partition, "publishRecordBatches",
          "Publish record batches", response=PublishAnswer, batch_in=True),
    Route("GET", _PARTITION_MESSAGES, dead_or(read.read, dead_topic.read), "readPartition",
          "Read by offset or by time; of <topic>.dlq, a group's dead letters",
          response=read.MessagesAnswer, query=_READ, batch_out=True),
    Route("GET", _MESSAGES, dead_or(read.read_topic, dead_topic.read_topic), "readTopic",
          "Read all partitions, merged by log time", response=read.TopicMessagesAnswer,
          query=(_LIMIT, _FROM, _TO, *_VISIBLE, _DEAD_GROUP,
                 Query("offsets", "string", "where to go on: 0:12,1:7, from next_offsets"))),
    Route("GET", _TOPIC + "/tail", stream.tail, "tailTopic",
          "Follow a topic as it is written, as server-sent events", query=_TAIL,
          events=stream.TEXT),
    Route("GET", "/messages", searching.search, "findMessages",
          "Find messages by id, trace id, key, header, time and state",
          response=searching.FoundAnswer, query=(
              *_FIND, Query("events", "boolean", "also what happened to each"), _LIMIT,
              Query("next", "string", "where to go on: next of an earlier answer"))),
    Route("GET", "/traces", traces.list_recent, "listTraces", "The newest messages' traces",
          response=traces.TracesAnswer, query=(_LIMIT,)),
    Route("GET", "/traces/search", traces.search, "searchTraces", "Find traces",
          response=traces.TracesAnswer, query=(*_FIND, _LIMIT)),
    Route("GET", "/traces/stats", traces.stats, "traceStats", "Figures of traces and their index",
          response=traces.TraceStats),
    Route("GET", "/traces/{trace_id}", traces.get, "getTrace",
          "A trace by its W3C id, or a message's own", response=traces.TraceAnswer),
    Route("GET", "/messages/{id}", read.message, "getMessage",
          "One message by topic:partition:offset", response=render.MessageView),
    Route("GET", "/messages/{id}/timeline", timeline.timeline, "getTimeline",
          "What happened to a message", response=timeline.TimelineAnswer, query=(_ID_TOPIC,)),
    Route("GET", "/messages/{id}/why", why.why, "getWhy",
          "Why a message is not delivered, or not settled, now", response=why.WhyAnswer,
          query=(Query("group", "string", "for this group; else for each that has the topic"),
                 _ID_TOPIC)),
    Route("POST", "/producers/init", producers.init, "initProducer", "Get a producer identity",
          producers.InitProducer, producers.ProducerIdentity),
    Route("POST", "/producers/{producer}/heartbeat", producers.heartbeat, "producerHeartbeat",
          "Ask whether an identity still holds", producers.ProducerBeat,
          producers.ProducerAlive),
    Route("POST", "/messages/ack", goqueue_settle.ack, "ackMessage", "Ack one message",
          goqueue_settle.AckBody, goqueue_settle.AckAnswer),
    Route("POST", "/messages/nack", goqueue_settle.nack, "nackMessage",
          "Have one message delivered again", goqueue_settle.NackBody, goqueue_settle.NackAnswer),
    Route("POST", "/messages/reject", goqueue_settle.reject, "rejectMessage",
          "Make one message a dead letter", goqueue_settle.RejectBody,
          goqueue_settle.RejectAnswer),
    Route("POST", "/messages/visibility", goqueue_settle.visibility, "extendVisibility",
          "Keep one message longer", goqueue_settle.VisibilityBody,
          goqueue_settle.VisibilityAnswer),
    Route("GET", "/groups", groups.list_groups, "listGroups", "Name all groups",
          response=groups.GroupsAnswer,
          query=(Query("unowned", "boolean", "only groups that belong to nobody"),)),
    Route("GET", _GROUP, groups.describe, "describeGroup", "Describe a group",
          response=groups.GroupAnswer, query=(_OF_TOPIC,)),
    Route("PUT", _GROUP, groups.put, "putGroup", "Create a group, or change its settings",
          group_settings.GroupSettings, groups.GroupAnswer),
    Route("PATCH", _GROUP, groups.change, "changeGroup", "Change a group's settings",
          group_settings.GroupSettings, groups.GroupAnswer),
    Route("DELETE", _GROUP, groups.delete, "deleteGroup", "Delete a group",
          response=groups.GroupDeleted,
          query=(Query("force", "boolean", "also while it has members"),)),
    Route("PUT", _GROUP + "/owner", groups.assign, "assignGroup",
          "Say whose a group is", groups.AssignBody, groups.AssignAnswer),
    Route("POST", _GROUP + "/join", members.join, "joinGroup",
          "Join a group, or subscribe to other topics", members.JoinBody, members.JoinAnswer),
    Route("POST", _GROUP + "/heartbeat", members.heartbeat, "heartbeat",
          "A member's sign of life: tells it what it has", members.HeartbeatBody,
          members.HeartbeatAnswer),
    Route("POST", _GROUP + "/leave", members.leave, "leaveGroup", "Leave a group",
          members.LeaveBody, members.LeaveAnswer),
    Route("GET", _GROUP + "/poll", poll.poll, "poll", "Lease messages for a member",
          response=poll.PollAnswer,
          query=(_MEMBER, Query("generation", "integer", "as of the last answer"),
                 Query("timeout", "string", "how long to wait: 5s or milliseconds; to 60s"),
                 _LIMIT, Query("max_messages", "integer", "the same as limit"))),
    Route("GET", _GROUP + "/members", members.list_members, "listMembers",
          "The members of a group", response=members.MembersAnswer),
    Route("GET", _GROUP + "/assignment", members.assignment, "getAssignment",
          "What a member has", response=members.MemberAssignment, query=(_MEMBER,)),
    Route("POST", _GROUP + "/join/cooperative", members.join, "joinCooperative", "Join a group",
          members.JoinBody, members.JoinAnswer),
    Route("POST", _GROUP + "/heartbeat/cooperative", cooperative.heartbeat,
          "heartbeatCooperative", "A member's sign of life: tells it what to let go of",
          members.HeartbeatBody, members.HeartbeatAnswer),
    Route("POST", _GROUP + "/leave/cooperative", members.leave, "leaveCooperative",
          "Leave a group", members.LeaveBody, members.LeaveAnswer),
    Route("POST", _GROUP + "/revoke", cooperative.revoke, "revoke",
          "A member has let go of partitions", members.HeartbeatBody, cooperative.RevokeAnswer),
    Route("GET", _GROUP + "/cooperative", cooperative.describe, "describeCooperative",
          "A group, its members' partitions and its rebalances",
          response=cooperative.CooperativeAnswer),
    Route("GET", _GROUP + "/rebalances", rebalances.list_rebalances, "listRebalances",
          "Why partitions moved, and how long each paused", response=rebalances.RebalancesAnswer,
          query=(Query("limit", "integer", "rebalances in one answer; at most 100"),)),
    Route("GET", _GROUP + "/rebalance/stats", rebalances.group_stats, "groupRebalanceStats",
          "Figures of a group's rebalances", response=rebalances.RebalanceStats),
    Route("GET", "/rebalance/stats", rebalances.all_stats, "rebalanceStats",
          "Figures of all rebalances", response=rebalances.RebalanceStats),
    Route("GET", _GROUP + "/offsets", offsets.get, "getOffsets", "How far a group has come",
          response=offsets.GroupOffsets, query=(_OF_TOPIC,)),
    Route("POST", _GROUP + "/offsets", offsets.commit, "commitOffsets",
          "Settle all below offsets", offsets.CommitOffsetsBody, offsets.CommitOffsetsAnswer),
    Route("GET", _GROUP + "/lag", offsets.lag, "getLag",
          "How far a group is behind, in messages and in seconds", response=offsets.LagAnswer,
          query=(_OF_TOPIC,)),
    Route("POST", _GROUP + "/offsets/reset", offsets.reset, "resetOffsets",
          "Set a group's positions, or tell what that would do", offsets.ResetBody,
          offsets.ResetAnswer),
    Route("POST", _GROUP + "/receive", receive.receive, "receive", "Lease messages",
          receive.ReceiveBody, receive.ReceivedAnswer),
    Route("GET", _GROUP + "/stream", streams.stream, "streamGroup",
          "Have messages pushed, by credit, over a WebSocket", status=101, upgrade=streams.TEXT),
    Route("POST", _GROUP + "/peek", receive.peek, "peek", "Look at what would be received next",
          receive.Sources, receive.ReceivedAnswer),
    Route("POST", _GROUP + "/settle", settle.settle, "settle", "Settle receipts, each its own way",
          settle.SettleBody, settle.SettleAnswer),
    *(
        Route("POST", f"{_GROUP}/{action}", settle.settle_as(action), f"{action}Receipts",
              summary, settle.SettleSomeBody, settle.SettleAnswer)
        for action, summary in (
            ("ack", "Ack receipts"),
            ("nack", "Have messages delivered again"),
            ("reject", "Make messages dead letters"),
            ("extend", "Keep messages longer"),
        )
    ),
    Route("POST", _GROUP + "/commit", positions.commit, "commit", "Settle all below an offset",
          positions.CommitBody, positions.OffsetsAnswer),
    Route("POST", _GROUP + "/seek", positions.seek, "seek", "Go on elsewhere: replay or skip",
          positions.SeekBody, positions.OffsetsAnswer),
    Route("POST", _GROUP + "/resume", positions.resume, "resume", "Let a halted group go on",
          positions.ResumeBody, positions.ResumedAnswer),
    Route("POST", _GROUP + "/keys/park", positions.park, "parkKey", "Withhold a key's messages",
          positions.KeyBody, positions.KeyAnswer),
    Route("POST", _GROUP + "/keys/release", positions.release, "releaseKey",
          "Let a parked key flow", positions.KeyBody, positions.KeyAnswer),
    Route("GET", _GROUP + "/keys/parked", positions.parked, "listParkedKeys",
          "Name the parked keys", response=positions.ParkedAnswer, query=(_OF_TOPIC,)),
    Route("GET", _DEAD, dead_letters.list_dead, "listDeadLetters", "List dead letters",
          response=dead_letters.DeadLettersAnswer, query=_DEAD_FILTER),
    Route("GET", _DEAD + "/counts", dead_letters.counts, "countDeadLetters",
          "Count dead letters by reason", response=dead_letters.DeadCountsAnswer,
          query=_DEAD_FILTER[:1]),
    Route("POST", _DEAD + "/redrive", dead_letters.redrive, "redrive",
          "Make dead letters ready again", dead_letters.RedriveBody, dead_letters.RedriveAnswer,
          202),
    Route("GET", _DEAD + "/redrives", dead_letters.redrives, "listRedrives", "List redrives",
          response=dead_letters.RedrivesAnswer),
    Route("GET", _DEAD + "/redrives/{job}", dead_letters.redrive_job, "describeRedrive",
          "How far a redrive is", response=dead_letters.RedriveAnswer),
    Route("DELETE", _DEAD + "/redrives/{job}", dead_letters.stop_redrive, "stopRedrive",
          "Stop a redrive", response=dead_letters.RedriveAnswer),
    Route("POST", _DEAD + "/purge", dead_letters.purge, "purge", "Forget dead letters",
          dead_letters.PurgeBody, dead_letters.PurgedAnswer),
    Route("GET", _DELAYED, delayed.list_delayed, "listDelayed", "List delayed messages",
          response=delayed.DelayedAnswer,
          query=(_LIMIT, Query("skip", "integer", "how many to leave out"))),
    Route("GET", _DELAYED + "/{offset}", delayed.find_by_offset, "findDelayed",
          "Look up a delayed message by its offset", response=delayed.DelayedMessage,
          query=(Query("partition", "integer", "in this partition only"),)),
    Route("GET", _DELAYED + "/{partition}/{offset}", delayed.find, "describeDelayed",
          "Look up a delayed message", response=delayed.DelayedMessage),
    Route("DELETE", _DELAYED + "/{partition}/{offset}", delayed.cancel, "cancelDelayed",
          "Cancel a delayed message", response=delayed.CancelledAnswer),
    Route("POST", "/schedules", schedules.create, "createSchedule",
          "Create or replace a recurring schedule", schedules.ScheduleBody,
          schedules.ScheduleAnswer, 201),
    Route("GET", "/schedules", schedules.list_schedules, "listSchedules", "List schedules",
          response=schedules.SchedulesAnswer),
    Route("GET", _SCHEDULE, schedules.describe, "describeSchedule", "Describe a schedule",
          response=schedules.ScheduleAnswer),
    Route("DELETE", _SCHEDULE, schedules.delete, "deleteSchedule", "Delete a schedule",
          response=schedules.ScheduleDeleted),
    Route("POST", _SCHEDULE + "/pause", schedules.pause, "pauseSchedule", "Pause a schedule",
          response=schedules.ScheduleAnswer),
    Route("POST", _SCHEDULE + "/resume", schedules.resume, "resumeSchedule",
          "Let a schedule go on", response=schedules.ScheduleAnswer),
    Route("GET", "/delay/stats", queue_stats.delays, "delayStats", "Figures of delays",
          response=queue_stats.DelayStats),
    Route("GET", "/priority/stats", queue_stats.priorities, "priorityStats",
          "Figures of lanes and waits", response=queue_stats.PriorityStats),
    Route("GET", "/reliability/stats", queue_stats.reliability, "reliabilityStats",
          "Figures of settles, leases and dead letters", response=queue_stats.ReliabilityStats),
    Route("GET", "/cluster", cluster.info, "getCluster", "The cluster in short",
          response=cluster.ClusterAnswer),
    Route("GET", "/cluster/info", cluster.info, "getClusterInfo", "The cluster in short",
          response=cluster.ClusterAnswer),
    Route("GET", "/cluster/nodes", cluster.nodes, "listNodes", "The brokers",
          response=cluster.NodesAnswer),
    Route("GET", "/cluster/health", cluster.health, "getClusterHealth", "Is the cluster well",
          response=cluster.ClusterHealth),
    Route("GET", "/cluster/state", cluster.state, "getClusterState", "As GoQueue shows it",
          response=cluster.StateAnswer),
    Route("GET", "/admin/scrub", scrub.status, "getScrub",
          "How reading again what is stored goes on each node", response=scrub.ScrubAnswer),
    Route("POST", "/admin/scrub", scrub.begin, "beginScrub",
          "Have every node read again what it stores", response=scrub.ScrubAnswer, status=202),
    Route("GET", "/cluster/version", upgrade.show, "getClusterVersion",
          "Which versions run, and the feature level that may be used",
          response=upgrade.ClusterVersion),
    Route("POST", "/admin/cluster/upgrade", upgrade.finish, "finishUpgrade",
          "Finish the next feature level, or tell what it waits for", upgrade.UpgradeBody,
          upgrade.ClusterVersion),
    Route("GET", "/admin/cluster", brokers.overview, "getClusterOverview",
          "The brokers, and what moves", response=brokers.ClusterOverview),
    Route("GET", "/admin/brokers", brokers.list_all, "listBrokers",
          "The brokers, and what each holds", response=brokers.BrokersAnswer),
    Route("GET", _BROKER, brokers.describe, "describeBroker", "A broker, and how far its drain is",
          response=brokers.BrokerAnswer),
    Route("DELETE", _BROKER, brokers.remove, "removeBroker", "Forget a drained broker",
          response=brokers.BrokerRemoved),
    Route("POST", _BROKER + "/drain", brokers.drain, "drainBroker",
          "Take all replicas off a broker, or tell which would move", brokers.DrainBody,
          brokers.DrainStarted, 202, plan=PlanAnswer),
    Route("DELETE", _BROKER + "/drain", brokers.undrain, "undrainBroker",
          "Let a broker take replicas again", response=brokers.BrokerAnswer),
    Route("POST", "/admin/cluster/rebalance", reassignments.rebalance, "rebalanceCluster",
          "Spread replicas and leaders, or tell which would move", reassignments.RebalanceBody,
          reassignments.ReassignmentStarted, 202, plan=PlanAnswer),
    Route("POST", _REASSIGNMENT, reassignments.create, "reassign",
          "Move partitions, or tell what that would do", reassignments.ReassignBody,
          reassignments.ReassignmentStarted, 202, plan=PlanAnswer),
    Route("GET", _REASSIGNMENT, reassignments.list_all, "listReassignments",
          "What moves, and what has moved", response=reassignments.ReassignmentsAnswer,
          query=(Query("running", "boolean", "only those that run"),)),
    Route("GET", _REASSIGNMENT + "/{reassignment}", reassignments.describe,
          "describeReassignment", "How far each partition is", response=ReassignmentDetail),
    Route("DELETE", _REASSIGNMENT + "/{reassignment}", reassignments.cancel,
          "cancelReassignment", "Send back what has not arrived", response=ReassignmentDetail),
    Route("POST", "/admin/topics/{topic}/partitions", scaling.add, "addPartitions",
          "Add partitions to a topic", scaling.AddPartitionsBody, scaling.PartitionsAddedAnswer),
    Route("GET", "/admin/topics/{topic}/scaling-status", scaling.status, "getScalingStatus",
          "What of a topic is on its way", response=scaling.ScalingAnswer),
    Route("GET", "/admin/audit", audit.read, "readAudit",
          "What was done by whom, and what was denied", response=audit.AuditAnswer, query=(
              Query("key", "string", "by the key with this id, or anonymous"),
              Query("action", "string", "this operation, such as deleteTopic"),
              Query("outcome", "string", "ok, failed, denied or lost"),
              Query("from_time", "string", "first time, RFC 3339 or epoch milliseconds"),
              Query("offset", "integer", "where to go on: next of an earlier answer"),
              Query("wait", "string", "how long to wait for a record: 5s or milliseconds"),
              Query("limit", "integer", "records in one answer; at most 1000"))),
    Route("POST", "/browser-tokens", keys.browser_token, "createBrowserToken",
          "Make a token that a page may open streams and tails with",
          response=keys.BrowserTokenAnswer, status=201),
    Route("POST", "/admin/keys", keys.create, "createKey",
          "Make an API key; its secret is in this answer only", keys.CreateKeyBody,
          keys.NewKeyAnswer, 201),
    Route("GET", "/admin/keys", keys.list_all, "listKeys", "List API keys",
          response=keys.KeysAnswer),
    Route("GET", _KEY, keys.describe, "describeKey", "Describe an API key",
          response=keys.KeyAnswer),
    Route("POST", _KEY + "/rotate", keys.rotate, "rotateKey",
          "Give an API key another secret; the one before goes on for a while",
          keys.RotateKeyBody, keys.NewKeyAnswer),
    Route("DELETE", _KEY, keys.revoke, "revokeKey", "End an API key for good",
          response=keys.KeyAnswer),
    Route("GET", "/health", health.health, "health", "The process answers",
          response=health.HealthAnswer),
    Route("GET", "/healthz", health.live, "healthz", "Liveness", response=health.LiveAnswer),
    Route("GET", "/livez", health.live, "livez", "Liveness", response=health.LiveAnswer),
    Route("GET", "/readyz", health.ready, "readyz", "Readiness", response=health.ReadyAnswer,
          query=(Query("verbose", "boolean", "name every check"),)),
    Route("GET", "/version", health.version, "version", "What is running",
          response=health.VersionAnswer),
    Route("GET", "/stats", health.stats, "stats", "Figures of this node",
          response=health.StatsAnswer),
    Route("GET", "/metrics", health.metrics, "metrics", "Prometheus metrics"),
    Route("GET", "/openapi.json", openapi.serve, "openapi", "This interface, as OpenAPI 3.1",
          response=dict[str, Any]),
)  # fmt: skip

ROUTER = Router(ROUTES)
"""Built once a process: each front of it matches from the same tree."""
