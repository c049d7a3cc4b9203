"""The options of a client: their names and types, and what holds where one is not given."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from goqueue.models.options import Compression
from goqueue.transport.channel import Channel
from goqueue.transport.http import RetryPolicy, Transport, parse_servers
from goqueue.transport.tls import StrPath, tls_context
from goqueue.wire.errors import BadRequest

FOR_SERVERS = ("api_key", "tls", "ca_file", "cert_file", "key_file")


class ClientOptions(TypedDict, total=False):
    """What `AsyncClient` and `Client` take besides the servers.

    `timeout_s` bounds a call with its repeats, `attempt_timeout_s` each attempt, which `retry`
    counts. `api_key` is `id.secret`, else what GOQUEUE_API_KEY holds; it goes to the servers only.
    For https: `ca_file` holds the only authorities to trust, `cert_file` and `key_file` what this
    client shows, all in PEM form; else the files that GOQUEUE_CA_FILE, GOQUEUE_CERT_FILE and
    GOQUEUE_KEY_FILE name; or all of it is in `tls`. `compression` is for what is published;
    reading takes any.
    """

    api_key: str | None
    timeout_s: float
    attempt_timeout_s: float
    retry: RetryPolicy | None
    tls: ssl.SSLContext | None
    ca_file: StrPath | None
    cert_file: StrPath | None
    key_file: StrPath | None
    compression: Compression
    compression_level: int


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The options as one client has them."""

    api_key: str | None = None
    timeout_s: float = 30.0
    attempt_timeout_s: float = 10.0
    retry: RetryPolicy | None = None
    tls: ssl.SSLContext | None = None
    ca_file: StrPath | None = None
    cert_file: StrPath | None = None
    key_file: StrPath | None = None
    compression: Compression = "none"
    compression_level: int = 1

    def transport(self, servers: str | Sequence[str] | Channel) -> Transport:
        """To these servers. Opens nothing. Raises BadRequest on what is no URL or key, and on
        files that hold no certificate."""
        tls = self.tls
        if not isinstance(servers, str | Sequence):
            self._check_unused()
        elif tls is None and any(url.startswith("https:") for url in parse_servers(servers)):
            tls = tls_context(self.ca_file, self.cert_file, self.key_file)
        return Transport(
            servers,
            api_key=self.api_key,
            timeout_s=self.timeout_s,
            attempt_timeout_s=self.attempt_timeout_s,
            retry=self.retry,
            tls=tls,
        )

    def _check_unused(self) -> None:
        """Raises BadRequest where something is said of servers, and there is none."""
        for name in FOR_SERVERS:
            if getattr(self, name) is not None:
                raise BadRequest(f"{name} is for servers: a directory is opened without it")
