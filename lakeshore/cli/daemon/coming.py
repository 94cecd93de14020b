"""Waits for daemons that were launched: until each is registered, has failed on the way, or the time is over.

Reference: cli/examples/daemons-and-exec, "`--wait` waits for all of them"; C-208, C-220.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakeshore.client.api import ApiClient
from lakeshore.client.workers import Workers
from lakeshore.net.errors import NetError, ProtocolViolation

from ..output import plain, say

Row = dict[str, Any]
POLL_S = 2.0
_OVER = ("terminated", "stopping", "stopped", "failed")
"""States of a machine on which no daemon comes up any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """One to wait for."""

    id: str
    label: str


def registered(server: ApiClient, coming: Sequence[Coming], *, wait_s: float) -> list[str]:
    """Wait for them, and say of each how it went; the ids of those that did not come."""
    workers = Workers(server)
    left = {one.id: one for one in coming}
    states: dict[str, str] = {}
    missing: list[str] = []
    deadline = time.monotonic() + wait_s
    trouble = ""
    say(f"waiting (up to {wait_s:g} s) for {'it' if len(left) == 1 else f'{len(left)} daemons'} to register …")
    while True:
        try:
            rows = {str(row.get("id")): row for row in workers.all()}
        except ProtocolViolation:
            raise
        except NetError as error:  # a server that restarts is asked again
            trouble = f" (the server: {error})"
        else:
            trouble = ""
            for one in list(left.values()):
                ended = _looked_at(one, rows.get(one.id), states)
                if ended is not None:
                    del left[one.id]
                    missing += [] if ended else [one.id]
        if not left:
            return missing
        if time.monotonic() >= deadline:
            break
        time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
    for one in left.values():
        state = states.get(one.id)
        say(f"error: {one.label} did not register within {wait_s:g} s{f'; it is {state}' if state else ''}{trouble}")
        say(f"hint: `lakeshore daemon list` shows it if it still comes; {_what_to_do(one)}")
    return [*missing, *left]


def _looked_at(one: Coming, row: Row | None, states: dict[str, str]) -> bool | None:
    """Whether it is there; None while that is open. A change on the way is told."""
    if row is None:
        say(f"error: {one.label} was dropped while it was waited for")
        return False
    state, host = str(row.get("state")), row.get("hostStatus")
    if row.get("lastSeenAt") is not None:
        say(f"✓ {one.label} registered (worker {plain(one.id)}, {plain(state)})")
        return True
    seen = state + (f", its machine {host}" if host else "")
    if states.get(one.id) != seen:
        states[one.id] = seen
        say(f"  {one.label}: {seen}")
    if host in _OVER:
        say(f"error: the machine of {one.label} is {host}, and no daemon came up on it")
        say(f"hint: {_what_to_do(one)}")
        return False
    return None


def _what_to_do(one: Coming) -> str:
    return f"`lakeshore daemon launch-log {one.id}` has what its machine said, `lakeshore daemon kill {one.id}` ends it"
