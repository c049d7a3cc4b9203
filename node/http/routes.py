"""Every route, once: what it answers to, who handles it, and what goes in and comes out.

Each is mounted at `/` and at `/v1`. The router matches from this table, the OpenAPI document is
generated from it, and metrics are labelled with its templates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from node.http import (
    batches,
    cluster,
    goqueue_settle,
    groups,
    health,
    messages,
    openapi,
    positions,
    producers,
    publish,
    read,
    receive,
    render,
    settle,
    topics,
)
from node.http.call import Call
from node.http.results import PublishAnswer

Handler = Callable[[Call], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Query:
    """A query field: its name, JSON type and meaning."""

    name: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `request` and `response` are msgspec types, None where there is no JSON."""

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


_LIMIT = Query("limit", "integer", "messages in one answer; at most 1000, more in batches")
_FROM = Query("from_time", "string", "first log time, RFC 3339 or epoch milliseconds")
_TO = Query("to_time", "string", "log time to stop before, RFC 3339 or epoch milliseconds")
_READ = (
    Query("offset", "string", "first offset, or earliest (the default), or latest"),
    _LIMIT,
    Query("max_bytes", "integer", "bytes of stored batches in one answer"),
    Query("wait", "string", "how long to wait for a message: 5s, 500ms, or milliseconds"),
    Query("timeout", "string", "the same as wait"),
    _FROM,
    _TO,
)
_TOPIC = "/topics/{topic}"
_MESSAGES = "/topics/{topic}/messages"
_PARTITION_MESSAGES = "/topics/{topic}/partitions/{partition}/messages"
_PARTITION = Query("partition", "integer", "where record batches go")
_GROUP = "/groups/{group}"
_OF_TOPIC = Query("topic", "string", "of this topic only")

ROUTES: tuple[Route, ...] = (
    Route("POST", "/topics", topics.create, "createTopic", "Create a topic",
          topics.CreateTopic, topics.TopicCreated, 201),
    Route("GET", "/topics", topics.list_names, "listTopics", "Name all topics",
          response=topics.TopicNames),
    Route("GET", _TOPIC, topics.describe, "describeTopic", "Describe a topic",
          response=topics.TopicAnswer),
    Route("PATCH", _TOPIC, topics.alter, "alterTopic", "Change a topic's settings",
          topics.TopicSettings, topics.TopicAnswer),
    Route("PUT", _TOPIC, topics.alter, "replaceTopic", "Change a topic's settings",
          topics.TopicSettings, topics.TopicAnswer),
    Route("DELETE", _TOPIC, topics.delete, "deleteTopic", "Delete a topic and its messages",
          response=topics.TopicDeleted),
    Route("POST", _TOPIC + "/flush", topics.flush, "flushTopic",
          "Sync what was acked under relaxed durability", response=topics.TopicFlushed),
    Route("GET", _TOPIC + "/partitions", topics.partitions, "listPartitions",
          "Leaders and replicas", response=topics.PartitionsAnswer),
    Route("POST", _MESSAGES, publish.publish, "publish", "Publish messages",
          messages.PublishBody, PublishAnswer, query=(_PARTITION,), batch_in=True),
    Route("POST", _MESSAGES + "/batch", publish.publish, "publishBatch", "Publish messages",
          messages.PublishBody, PublishAnswer, query=(_PARTITION,), batch_in=True),
    Route("POST", _TOPIC + "/publish", publish.publish_base64, "publishBase64",
          "Publish messages whose values are base64", messages.PublishBody, PublishAnswer),
    Route("POST", _PARTITION_MESSAGES, batches.publish_to_partition, "publishRecordBatches",
          "Publish record batches", response=PublishAnswer, batch_in=True),
    Route("GET", _PARTITION_MESSAGES, read.read, "readPartition",
          "Read by offset or by time", response=read.MessagesAnswer, query=_READ,
          batch_out=True),
    Route("GET", _MESSAGES, read.read_topic, "readTopic",
          "Read all partitions, merged by log time", response=read.TopicMessagesAnswer,
          query=(_LIMIT, _FROM, _TO,
                 Query("offsets", "string", "where to go on: 0:12,1:7, from next_offsets"))),
    Route("GET", "/messages/{id}", read.message, "getMessage",
          "One message by topic:partition:offset", response=render.MessageView),
    Route("GET", "/messages/{id}/timeline", read.timeline, "getTimeline",
          "What happened to a message", response=read.TimelineAnswer),
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
          response=groups.GroupsAnswer),
    Route("GET", _GROUP, groups.describe, "describeGroup", "Describe a group",
          response=groups.GroupAnswer, query=(_OF_TOPIC,)),
    Route("PUT", _GROUP, groups.put, "putGroup", "Create a group, or change its settings",
          groups.GroupSettings, groups.GroupAnswer),
    Route("PATCH", _GROUP, groups.change, "changeGroup", "Change a group's settings",
          groups.GroupSettings, groups.GroupAnswer),
    Route("DELETE", _GROUP, groups.delete, "deleteGroup", "Delete a group",
          response=groups.GroupDeleted),
    Route("POST", _GROUP + "/receive", receive.receive, "receive", "Lease messages",
          receive.ReceiveBody, receive.ReceivedAnswer),
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
