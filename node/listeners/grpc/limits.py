"""Bounds of the gRPC listener that HTTP has no counterpart for, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """Reasons stand beside the figures. All else is as `HttpLimits` has it."""

    message_bytes_max: int = 4 * MIB
    """Of one message from a client, as GoQueue has it: grpcio refuses what says that it is larger,
    before it comes. So much is charged for a publish stream, as nobody but grpcio sees how much of
    a message has come."""
    document_bytes_max: int = 1 * MIB
    """Of a message that is no publish: made of empty parts, it takes 30 times as much in memory."""
    batch_bytes_max: int = 3 * MIB
    """Of messages in one answer: clients take 4 MiB unless they are told otherwise. One is always
    sent, however large."""
    batch_bytes_default: int = 1 * MIB
    batch_messages_max: int = 1_000
    batch_messages_default: int = 100
    headers_max: int = 1_000
    """Of one message."""
    items_max: int = 10_000
    """Receipts, offsets or partitions in one request."""
    topics_max: int = 100
    """Of one subscription."""
    unanswered_max: int = 1_000
    unanswered_bytes_max: int = 4 * MIB
    """Messages of a publish stream that are not answered: then no more are read."""
    append_messages_max: int = 1_000
    append_bytes_max: int = 1 * MIB
    """Of a publish stream's messages that are stored in one batch."""
    calls_max: int = 8_192
    """At once, on all connections."""
    streams_per_connection_max: int = 100
    metadata_bytes_max: int = 16 * KIB
    connection_idle_s: float = 300.0
    """A connection without calls is closed after this: clients open another one unasked."""
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 10.0
    """A silent connection is pinged after the one, and is lost when it is silent for the other."""
    ping_interval_s_min: float = 10.0
    """Clients that ping more often, without anything to say, are cut off."""
    handshake_s: float = 10.0
    """From accept to the end of HTTP/2's (and TLS') handshake."""
    open_call_bytes: int = 64 * KIB
    """What a call holds while it lasts: the window that HTTP/2 gives it before it is read from."""
    slow_s: float = 0.25
    """A request that takes longer to arrive is charged as the largest one."""
    heartbeat_s: float = 10.0
    """How long a stream says nothing, where the client does not say."""
    heartbeat_s_min: float = 0.1
    heartbeat_s_max: float = 60.0
    given_max: int = 2_000
    """Receipts that a subscription remembers: the newest ones, of what it may not have settled."""
    given_bytes: int = 256
    """What one of them takes."""
    wait_s: float = 30.0
    """Of one wait for messages inside a stream, which then begins the next one."""
