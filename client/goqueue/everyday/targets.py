"""What `goqueue.open` is to open: servers, a directory, or what the environment says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, cast

from goqueue.api.options import ClientOptions
from goqueue.local.directory import DirectoryChannel
from goqueue.local.reading import ReadingChannel
from goqueue.transport.channel import Channel
from goqueue.transport.http import DEFAULT_SERVER, parse_servers
from goqueue.wire.errors import BadRequest

Mode = Literal["rw", "r"]
"""`r`: nothing is written, and what would change something is an error."""
Target = str | os.PathLike[str] | Sequence[str] | None
SERVER = "GOQUEUE_SERVER"
CONTEXTS = ("goqueue.contexts", "current")
"""The entry point that reads the command line's current context, where that is installed."""
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+")


def read_target(target: Target, mode: Mode = "rw") -> tuple[list[str] | Channel, ClientOptions]:
    """Servers or a channel, and options that go with them if the caller names no others.

    Text with `http://` or `https://` names servers, several with commas between them, and so does a
    list; other text is a directory. Raises BadRequest on what is neither, and on a `mode` other
    than `rw` with servers; EngineMissing where a directory can't be opened.
    """
    if mode == "r":
        return _for_reading(target), {}
    if mode != "rw":
        raise BadRequest(f"mode {mode!r} is not known: want 'rw', or 'r' to read only")
    if target is None:
        return _usual()
    if isinstance(target, os.PathLike):
        return DirectoryChannel(target), {}
    if not isinstance(target, str):
        return [_server(text) for text in target], {}
    texts = [text.strip() for text in target.split(",") if text.strip()]
    if not texts:
        raise BadRequest("nothing to open is named: want a directory, or http://HOST:PORT")
    if any(_is_url(text) for text in texts):
        return [_server(text) for text in texts], {}
    if _HOST_AND_PORT.fullmatch(target) and not os.path.isdir(target):
        raise BadRequest(f"is {target} a server? Its URL is http://{target}, a folder's ./{target}")
    return DirectoryChannel(Path(target).expanduser()), {}


def _for_reading(target: Target) -> Channel:
    """As `read_target`, of a directory. Raises BadRequest where it is none."""
    servers, _ = read_target(target)
    if isinstance(servers, DirectoryChannel):
        return ReadingChannel(servers.directory)
    raise BadRequest('mode="r" is for directories: of a server, a key may be for reading only')


def _usual() -> tuple[list[str] | Channel, ClientOptions]:
    """The environment's, else the command line's current context, else the default server."""
    named = os.environ.get(SERVER, "").strip()
    if named:
        return _named(named), {}
    group, name = CONTEXTS
    for found in entry_points(group=group, name=name):
        told: dict[str, Any] = found.load()()
        return _named(told.pop("servers")), cast(ClientOptions, told)
    return [DEFAULT_SERVER], {}


def _named(text: str) -> list[str] | Channel:
    """Servers as the command line takes them, also without `http://`; a path that begins as one is
    a directory."""
    if text.startswith((".", "/", "~")):
        return read_target(text)[0]
    return parse_servers(text)


def _server(text: str) -> str:
    if not _is_url(text):
        raise BadRequest(f"not a server's URL: {text!r}; want http://HOST:PORT, or https://")
    return text


def _is_url(text: str) -> bool:
    scheme, separator, _ = text.partition("://")
    if separator and scheme not in ("http", "https"):
        raise BadRequest(f"{scheme}:// is not spoken: want http:// or https://, or a directory")
    return bool(separator)
