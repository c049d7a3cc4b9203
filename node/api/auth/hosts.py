"""Hosts as text: which addresses are counted as one, and which names mean this machine only."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

BUCKETS_MAX = 4096
"""Addresses whose bucket is remembered: each request of a connection asks for its own."""


@lru_cache(BUCKETS_MAX)
def bucket(address: str) -> str:
    """Who is counted as one: an IPv6 site has 2^64 addresses to come from."""
    found = address_of(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found), 64), strict=False))
    return address


def is_loopback(host: str) -> bool:
    """Whether only this machine can mean this host."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    found = address_of(host)
    return found is not None and found.is_loopback


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for what is no address."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
