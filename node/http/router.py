"""Finds the route of a request: a tree of path segments, built once from the table.

Segments are split before they are decoded, so an encoded slash is part of a name and never of the
path; `..` has no meaning here and ends as a bad name.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from goqueue.wire.errors import BadRequest, MethodNotAllowed, NotFound
from node.http.routes import Route

PREFIX = "v1"
PATH_BYTES_MAX = 4096


class _Node:
    __slots__ = ("children", "names", "parameter", "routes")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}
        self.names: list[str] = []


class Router:
    """Matches methods and raw paths against a table of routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            for path in (route.path, f"/{PREFIX}{route.path}"):
                node, names = self._place(path)
                assert not node.routes or node.names == names, f"two names in one place of {path}"
                node.routes[route.method] = route
                node.names = names

    def match(self, method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
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

    def find(self, raw_path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of a path by method, as `match`."""
        path = raw_path.partition("?")[0].partition("#")[0]
        if len(path) > PATH_BYTES_MAX:
            raise BadRequest("the path is too long")
        if path[:1] != "/":
            path = _of_absolute(path)
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

    def _place(self, path: str) -> tuple[_Node, list[str]]:
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


def _of_absolute(target: str) -> str:
    """The path of `http://host/path`, which proxies may send."""
    _, separator, rest = target.partition("://")
    if not separator:
        raise NotFound(f"no such route: {target[:200]}")
    return "/" + rest.partition("/")[2]
