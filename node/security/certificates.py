"""Certificates that follow their files: what was rotated on disk serves the next connection.

A tool such as cert-manager writes new files and swaps a link. Whatever it does, connections are
made with the newest certificate, key and authorities that were usable together.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from node.metrics import Metrics
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.security.certificate_dates import expiry_s
from raft.link import PeerTls, no_password

CHECK_S = 10.0
"""How often the files are looked at. The kubelet takes up to a minute to bring them."""
FILE_BYTES_MAX = 1 << 20
DAY_S = 86_400

_log = get_logger("tls")

Build = Callable[[], ssl.SSLContext]


class FollowingContext(ssl.SSLContext):
    """A context for listeners and dialers that makes each connection by the newest one."""

    newest: ssl.SSLContext

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return self.newest.wrap_socket(*args, **options)


class Certificates:
    """One door's certificate, key and authorities, in files. A `Service`, started before its door.

    `builds` make a context from the files, each for connections of its kind; what `contexts` holds
    in the same order follows them. `start` raises OSError or ssl.SSLError where they are not
    usable.
    """

    def __init__(
        self,
        door: str,
        files: Sequence[str],
        builds: Sequence[Build],
        metrics: Metrics,
        *,
        check_s: float = CHECK_S,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._door = door
        self._files = [Path(name) for name in files if name]
        self._builds = tuple(builds)
        self._metrics = metrics.doors
        self._wall_s = wall_s
        self.contexts = tuple(FollowingContext(ssl.PROTOCOL_TLS_SERVER) for _ in builds)
        self._used = self._refused = b""
        self._expires_s = 0.0
        self._checks = Periodic(
            f"certificates-{door}", self.check, check_s, _log, "certificates_not_checked"
        )
        metrics.before_render(self._tell)

    async def start(self) -> None:
        try:
            self._take(await asyncio.to_thread(self._load))
        except ValueError as error:
            raise ssl.SSLError(f"{self._files[0]}: {error}") from error
        await self._checks.start()

    async def stop(self) -> None:
        await self._checks.stop()

    async def check(self) -> None:
        """Take what is in the files now, if it is new and usable; say once where it is not."""
        try:
            found = await asyncio.to_thread(self._digest)
            if found == self._used:
                self._refused = b""
                return
            self._take(await asyncio.to_thread(self._load))
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            await self._refuse(error)
            return
        self._metrics.certificate_reloads.labels(self._door, "taken").inc()
        days = round((self._expires_s - self._wall_s()) / DAY_S, 1)
        _log.info("certificate_taken", door=self._door, days_left=days)

    async def _refuse(self, error: Exception) -> None:
        with contextlib.suppress(OSError, ValueError):
            found = await asyncio.to_thread(self._digest)
            if found == self._refused:
                return
            self._refused = found
        self._metrics.certificate_reloads.labels(self._door, "refused").inc()
        _log.warning(
            "certificate_not_usable",
            door=self._door,
            files=[str(path) for path in self._files],
            problem=str(error),
            effect="connections go on with the one before",
        )

    def _load(self) -> tuple[bytes, list[ssl.SSLContext], float]:
        """All contexts from one state of the files. Raises OSError, ssl.SSLError or ValueError."""
        before = self._digest()
        made = [build() for build in self._builds]
        expires_s = expiry_s(self._files[0].read_text())
        if self._digest() != before:
            raise ValueError("the files changed while they were read")
        return before, made, expires_s

    def _take(self, loaded: tuple[bytes, list[ssl.SSLContext], float]) -> None:
        self._used, made, self._expires_s = loaded
        self._refused = b""
        for context, newest in zip(self.contexts, made, strict=True):
            context.newest = newest

    def _digest(self) -> bytes:
        """What tells one state of the files from another. Raises OSError or ValueError."""
        digest = hashlib.blake2b()
        for path in self._files:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise ValueError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
            digest.update(len(content).to_bytes(8, "little") + content)
        return digest.digest()

    def _tell(self) -> None:
        if self._expires_s:
            days = (self._expires_s - self._wall_s()) / DAY_S
            self._metrics.certificate_days_left.labels(self._door).set(days)


class PeerCertificates(Certificates):
    """Those of the peer link, for both directions."""

    def __init__(self, files: PeerTls, metrics: Metrics) -> None:
        paths = (files.cert_file, files.key_file, files.ca_file)
        super().__init__("peer", paths, (files.server_context, files.client_context), metrics)

    def server_context(self) -> ssl.SSLContext:
        return self.contexts[0]

    def client_context(self) -> ssl.SSLContext:
        return self.contexts[1]


def server_context(cert_file: str, key_file: str, ca_file: str = "") -> ssl.SSLContext:
    """For the client port. With authorities a client's certificate is checked where it shows one;
    the front refuses who shows none (probes can't). Raises OSError or ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert_file, key_file, no_password)
    if ca_file:
        context.load_verify_locations(ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def h2_context(cert_file: str, key_file: str, ca_file: str = "") -> ssl.SSLContext:
    """As `server_context`, for the port of HTTP/2, which clients ask for by ALPN."""
    context = server_context(cert_file, key_file, ca_file)
    context.set_alpn_protocols(["h2"])
    return context
