"""A small HTTP/1.1 server on trio and h11, behind the interface that a router needs."""

from __future__ import annotations

from lakeshore.server.http.limits import Limits, allow_open_files
from lakeshore.server.http.listen import Listener, ListenError, open_listeners, open_socket_file
from lakeshore.server.http.messages import ClientGone, ConnectionInfo, HttpError, Request, Response, StreamResponse
from lakeshore.server.http.render import render_plainly
from lakeshore.server.http.router import Route, Router
from lakeshore.server.http.server import HttpServer
from lakeshore.server.http.timers import Times
from lakeshore.server.http.tls import TlsError, server_context

__all__ = [
    "ClientGone",
    "ConnectionInfo",
    "HttpError",
    "HttpServer",
    "Limits",
    "ListenError",
    "Listener",
    "Request",
    "Response",
    "Route",
    "Router",
    "StreamResponse",
    "Times",
    "TlsError",
    "allow_open_files",
    "open_listeners",
    "open_socket_file",
    "render_plainly",
    "server_context",
]
