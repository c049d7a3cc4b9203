"""The console's files: ours and the vendored ones, read once and served with their hashes.

Pages name them with their hash, so a browser keeps them for ever and asks again after an upgrade.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from aiohttp import web

from goqueue.wire.errors import NotFound

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HASH_CHARACTERS = 12


@dataclass(frozen=True)
class Asset:
    """One file. `hash` is the beginning of its SHA-256."""

    content: bytes
    type: str
    hash: str

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, 9, mtime=0)


class Assets:
    """All files of the folder that a browser may have; nothing else is ever read."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.name: _asset(path) for path in sorted(folder.iterdir()) if path.suffix in TYPES
        }

    def url(self, name: str) -> str:
        """Where a page finds it. Raises KeyError: pages name only what is there."""
        return f"/ui/static/{name}?v={self._files[name].hash}"

    def serve(self, name: str, request: web.BaseRequest) -> web.Response:
        """Raises NotFound."""
        asset = self._files.get(name)
        if asset is None:
            raise NotFound(f"the console has no file {name[:80]!r}")
        is_named = f"v={asset.hash}" in request.raw_path.partition("?")[2].split("&")
        headers = {
            "ETag": f'"{asset.hash}"',
            "Cache-Control": "public, max-age=31536000, immutable" if is_named else "no-cache",
            "Vary": "Accept-Encoding",
        }
        if request.headers.get("If-None-Match") == f'"{asset.hash}"':
            return web.Response(status=304, headers=headers)
        body = asset.content
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = asset.packed, "gzip"
        return web.Response(body=body, headers={"Content-Type": asset.type, **headers})


@cache
def packaged() -> Assets:
    """The console's own: read once a process, however many fronts it has."""
    return Assets()


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:HASH_CHARACTERS])
