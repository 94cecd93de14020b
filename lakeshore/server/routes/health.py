"""Is it up, can it work, and what is it doing (Prometheus' text format)."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

import trio

from ...plane import rows
from ...plane.contract import DELAYED, STATES, PlaneFull
from ...plane.statements import SQL
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..render import answer
from .answers import TEXT, Up
from .stated import route

_TEXT: Final = (("content-type", "text/plain; version=0.0.4; charset=utf-8"),)
_HELP: Final = {
    "parked_polls": "Worker polls that are held open.",
    "waiters": "Producers that wait for a result.",
    "leases": "Claims that workers hold.",
    "commits_total": "Transactions committed.",
    "committed_items_total": "Verbs committed by them.",
    "commit_seconds_average": "Moving average of the time that a COMMIT takes.",
    "stale_reports_total": "Reports of workers whose claim was not current.",
    "damaged_frames_total": "Frames that could not be read back and were left out.",
}


@route(Up)
async def healthz(app: App, request: Request) -> Response:
    """GET /healthz: this process answers."""
    return answer(request, {"ok": True, "version": app.version})


@route(Up, refuses=(503,))
async def readyz(app: App, request: Request) -> Response:
    """GET /readyz: it answers and works. 503 while it goes down; `full` while its disk has no room for new calls."""
    if request.draining:
        raise HttpError(503, "going down", headers=(("retry-after", "1"),))
    app.dispatcher.rows(SQL.count, {"ns": "default", "queue": "default", "state": "queued"})
    try:
        app.dispatcher.reserve.check(trio.current_time())
    except PlaneFull:
        return answer(request, {"ok": True, "full": True})  # what runs goes on, so it is not taken out of service
    return answer(request, {"ok": True})


@route(TEXT)
async def metrics(app: App, request: Request, caller: Caller) -> Response:
    """GET /metrics"""
    lines: list[str] = []
    counts: dict[tuple[str, str], int] = {}
    delayed: dict[str, int] = {}
    for ns, _queue, state, n in app.dispatcher.rows(SQL.tallies, {}):
        shown = rows.shown(state)
        counts[ns, shown] = counts.get((ns, shown), 0) + n
        if state == DELAYED:
            delayed[ns] = delayed.get(ns, 0) + n
    _head(lines, "lakeshore_invocations", "gauge", "Invocations by namespace and state.")
    for ns in sorted({ns for ns, _state in counts} | {row.name for row in app.records.namespaces()}):
        of_ns = [f'namespace="{ns}",state="{state}"' for state in STATES]
        lines += [
            f"lakeshore_invocations{{{labels}}} {counts.get((ns, state), 0)}"
            for labels, state in zip(of_ns, STATES, strict=True)
        ]
    _head(lines, "lakeshore_delayed_invocations", "gauge", "Those of the queued ones whose instant has not come.")
    lines += [f'lakeshore_delayed_invocations{{namespace="{ns}"}} {n}' for ns, n in sorted(delayed.items())]
    for name, value in app.dispatcher.stats().items():
        kind = "counter" if name.endswith("_total") else "gauge"
        _head(lines, f"lakeshore_{name}", kind, _HELP.get(name, name))
        lines.append(f"lakeshore_{name} {value:.12g}")
    _head(lines, "lakeshore_workers", "gauge", "Daemons by namespace and the state that is shown.")
    shown_as = Counter((row.ns, app.workers.shown_state(row)) for row in app.records.workers.all())
    lines += [
        f'lakeshore_workers{{namespace="{ns}",state="{state}"}} {n}' for (ns, state), n in sorted(shown_as.items())
    ]
    for http in app.http:
        _head(lines, "lakeshore_http_connections", "gauge", "Open connections.")
        lines.append(f"lakeshore_http_connections {http.open_connections}")
        _head(lines, "lakeshore_http_parked_requests", "gauge", "Requests that are held: polls and streams.")
        lines.append(f"lakeshore_http_parked_requests {http.parked_requests}")
    _head(lines, "lakeshore_uptime_seconds", "gauge", "Since this process began to serve.")
    lines.append(f"lakeshore_uptime_seconds {time.time() - app.started_at:.3f}")
    _head(lines, "lakeshore_build_info", "gauge", "The version that runs.")
    lines.append(f'lakeshore_build_info{{version="{app.version}"}} 1')
    return Response(headers=_TEXT, body=("\n".join(lines) + "\n").encode())


def _head(lines: list[str], name: str, kind: str, text: str) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
