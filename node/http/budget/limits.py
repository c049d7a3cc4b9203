"""Bounds of the front, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Every bound that a client can run into. Reasons stand beside the figures."""

    body_bytes_max: int = 16 * MIB
    """A publish body, before and after decompression; beyond it 413."""
    document_bytes_max: int = MIB
    """Any other body: topic settings and the like are small."""
    messages_max: int = 100_000
    """Messages in one JSON publish: what 16 MiB of small ones come to."""
    connections_max: int = 8192
    keeps_known: bool = True
    """Idle connections whose clients have shown that they may come in make no room for others. Of
    processes on one directory they do: all are one user's."""
    connections_per_address_max: int = 4096
    """High, because an ingress is one address; an IPv6 /64 is one."""
    tls_handshake_s: float = 10.0
    """From accept to the end of the TLS handshake."""
    head_bytes_max: int = 32 * KIB
    """Line and headers of a request, all together; beyond it 431."""
    header_field_bytes_max: int = 8190
    headers_max: int = 100
    header_deadline_s: float = 8.0
    """From the first byte of a request (or the connection) to the end of its headers."""
    body_grace_s: float = 7.5
    """After this the body must have arrived at `body_bytes_per_s_min` on average."""
    body_bytes_per_s_min: int = 16 * KIB
    lingering_s: float = 1.5
    """How long an unread body is still drained, so that the client gets to read its answer."""
    write_stall_s: float = 30.0
    """A client that takes nothing of its answer for this long is dropped."""
    answer_bytes_per_s_min: int = 16 * KIB
    """A client must take its answer at this rate on average, after `write_stall_s`."""
    keepalive_s: float = 75.0
    """Longer than the 60 s that load balancers keep theirs."""
    room_wait_s: float = 5.0
    """How long a request whose body is here, or arrives, waits in line for room in memory: so long
    do a few dozen publishes of a holder before it take; then 429."""
    long_poll_s_max: float = 60.0
    tail_keepalive_s: float = 10.0
    """How long a tail says nothing: as often it looks whether its reader's key still holds, and
    whether the topic has more partitions. Proxies cut what is silent for 30 s and longer."""
    stream_silence_s: float = 10.0
    """A stream's client of which nothing is heard for so long is lost."""
    stream_frame_bytes_max: int = 256 * KIB
    """Of one frame of a stream's client: a thousand settles with their reasons."""
    append_deadline_s: float = 15.0
    """Half of the 30 s that GoQueue's clients wait."""
    read_records_default: int = 100
    read_records_max: int = 1000
    """JSON messages in one answer, as in GoQueue."""
    read_batch_records_max: int = 100_000
    events_default: int = 1000
    events_max: int = 20_000
    """Events in one answer."""
    read_bytes_max: int = 8 * MIB
    """Of stored batches in one answer; at least one batch is always sent."""
    queue_bytes_max: int = 16 * MIB
    """Of messages of the queue in one answer, as they are encoded; at least one is always sent.
    Twice what is leased at once, so that quotes and base64 need no message given back."""
    drain_s: float = 10.0
    """How long `stop()` waits for requests in progress."""
    quick_handover: bool = True
    """See `budget.handover`; not in a process that is somebody else's."""
