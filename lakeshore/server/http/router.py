"""Which handler answers which method and path.

Patterns: ``/v1/namespaces/{ns}/invocations/{id}``; a last ``{key...}`` takes the rest of the path, slashes included.
A literal segment wins over a parameter. Segments are split before they are decoded, and a decoded segment holds neither
a slash nor a control character, so a parameter is always one segment as it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from lakeshore.server.http.messages import HttpError, Request, Response, StreamResponse

RouteHandler = Callable[[Request], Awaitable[Response | StreamResponse]]

_PARAMETER = re.compile(r"\{([a-z_][a-z0-9_]*)(\.\.\.)?\}")
_BAD_CHARACTER = re.compile(r"[\x00-\x1f\x7f/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table."""

    method: str
    pattern: str
    handler: RouteHandler
    max_body: int | None = None
    """This route's own bound for a body, in bytes; None for the server's."""
    names: tuple[str, ...] = ()


class _Node:
    __slots__ = ("literals", "parameter", "rest", "routes")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.rest: _Node | None = None
        self.routes: dict[str, Route] = {}


class Router:
    """The table; calling it with a request calls the handler. Raises HttpError 404, 405 or 400."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._root = _Node()
        self._routes: list[Route] = []

    def add(self, method: str, pattern: str, handler: RouteHandler, *, max_body: int | None = None) -> None:
        """Add a row. A GET row answers HEAD too. ValueError for a bad or a repeated row."""
        if not pattern.startswith("/"):
            raise ValueError(f"pattern {pattern!r} must begin with /")
        names: list[str] = []
        node = self._root
        segments = pattern[1:].split("/")
        for index, segment in enumerate(segments):
            match = _PARAMETER.fullmatch(segment)
            if match is None:
                if "{" in segment or "}" in segment:
                    raise ValueError(f"pattern {pattern!r}: a parameter is a whole segment")
                node = node.literals.setdefault(segment, _Node())
                continue
            if match.group(1) in names:
                raise ValueError(f"pattern {pattern!r} names {match.group(1)!r} twice")
            names.append(match.group(1))
            if match.group(2):
                if index != len(segments) - 1:
                    raise ValueError(f"pattern {pattern!r}: only the last parameter takes the rest")
                node.rest = node = node.rest or _Node()
            else:
                node.parameter = node = node.parameter or _Node()
        route = Route(method=method.upper(), pattern=pattern, handler=handler, max_body=max_body, names=tuple(names))
        if route.method in node.routes:
            raise ValueError(f"{route.method} {pattern} is already in the table as {node.routes[route.method].pattern}")
        node.routes[route.method] = route
        if not names:
            self._exact[pattern] = node.routes
        self._routes.append(route)

    def routes(self) -> list[Route]:
        """Every row, by pattern and method: what the documentation lists."""
        return sorted(self._routes, key=lambda route: (route.pattern, route.method))

    def __call__(self, request: Request) -> Awaitable[Response | StreamResponse]:
        """Find the handler and call it."""
        routes = self._exact.get(request.path)
        route = routes.get(request.method) if routes is not None else None
        if route is None:
            route, request.params = self._known(request)
        request.route = route.pattern
        if route.max_body is not None:
            request.max_body = route.max_body
        return route.handler(request)

    def _known(self, request: Request) -> tuple[Route, dict[str, str]]:
        """What was found for the same head, or is found now."""
        memo = request.head.memo
        found = memo.get(self)
        if found is None:
            found = memo[self] = self._find(request)
        route, params = found
        return route, dict(params)

    def _find(self, request: Request) -> tuple[Route, dict[str, str]]:
        method = request.method
        allowed: set[str] = set()
        for routes, values in _walk(self._root, request.path[1:].split("/"), 0, ()):
            route = routes.get(method) or (routes.get("GET") if method == "HEAD" else None)
            if route is not None:
                decoded = (_decode(name, value) for name, value in zip(route.names, values, strict=True))
                return route, dict(zip(route.names, decoded, strict=True))
            allowed.update(routes)
        if not allowed:
            hint = f"{method} {request.path[:200]} is not part of this API"
            if request.path.startswith("/v1/v1/"):
                hint += "; the server's URL stands without /v1"
            raise HttpError(404, "no such route", hint=hint)
        if "GET" in allowed:
            allowed.add("HEAD")
        allow = ", ".join(sorted(allowed))
        raise HttpError(405, "method not allowed", hint=f"this path answers {allow}", headers=(("allow", allow),))


def _walk(
    node: _Node, segments: list[str], index: int, values: tuple[str, ...]
) -> Iterator[tuple[dict[str, Route], tuple[str, ...]]]:
    """Every set of routes whose pattern fits, the most literal first, with the raw parameter values."""
    if index == len(segments):
        if node.routes:
            yield node.routes, values
        return
    segment = segments[index]
    literal = node.literals.get(segment)
    if literal is not None:
        yield from _walk(literal, segments, index + 1, values)
    if segment and node.parameter is not None:
        yield from _walk(node.parameter, segments, index + 1, (*values, segment))
    if node.rest is not None and all(segments[index:]):
        yield node.rest.routes, (*values, "/".join(segments[index:]))


def _decode(name: str, value: str) -> str:
    """A parameter as it was meant; each of a rest's segments on its own."""
    if "%" not in value:
        return value
    return "/".join(_decode_segment(name, segment) for segment in value.split("/"))


def _decode_segment(name: str, segment: str) -> str:
    try:
        text = unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError as error:
        raise HttpError(400, "bad path segment", field=name, hint="percent-encode UTF-8") from error
    if _BAD_CHARACTER.search(text):
        raise HttpError(
            400, "bad path segment", field=name, hint="a segment holds no slash (%2F) and no control character"
        )
    return text
