"""Where a request comes from, and whether under TLS: as its connection says, or a trusted proxy."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from aiohttp import web

from node.api.auth.hosts import address_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FORWARDED_MAX = 32
"""Addresses that a header may hold; the first of a longer one are not looked at."""


class Addresses:
    """`trusted`: the networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count; every
    other's are ignored."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._trusted: list[Network] = [ipaddress.ip_network(text) for text in trusted]

    def of(self, request: web.BaseRequest) -> str:
        """The last address on the way here that is no trusted proxy's."""
        address = request.remote or ""
        if not self._trusted or not self._is_trusted(address):
            return address
        said = ",".join(request.headers.getall("X-Forwarded-For", []))
        for text in reversed(said.split(",")[-FORWARDED_MAX:]):
            found = address_of(text.strip())
            if found is None:
                return address
            address = str(found)
            if not self._is_trusted(address):
                return address
        return address

    def is_https(self, request: web.BaseRequest) -> bool:
        """Whether the one who asks spoke TLS: with this node, or with a trusted proxy."""
        if request.scheme == "https":
            return True
        if not self._trusted or not self._is_trusted(request.remote or ""):
            return False
        said = request.headers.getall("X-Forwarded-Proto", [""])[-1]
        return said.rpartition(",")[2].strip().lower() == "https"

    def _is_trusted(self, text: str) -> bool:
        address = address_of(text)
        return address is not None and any(address in network for network in self._trusted)
