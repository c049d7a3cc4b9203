"""Why a server could not be reached, told from what the connection ended with."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp

from goqueue.wire.errors import ConnectionFailed, GoQueueError, OutcomeUnknown, Timeout

PROBE_S = 2.0
"""So long a server has to begin TLS, where plain HTTP got no answer."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL calls an answer that is no TLS, over its versions."""


def connection_error(server: str, error: Exception) -> GoQueueError:
    """The error for what aiohttp raised; `outcome` none where nothing can have been sent."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or str(error)
        text = f"the certificate of {server} is not trusted: {why}"
        return ConnectionFailed(text, server=server, retriable=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _not_connected(server, error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ConnectionFailed(
            f"can't connect to {server}: no answer in time", server=server, reason="no answer"
        )
    if isinstance(error, aiohttp.InvalidURL):
        return ConnectionFailed(f"not a URL: {server}", server=server, retriable=False)
    if isinstance(error, TimeoutError):
        return Timeout(f"no answer from {server} in time", server=server)
    reason = str(error) or type(error).__name__
    return OutcomeUnknown(f"{server} broke off: {reason}", server=server)


async def is_tls(server: str) -> bool:
    """Whether a server that is asked in plain HTTP speaks TLS. Nothing is sent but the beginning of
    TLS, and nobody is trusted for it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = urlsplit(server)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(url.hostname, url.port or 80, ssl=context)
            writer.close()
            return True
    return False


def speaks_tls(server: str) -> ConnectionFailed:
    """Plain HTTP was spoken to it, which it can't have understood: nothing has happened."""
    address = f"https://{server.removeprefix('http://')}"
    text = f"can't connect to {server}: the server speaks TLS; its address is {address}"
    return ConnectionFailed(text, server=server, reason=text.partition(": ")[2], tls=True)


def _not_connected(server: str, error: OSError) -> ConnectionFailed:
    if isinstance(error, ssl.SSLError):
        if any(name in (error.reason or "", *str(error).split()) for name in _NO_TLS):
            address = f"http://{server.removeprefix('https://')}"
            reason = f"the server does not speak TLS; its address may be {address}"
            text = f"can't connect to {server}: {reason}"
            return ConnectionFailed(text, server=server, reason=reason, tls=False)
        reason = (error.reason or str(error)).lower().replace("_", " ")
        reason = f"TLS failed: {reason}"
    else:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    return ConnectionFailed(f"can't connect to {server}: {reason}", server=server, reason=reason)
