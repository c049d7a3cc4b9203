"""The listener: grpcio's server, and what every call passes on its way to its service.

A call is let in before anything of its request is read: whoever may not call has nothing stored.
All handlers read and write by themselves, also where one message goes each way: on the wire there
is no difference, and so what arrives slowly can be charged, or given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, Unavailable
from node.http.budget.memory import Kind
from node.http.request.drain_watch import DrainWatch
from node.listeners.grpc.call import Desk, Rpc, address_of, token_of
from node.listeners.grpc.failures import fail
from node.listeners.grpc.library import Context, grpc
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.grpc.methods import Method, methods
from node.listeners.grpc.peers import Peers
from node.listeners.parts import ListenerParts, Tls
from node.listeners.requests import Requests

PROTOCOL = "grpc"
MS = 1000
LOOK_S = 1.0
"""How often it is looked whether the node is drained."""


class GrpcListener:
    """Serves `goqueue.v1`. Implements `node.listeners.parts.Listener`. Loop thread only; grpcio
    has threads of its own, which never hold the interpreter for longer than it takes to say that
    something has come."""

    def __init__(
        self,
        parts: ListenerParts,
        *,
        host: str = "127.0.0.1",
        port: int = 9000,
        tls: Tls | None = None,
        limits: GrpcLimits | None = None,
    ) -> None:
        self._desk = Desk(parts, Requests(PROTOCOL, parts), limits or GrpcLimits())
        self._host = host
        self._port = port
        self._tls = tls
        self._server: Any = None
        self._open: set[Rpc] = set()
        self._peers = Peers(parts.crowd, partial(parts.metrics.connected, PROTOCOL))
        self._watching = TaskSet("node", "grpc_watch_failed")

    @property
    def port(self) -> int:
        """The real one, once it listens."""
        return self._port

    async def start(self) -> None:
        """Listens when it returns; raises OSError where the address is not to be had."""
        server = grpc.aio.server(
            options=_options(self._desk),
            maximum_concurrent_rpcs=self._desk.limits.calls_max,
        )
        server.add_generic_rpc_handlers((_Handlers(self._serve),))
        host = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{host}:{self._port}"
        try:
            if self._tls is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, _credentials(self._tls))
        except RuntimeError as error:
            raise OSError(f"gRPC: {address} is not to be had: {error}") from None
        await server.start()
        self._server, self._port = server, port
        self._watching.begin(self._watch(), "grpc-stopping")

    async def stop(self) -> None:
        """Let calls in progress finish within `limits.drain_s`, then end them. Idempotent."""
        await self._watching.stop()
        self._cut_streams()
        server, self._server = self._server, None
        if server is not None:
            await server.stop(self._desk.parts.limits.drain_s)
        await self._desk.behind.stop()

    # private

    async def _watch(self) -> None:
        """Members' streams go where the node is drained, all where it stops."""
        parts = self._desk.parts
        drain = DrainWatch(parts.broker.node)
        while not parts.stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await parts.stopping.wait()
            if drain.has_begun():
                self._move_streams()
        self._cut_streams()

    def _move_streams(self) -> None:
        for rpc in list(self._open):
            if rpc.moves_on_drain and rpc.on_stop is not None:
                rpc.is_moved = True
                rpc.on_stop()

    def _cut_streams(self) -> None:
        """They end, and say that another node goes on; plain calls are still served."""
        for rpc in list(self._open):
            if rpc.on_stop is not None:
                rpc.on_stop()

    async def _serve(self, method: Method, context: Context) -> None:
        """One call, whatever happens on the way."""
        try:
            await self._observed(method, context)
        except GoQueueError as error:
            fail(context, error)
        except ConnectionError:
            return  # nobody is there to be told

    async def _observed(self, method: Method, context: Context) -> None:
        desk, peer = self._desk, context.peer()
        caller = desk.requests.caller(address_of(peer), peer)
        metadata = context.invocation_metadata() or ()
        with desk.requests.observed(caller, method.name, method.operation) as seen:
            self._peers.enter(peer, caller.address)
            try:
                caller.token = token_of(metadata)
                await desk.requests.admit(caller, method.operation)
                with desk.requests.hold(caller, Kind.BODIES, desk.limits.open_call_bytes):
                    rpc = Rpc(desk, context, caller, method.request_class, seen, metadata)
                    await self._kept(method, rpc)
            finally:
                self._peers.leave(peer)

    async def _kept(self, method: Method, rpc: Rpc) -> None:
        self._open.add(rpc)
        try:
            await self._until_stopped(method, rpc)
        finally:
            rpc.done()
            self._open.discard(rpc)

    async def _until_stopped(self, method: Method, rpc: Rpc) -> None:
        if not method.is_endless:
            await method.serve(rpc)
            return
        scope = asyncio.timeout(None)

        def cut() -> None:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

        try:
            async with scope:
                rpc.on_stop = cut
                if rpc.is_stopping:
                    cut()
                await method.serve(rpc)
        except TimeoutError:
            if not scope.expired():
                raise
            why = "stops" if rpc.is_stopping else "is drained"
            raise Unavailable(f"this node {why}: another one goes on") from None


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """What grpcio asks for the handler of a call."""

    def __init__(self, serve: Callable[[Method, Context], Awaitable[None]]) -> None:
        self._handlers = {method.path: _handler(method, serve) for method in methods()}

    def service(self, handler_call_details: Any) -> Any:
        """None for what there is not: the client is told UNIMPLEMENTED."""
        return self._handlers.get(handler_call_details.method)


