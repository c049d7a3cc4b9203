"""One run's connection to a cluster: the first server that answers, and how to print."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Format, Output
from cli.output.terminal import note
from cli.run import known_servers
from cli.run.context import TLS_FILES, Context, resolve
from goqueue.errors import BadRequest, ConnectionFailed

if TYPE_CHECKING:
    from goqueue import AsyncClient
    from goqueue.models.options import Compression

Json = dict[str, Any]
TIMEOUT_S_DEFAULT = 30.0
REPEATS = 2
JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(slots=True)
class GlobalOptions:
    """The global options as given: in front of the noun, then behind the verb."""

    server: str | None = None
    context: str | None = None
    output: Format | None = None
    timeout: float | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    api_key: str | None = None

    def target(self) -> Context:
        """The cluster meant: flags win over the environment, which wins over the config file.

        Raises `CliError` for an unusable file or an unknown context.
        """
        timeout_s = self.timeout
        if timeout_s is None and (text := os.environ.get("GOQUEUE_TIMEOUT")):
            timeout_s = _seconds(text)
        return resolve(
            self.server or os.environ.get("GOQUEUE_SERVER") or None,
            self.context or os.environ.get("GOQUEUE_CONTEXT") or None,
            timeout_s,
            {
                name: getattr(self, name) or os.environ.get(f"GOQUEUE_{name.upper()}")
                for name in TLS_FILES
            },
            self.api_key,
        )


class Session:
    """Asks the cluster; `async with session:` opens and closes the connections."""

    def __init__(self, given: GlobalOptions) -> None:
        self.given = given
        self.output = Output(given.output)
        self.timeout_s = TIMEOUT_S_DEFAULT
        self.archive = ""
        """Where the cluster's archive is, as environment or context have it."""
        self.compression: Compression = "none"
        """Of what is published; set before it opens."""
        self._client: AsyncClient | None = None
        self._named: list[str] = []
        """The servers of a context, or the default ones: whoever names servers means those."""

    async def __aenter__(self) -> Session:
        from goqueue import AsyncClient, RetryPolicy  # a command that asks nobody does without HTTP
        from goqueue.transport.http import parse_servers

        target = self.given.target()
        self.timeout_s = target.timeout_s or TIMEOUT_S_DEFAULT
        self.archive = target.archive
        try:
            servers = named = parse_servers(target.server)
            if not target.is_named:
                self._named = named
                servers = [*named, *known_servers.beside(named)]
            self._client = AsyncClient(
                servers,
                api_key=target.api_key or None,
                timeout_s=self.timeout_s,
                attempt_timeout_s=self.timeout_s,
                retry=RetryPolicy(attempts_max=REPEATS + len(servers)),
                ca_file=target.ca_file or None,
                cert_file=target.cert_file or None,
                key_file=target.key_file or None,
                compression=self.compression,
            )
        except BadRequest as error:
            raise CliError(error.message, exit_code=EXIT_USAGE) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is None:
            return
        transport = self._client.transport
        if self._named and error is None and transport.has_answered:
            if transport.server not in self._named:
                note(f"{' and '.join(self._named)} did not answer: {transport.server} did")
            await known_servers.learn(self._client, self._named)
        await self._client.close()

    def can_ask(self) -> bool:
        """Whether a person is there to answer a question."""
        return sys.stdin.isatty()

    async def get(self, path: str, wait_s: float = 0, **query: object) -> Json:
        return await self.request("GET", path, query=query, wait_s=wait_s)

    async def get_confirmed(self, path: str, what: str, **query: object) -> Json:
        """As `get`, asked again until the answer is not stale. Raises `Unavailable` where that
        takes longer than a request may."""
        from goqueue.transport.patience import confirmed

        async def ask() -> tuple[Json, bool]:
            found = await self.request("GET", path, query=query)
            return found, bool(found.get("stale"))

        return await confirmed(self.client.transport, what, ask)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        wait_s: float = 0,
    ) -> Json:
        """The decoded answer; raises the server's error, or `ConnectionFailed` when none answers.

        A GET is repeated when it may succeed; another method only where nothing can have happened.
        """
        transport = self.client.transport
        params = {key: str(value) for key, value in (query or {}).items() if value is not None}
        try:
            answer = await transport.request(
                method,
                path,
                params=params,
                body=None if body is None else _encoded(body),
                headers=JSON_HEADERS,
                repeatable=method == "GET",
                wait_s=wait_s,
            )
        except ConnectionFailed as error:
            if not error.retriable:  # it was reached, and is not who it should be
                raise
            raise unreachable(transport.servers, error) from error
        decoded: Json = msgspec.json.decode(answer.body)
        return decoded

    @property
    def client(self) -> AsyncClient:
        """The library's client; its errors reach the user as they are."""
        if self._client is None:
            raise RuntimeError("use `async with session`")
        return self._client


def unreachable(servers: Sequence[str], error: ConnectionFailed) -> ConnectionFailed:
    """Names all that were tried, and what came of the last one."""
    text = f"can't connect to {' or '.join(servers)}"
    if reason := error.data.get("reason"):
        last = f"{error.data['server']}: " if len(servers) > 1 else ""
        text += f": {last}{reason}"
    told = ConnectionFailed(text, outcome=error.outcome)
    told.data = error.data
    return told


def _encoded(body: object) -> bytes:
    """Raises `CliError` for what was typed and is no text: bytes of another encoding."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        text = ascii(error.object)[:80]
        raise CliError(f"{text} is not UTF-8", exit_code=EXIT_USAGE) from None


def _seconds(text: str) -> float:
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise CliError(
            f"GOQUEUE_TIMEOUT is in seconds, not {text!r}", exit_code=EXIT_USAGE
        ) from None
