"""Serves the console's files: style, scripts, licences."""

from __future__ import annotations

from aiohttp import web

from node.http.console.parts import Visit


async def serve(visit: Visit) -> web.Response:
    """Raises NotFound."""
    return visit.parts.assets.serve(visit.params["file"], visit.request)
