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
    health,
    messages,
    openapi,
    producers,
    publish,
    read,
    render,
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
