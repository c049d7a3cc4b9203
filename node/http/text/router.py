"""Finds the route of a request: a tree of path segments, built once from the table.

Segments are split before they are decoded, so an encoded slash is part of a name and never of the
path; `..` has no meaning here and ends as a bad name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

from goqueue.wire.errors import BadRequest, MethodNotAllowed, NotFound

PREFIXES = ("", "/v1", "/api/v1")
"""The last one is for the load tools of GoQueue's; it is in no document."""
PATH_BYTES_MAX = 4096


class Placed(Protocol):
    """What has a place in a table of routes."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Placed)


class _Node(Generic[R]):
    __slots__ = ("children", "names", "parameter", "routes")

    def __init__(self) -> None:
        self.children: dict[str, _Node[R]] = {}
        self.parameter: _Node[R] | None = None
        self.routes: dict[str, R] = {}
        self.names: list[str] = []


class Router(Generic[R]):
    """Matches methods and raw paths against a table of routes, each mounted at every prefix."""

    def __init__(self, routes: Iterable[R], prefixes: Iterable[str] = PREFIXES) -> None:
        self._root: _Node[R] = _Node()
        mounts = tuple(prefixes)
        for route in routes:
            for path in (prefix + route.path for prefix in mounts):
                node, names = self._place(path)
                assert not node.routes or node.names == names, f"two names in one place of {path}"
                node.routes[route.method] = route
                node.names = names

    def match(self, method: str, raw_path: str) -> tuple[R, dict[str, str]]:
        """The route and its path's parameters, decoded.

        HEAD takes GET's route. Raises NotFound, MethodNotAllowed (with what is allowed), and
        BadRequest for paths that are not UTF-8 or too long.
        """
        found, params = self.find(raw_path)
        route = found.get("GET" if method == "HEAD" else method)
        if route is None:
            allow = sorted({*found, "OPTIONS", *(["HEAD"] if "GET" in found else [])})
            raise MethodNotAllowed(f"{method[:20]} is not allowed here", allow=allow)
        return route, params

    def find(self, raw_path: str) -> tuple[dict[str, R], dict[str, str]]:
        """The routes of a path by method, as `match`."""
        path = path_of(raw_path)
        if len(path) > PATH_BYTES_MAX:
            raise BadRequest("the path is too long")
        if path[:1] != "/":
            raise NotFound(f"no such route: {path[:200]}")
        node = self._root
        values: list[str] = []
        for segment in path[1:].removesuffix("/").split("/"):
            following = node.children.get(segment)
            if following is None:
                if node.parameter is None or not segment:
                    raise NotFound(f"no such route: {path[:200]}")
                following = node.parameter
                values.append(_decode(segment) if "%" in segment else segment)
            node = following
        if not node.routes:
            raise NotFound(f"no such route: {path[:200]}")
        return node.routes, dict(zip(node.names, values, strict=True))

    def _place(self, path: str) -> tuple[_Node[R], list[str]]:
        node = self._root
        names: list[str] = []
        for segment in path[1:].split("/"):
            if segment[:1] == "{":
                names.append(segment[1:-1])
                if node.parameter is None:
                    node.parameter = _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        return node, names


def _decode(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None


def path_of(target: str) -> str:
    """The path of a request's target, also of `http://host/path`, which proxies may send."""
    path = target.partition("?")[0].partition("#")[0]
    if path[:1] == "/":
        return path
    _, separator, rest = path.partition("://")
    return "/" + rest.partition("/")[2] if separator else path
