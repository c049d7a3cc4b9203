"""How a cluster is reached: plain data that travels from the driver to executors."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REQUEST_TIMEOUT_S = 60.0
"""Of a request with all its repeats: longer than any failover takes."""


@dataclass(frozen=True, slots=True)
class Access:
    """Servers as base URLs, an API key, and the authorities to trust; picklable, and shows no key.

    `ca_pem` holds certificates in PEM form, None for the system's own authorities.
    """

    servers: tuple[str, ...]
    api_key: str | None = field(default=None, repr=False)
    ca_pem: str | None = field(default=None, repr=False)
    request_timeout_s: float = REQUEST_TIMEOUT_S

    def tls(self) -> ssl.SSLContext | None:
        """A context that trusts just these authorities; None where the system's count."""
        return None if self.ca_pem is None else ssl.create_default_context(cadata=self.ca_pem)

    def takes(self, url: str) -> bool:
        """Whether a node's advertised address may be asked: an API key that was given for https
        is never sent in plain text."""
        plain = urlsplit(url).scheme == "http"
        return not plain or not any(server.startswith("https:") for server in self.servers)