def _handler(method: Method, serve: Callable[[Method, Context], Awaitable[None]]) -> Any:
    async def handle(_requests: Any, context: Context) -> None:
        await serve(method, context)

    return grpc.stream_stream_rpc_method_handler(handle)


def _options(desk: Desk) -> list[tuple[str, Any]]:
    limits, http = desk.limits, desk.parts.limits
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_bytes_max),
        ("grpc.max_send_message_length", -1),
        # else it gives every stream a window of 4 MiB, whether or not it is read from
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", limits.streams_per_connection_max),
        ("grpc.max_metadata_size", limits.metadata_bytes_max),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes_max),
        ("grpc.max_allowed_incoming_connections", http.connections_max),
        ("grpc.max_connection_idle_ms", round(limits.connection_idle_s * MS)),
        ("grpc.server_handshake_timeout_ms", round(limits.handshake_s * MS)),
        ("grpc.keepalive_time_ms", round(limits.keepalive_s * MS)),
        ("grpc.keepalive_timeout_ms", round(limits.keepalive_timeout_s * MS)),
        ("grpc.keepalive_permit_without_calls", 1),
        (
            "grpc.http2.min_recv_ping_interval_without_data_ms",
            round(limits.ping_interval_s_min * MS),
        ),
    ]


def _credentials(tls: Tls) -> Any:
    """The certificate files as they are at each handshake: what was rotated serves the next one.
    With authorities, every client shows a certificate."""
    read = _CertificateFiles(tls)
    return grpc.dynamic_ssl_server_credentials(
        read(), read, require_client_authentication=bool(tls.ca_file)
    )


class _CertificateFiles:
    """Reads them where they have changed. Called by grpcio's threads, one at a time."""

    def __init__(self, tls: Tls) -> None:
        names = (tls.key_file, tls.cert_file, tls.ca_file)
        self._files = [Path(name) for name in names if name]
        self._seen: list[tuple[int, int]] = []
        self._made: Any = None

    def __call__(self) -> Any:
        """The newest that could be read as a whole; the one before where they can't."""
        try:
            seen = [(stat.st_mtime_ns, stat.st_ino) for stat in map(Path.stat, self._files)]
            if seen != self._seen:
                key, chain, *authorities = (file.read_bytes() for file in self._files)
                self._made = grpc.ssl_server_certificate_configuration(
                    [(key, chain)], authorities[0] if authorities else None
                )
                self._seen = seen
        except OSError:
            if self._made is None:
                raise
        return self._made
