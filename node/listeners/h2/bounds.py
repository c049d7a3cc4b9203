"""Bounds of a connection, each with its unit. What HTTP bounds too is in `HttpLimits`."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class H2Bounds:
    """What one client may do on one connection. Reasons stand beside the figures."""

    streams_max: int = 100
    """Requests under way: what RFC 9113 calls the least that a server should allow. One that was
    reset counts until its work has ended, so that resets make no room for more."""
    block_bytes_max: int = 64 * KIB
    """Headers of a request, as they are sent and once they are unpacked (HPACK makes much of
    little); the connection ends beyond it. Who keeps below it is told 431 over
    `HttpLimits.head_bytes_max`."""
    continuations_max: int = 8
    """Frames that one request's headers go on in."""
    frame_bytes_max: int = 16 * KIB
    """The least that HTTP/2 allows to be the most."""
    window_bytes: int = 64 * KIB - 1
    """What one request's body may hold that nobody has read."""
    connection_window_bytes: int = 1024 * KIB
    """As much of all requests of a connection."""
    table_bytes: int = 4 * KIB
    """Of what answers' headers are shortened by, whatever the client would keep."""
    small_bytes: int = 64
    """A piece of a body that is smaller costs about as much as a ping."""
    cheap_frames: int = 1_000
    cheap_per_s: int = 100
    """Frames that cost a client nothing and say next to nothing: pings, settings, windows,
    priorities, small pieces of bodies. So many at once, and so many a second."""
    cheap_per_answer: int = 3
    """What each frame that answers allows besides: two windows are opened again for it, and a
    message is settled by a small piece."""
    resets: int = 200
    resets_per_s: int = 20
    """Requests that are taken back, at once and a second: CVE-2023-44487 begins and takes back
    as fast as it can. Also those that this node resets for what the client has sent."""
