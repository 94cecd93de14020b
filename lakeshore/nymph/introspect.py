"""The status page of one daemon: JSON over HTTP, on this host alone.

    GET /status          what the core tells, and version and uptime
    GET /events          the ring of `logs`; ?limit=N (200), ?level=L
    GET /, /healthz      {"ok": true}

It asks nobody who they are, so it binds loopback addresses only, and answers only who came for one by name: a web page
that has its own name point here gets nothing. No keep-alive. That it cannot be had is a warning, never an end.
Reference: nymph/telemetry, "The introspection server"; N-266…N-289.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import trio

from lakeshore._version import __version__

from .config import IntrospectSection
from .logs import DEFAULT_LIMIT, Ring

_HEAD: Final = 16 << 10
_PATIENCE_S: Final = 5.0
_AT_ONCE: Final = 32
_REASONS: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_ORDER: Final = ("worker_id", "queue", "run_state", "backoff_s", "last_poll_ok_ts")
_log = logging.getLogger(__name__)

Answer = tuple[int, Mapping[str, Any]]


async def serve(
    section: IntrospectSection,
    core_status: Callable[[], Mapping[str, Any]],
    ring: Ring,
    *,
    task_status: trio.TaskStatus[int | None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Until cancelled; started with the port. With None, and ended, where it is off or cannot be had."""
    started = trio.current_time()
    if not section.enabled:
        task_status.started(None)
        return
    refusal = section.refusal()
    listeners: list[trio.SocketListener] = []
    if refusal is None:
        try:
            host = "127.0.0.1" if section.bind == "localhost" else section.bind
            listeners = await trio.open_tcp_listeners(section.port, host=host)
        except OSError as error:
            refusal = f"{section.bind}:{section.port}: {error.strerror or error}"
    if not listeners:
        _log.warning("no status page: %s", refusal)
        task_status.started(None)
        return
    limiter = trio.CapacityLimiter(_AT_ONCE)
    port: int = listeners[0].socket.getsockname()[1]
    _log.info("status page", extra={"url": f"http://{section.bind}:{port}"})
    answer = partial(_answer, core_status, ring, started)
    task_status.started(port)
    await trio.serve_listeners(partial(_converse, answer, limiter), listeners)


def status(told: Mapping[str, Any], uptime_s: float) -> dict[str, Any]:
    """What `/status` shows; what the core tells beyond the documented comes last."""
    known = {"version": __version__, **{name: told[name] for name in _ORDER}}
    return {**known, "uptime_s": round(uptime_s, 3), "inflight": told["inflight"], **_beyond(told)}


def _beyond(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: what for name, what in told.items() if name not in _ORDER and name != "inflight"}


def _answer(
    core_status: Callable[[], Mapping[str, Any]], ring: Ring, started: float, method: str, target: str
) -> Answer:
    if method != "GET":
        return 405, {"error": "method_not_allowed", "message": "only GET is supported"}
    asked = urlsplit(target)
    if asked.path in ("/", "/healthz"):
        return 200, {"ok": True}
    if asked.path == "/status":
        return 200, status(core_status(), trio.current_time() - started)
    if asked.path == "/events":
        query = parse_qs(asked.query)
        limit = query.get("limit", [""])[-1]
        level = query.get("level", [None])[-1]
        number = int(limit) if limit.isascii() and limit.isdecimal() and len(limit) < 10 else DEFAULT_LIMIT
        return 200, ring.page(limit=number, level=level)
    return 404, {"error": "not_found", "message": "no such route"}


async def _converse(
    answer: Callable[[str, str], Answer], limiter: trio.CapacityLimiter, stream: trio.SocketStream
) -> None:
    try:
        with trio.move_on_after(_PATIENCE_S):
            async with limiter, stream:
                await stream.send_all(_rendered(*_reply(answer, await _head(stream))))
                await stream.send_eof()
                while await stream.receive_some(_HEAD):  # a close with bytes unread would take the answer back
                    continue
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        return
    finally:
        await trio.aclose_forcefully(stream)


async def _head(stream: trio.SocketStream) -> bytes:
    head = bytearray()
    while b"\r\n\r\n" not in head and len(head) < _HEAD:
        data = await stream.receive_some(_HEAD)
        if not data:
            break
        head += data
    return bytes(head)


def _reply(answer: Callable[[str, str], Answer], head: bytes) -> Answer:
    lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return 400, {"error": "bad_request", "message": "this is HTTP/1.1"}
    hosts = [line[5:].strip() for line in lines[1:] if line[:5].lower() == "host:"]
    if not all(map(_is_local, hosts)):
        return 403, {"error": "forbidden", "message": "ask for localhost, or a loopback address"}
    return answer(words[0], words[1])


def _is_local(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _rendered(code: int, body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + data
