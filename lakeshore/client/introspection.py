"""The status page of one daemon on this host, read once: `/status` and `/events` together.

Rules: one look is one deadline, whatever the other side does; whoever answers may be anybody, so every field is looked
at before it is believed, and a field that is missing or of another kind is an empty one, not an error. Reads only.
Reference: nymph/telemetry.md, "The introspection server"; N-271…N-289.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakeshore.net.aio import AsyncConnection
from lakeshore.net.errors import NetError
from lakeshore.net.target import parse_target

from .reasons import reason

PATIENCE_S: Final = 5.0
MOST_EVENTS: Final = 5000
"""Of the daemon's ring, whatever its size: as much as a person scrolls through."""
_LONGEST: Final = 32 << 20
LEVELS: Final = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")


class Unreachable(Exception):
    """There was no answer that can be used; the text says why in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`/status`. Times in Unix seconds, lengths in seconds; None where the daemon does not know, or did not tell."""

    version: str | None = None
    worker_id: str | None = None
    queue: str | None = None
    run_state: str | None = None
    backoff_s: float | None = None
    last_poll_ok_ts: float | None = None
    uptime_s: float | None = None
    inflight: int | None = None
    last_exec_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One of `/events`. `level` is one of LEVELS; an unknown one counts as INFO."""

    ts: float
    level: str
    target: str
    message: str
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the page showed at one moment. `events` are oldest first; `capacity` is the size of the daemon's ring."""

    status: Status
    events: tuple[Event, ...] = ()
    capacity: int | None = field(default=None)


class Introspection:
    """The status page at `url`. ValueError for an address that cannot be one."""

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        self._target = parse_target(url)
        self._patience_s = patience_s
        self.url = url

    async def look(self) -> Look:
        """Both answers, asked for at once. Unreachable when either is not to be had within the time."""
        paths = ("/status", f"/events?limit={MOST_EVENTS}")
        asked = [asyncio.ensure_future(self._get(path)) for path in paths]
        try:
            async with asyncio.timeout(self._patience_s):
                status, events = await asyncio.gather(*asked)
        except TimeoutError:
            raise Unreachable(f"no answer within {self._patience_s:g} s") from None
        finally:  # when one fails the other still asks: its connection is closed before anybody is told
            for one in asked:
                one.cancel()
            await asyncio.wait(asked)
        capacity = events.get("capacity")
        rows = events.get("events")
        return Look(
            status=status_of(status),
            events=tuple(event_of(row) for row in rows if isinstance(row, Mapping)) if isinstance(rows, list) else (),
            capacity=capacity if isinstance(capacity, int) else None,
        )

    async def _get(self, path: str) -> Mapping[str, Any]:
        try:
            async with AsyncConnection(self._target, connect_timeout=self._patience_s) as connection:
                answer = await connection.request(
                    "GET", self._target.prefix + path, timeout=self._patience_s, max_body=_LONGEST
                )
        except NetError as error:
            raise Unreachable(reason(error, self._patience_s)) from error
        if answer.status != 200:
            raise Unreachable(
                f"it answers {answer.status} to {path.partition('?')[0]}: this is no daemon's status page"
            )
        try:
            body = json.loads(answer.body)
        except ValueError:
            body = None
        if not isinstance(body, Mapping):
            raise Unreachable("it answers something else than JSON: this is no daemon's status page")
        return body


def status_of(body: Mapping[str, Any]) -> Status:
    """`/status` as it was answered."""
    inflight = body.get("inflight")
    running = inflight if isinstance(inflight, Mapping) else {}
    count = running.get("count")
    return Status(
        version=_text(body.get("version")),
        worker_id=_text(body.get("worker_id")),
        queue=_text(body.get("queue")),
        run_state=_text(body.get("run_state")),
        backoff_s=_number(body.get("backoff_s")),
        last_poll_ok_ts=_number(body.get("last_poll_ok_ts")),
        uptime_s=_number(body.get("uptime_s")),
        inflight=count if isinstance(count, int) else None,
        last_exec_id=_text(running.get("last_exec_id")),
    )


def event_of(row: Mapping[str, Any]) -> Event:
    """One of `/events` as it was answered."""
    level = (_text(row.get("level")) or "").upper()
    fields = row.get("fields")
    return Event(
        ts=_number(row.get("ts")) or 0.0,
        level=level if level in LEVELS else "INFO",
        target=_text(row.get("target")) or "",
        message=_text(row.get("message")) or "",
        fields=tuple((str(name), str(what)) for name, what in fields.items()) if isinstance(fields, Mapping) else (),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
