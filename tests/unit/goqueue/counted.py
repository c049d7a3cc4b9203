"""A client that counts its requests."""

from __future__ import annotations

from typing import Any

from goqueue import AsyncClient


class Counted:
    """A client of a real node, and the requests that it makes."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.requests: list[str] = []
        request = client.transport.request

        async def counted(method: str, path: str, **options: Any) -> Any:
            self.requests.append(f"{method} {path}")
            return await request(method, path, **options)

        client.transport.request = counted  # type: ignore[method-assign]
