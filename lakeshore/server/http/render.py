"""The plain rendering of refusals, for servers that are given no other."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from lakeshore.server.http.messages import HttpError, Request, Response

RenderError = Callable[[Request | None, HttpError], Response]

log = logging.getLogger("lakeshore.http")


def render_plainly(request: Request | None, error: HttpError) -> Response:
    """JSON, whatever was asked for."""
    body = json.dumps(error.as_body(), default=str, ensure_ascii=False).encode()
    return Response(status=error.status, headers=(("content-type", "application/json"), *error.headers), body=body)


def render_safely(render: RenderError, request: Request | None, error: HttpError) -> Response:
    """By `render`; plainly when that fails, so that a refusal is always said."""
    try:
        return render(request, error)
    except Exception:
        log.exception("an error answer could not be rendered")
        return render_plainly(request, error)
