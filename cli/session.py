"""One run's connection to a cluster: the first server that answers, and how to print."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote

import aiohttp

from cli.context import Context, resolve
from cli.errors import EXIT_USAGE, CliError
from cli.output import Format, Output
from goqueue.wire.errors import Unavailable, from_body

Json = dict[str, Any]
TIMEOUT_S_DEFAULT = 30.0


@dataclass(slots=True)
class GlobalOptions:
    """The global options as given: in front of the noun, then behind the verb."""

    server: str | None = None
    context: str | None = None
    output: Format | None = None
    timeout: float | None = None

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
        )


class Session:
    """Asks the cluster; `async with session:` opens and closes the connections."""

    def __init__(self, given: GlobalOptions) -> None:
        self.given = given
        self.output = Output(given.output)
        self.servers: list[str] = []
        self.timeout_s = TIMEOUT_S_DEFAULT
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Session:
        target = self.given.target()
        self.servers = [_url(text) for text in target.server.split(",") if text.strip()]
        self.timeout_s = target.timeout_s or TIMEOUT_S_DEFAULT
        headers = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else {}
        self._http = aiohttp.ClientSession(headers=headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._http is not None:
            await self._http.close()

    def can_ask(self) -> bool:
        """Whether a person is there to answer a question."""
        return sys.stdin.isatty()

    async def get(self, path: str, wait_s: float = 0, **query: object) -> Json:
        return await self.request("GET", path, query=query, wait_s=wait_s)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        wait_s: float = 0,
    ) -> Json:
        """The decoded answer; raises the server's error, or `Unavailable` when none answers."""
        assert self._http is not None, "use `async with session`"
        params = {key: str(value) for key, value in (query or {}).items() if value is not None}
        timeout = aiohttp.ClientTimeout(total=self.timeout_s + wait_s)
        refused: list[str] = []
        for server in self.servers:
            try:
                async with self._http.request(
                    method, server + path, params=params, json=body, timeout=timeout
                ) as response:
                    answer = await response.json(content_type=None)
            except aiohttp.ClientConnectorError as error:
                refused.append(f"{server} ({error.os_error.strerror or error.os_error})")
                continue
            if response.status >= 400:
                raise from_body(answer)
            return dict(answer)
        raise Unavailable("can't connect to " + " or ".join(refused))


def path(*parts: object) -> str:
    """`/topics/a%20b`: each part quoted."""
    return "".join("/" + quote(str(part), safe="") for part in parts)


def _url(text: str) -> str:
    url = text.strip().rstrip("/")
    if "://" not in url:
        url = f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{text!r} is not a server's URL", exit_code=EXIT_USAGE)
    return url


def _seconds(text: str) -> float:
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise CliError(
            f"GOQUEUE_TIMEOUT is in seconds, not {text!r}", exit_code=EXIT_USAGE
        ) from None
