"""Pages of other origins: answered when their request carries a bearer, or when --cors-origin names them.

A preflight carries none, so it is answered for what it announces. Credentials of the browser (cookies) are never
allowed, for there are none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .http import HttpError, Request, Response, StreamResponse

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED: Final = "content-disposition, content-range, x-ls-reject"
_SECONDS: Final = "600"


class Cors:
    """The rule of one server."""

    def __init__(self, origins: frozenset[str]) -> None:
        self.origins = origins

    def preflight(self, request: Request) -> Response | None:
        """The answer to a preflight; None when the request is none. HttpError 403 for a stranger's."""
        origin = request.header("origin")
        if request.method != "OPTIONS" or origin is None or request.header("access-control-request-method") is None:
            return None
        asked = request.header("access-control-request-headers") or ""
        names = [name.strip().lower() for name in asked.split(",")]
        if origin not in self.origins and "authorization" not in names:
            raise HttpError(403, "origin not allowed", hint="name it with --cors-origin, or send a bearer token")
        headers = [
            ("access-control-allow-origin", origin),
            ("vary", "origin"),
            ("access-control-allow-methods", _METHODS),
            ("access-control-max-age", _SECONDS),
        ]
        if asked:
            headers.append(("access-control-allow-headers", asked))
        if request.header("access-control-request-private-network") == "true":
            headers.append(("access-control-allow-private-network", "true"))
        return Response(status=204, headers=tuple(headers))

    def extend(self, request: Request, answer: Response | StreamResponse) -> Response | StreamResponse:
        """The answer, with the headers that let the page read it, if it may."""
        added = self.headers(request)
        return replace(answer, headers=answer.headers + added) if added else answer

    def headers(self, request: Request) -> tuple[tuple[str, str], ...]:
        """What to add to an answer to this request."""
        raw = request.headers.get(b"origin")
        if raw is None:
            return ()
        origin = raw.decode("latin-1")
        if origin not in self.origins and b"authorization" not in request.headers:
            return ()
        return (
            ("access-control-allow-origin", origin),
            ("vary", "origin"),
            ("access-control-expose-headers", _EXPOSED),
        )
