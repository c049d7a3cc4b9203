"""Mutual TLS for the peer link: contexts from files, and the node a certificate stands for."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

NODE_URI_PREFIX = "goqueue://node/"


class PeerContexts(Protocol):
    """Both directions' contexts, asked for once; each connection is wrapped by them."""

    def server_context(self) -> ssl.SSLContext: ...

    def client_context(self) -> ssl.SSLContext: ...


@dataclass(frozen=True, slots=True)
class PeerTls:
    """Files in PEM form. Both sides present `cert_file`, signed by the authority in `ca_file`."""

    cert_file: str
    key_file: str
    ca_file: str

    def server_context(self) -> ssl.SSLContext:
        """For accepted connections. Raises OSError or ssl.SSLError when a file is not usable."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def client_context(self) -> ssl.SSLContext:
        """For dialed connections; the name checked is the node id, not the host's."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.cert_file, self.key_file, no_password)
        context.load_verify_locations(self.ca_file)
        return context


def no_password() -> str:
    """For a key that is encrypted: OpenSSL would ask the terminal. Raises ValueError."""
    raise ValueError("the key file is encrypted: keys are read without a password")


def certificate_nodes(certificate: object) -> frozenset[str]:
    """The node ids that a verified certificate (`getpeercert()`) may speak for; none without one.

    A URI `goqueue://node/<id>`, or a DNS name: its whole and its first label, which is a pod's
    name in a StatefulSet. The common name counts only when there is no alternative name at all.
    """
    if not isinstance(certificate, dict) or not certificate:
        return frozenset()
    alternatives: Iterable[tuple[str, str]] = certificate.get("subjectAltName", ())
    nodes: set[str] = set()
    for kind, value in alternatives:
        if kind == "URI" and value.startswith(NODE_URI_PREFIX):
            nodes.add(value.removeprefix(NODE_URI_PREFIX))
        elif kind == "DNS" and "*" not in value:
            nodes.update((value, value.partition(".")[0]))
    if not alternatives:
        for names in certificate.get("subject", ()):
            nodes.update(value for field, value in names if field == "commonName")
    return frozenset(nodes)
