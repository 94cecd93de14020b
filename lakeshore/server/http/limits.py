"""How much of anything one peer may ask for. Every refusal by size or count reads its bound here."""

from __future__ import annotations

import sys
from dataclasses import dataclass

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds in bytes and counts. A route overrides ``max_body`` for itself (``Router.add(max_body=…)``).

    Pipelining needs no depth of its own: requests are answered one at a time and nothing is read while one is in
    progress, so a peer that sends ahead fills its own socket buffer and one read of ours, never a queue.
    """

    max_head: int = 32 * 1024
    """Request line and headers together: 431 beyond it (414 where the request line alone exceeds it)."""
    max_target: int = 8 * 1024
    """The request target: 414 beyond it."""
    max_headers: int = 100
    """Header fields in one request: 431 beyond it."""
    max_body: int = 32 * 1024 * 1024
    """One request's body, decoded: 413 beyond it, before a byte is read when the length is announced."""
    max_discard: int = 256 * 1024
    """An unread body of an announced length up to this is read and dropped; beyond it the connection closes."""
    max_connections: int = 4096
    """Open connections: the next one is answered 503 with Retry-After and closed."""
    max_refusals: int = 64
    """Refused connections that may linger at once so that their 503 arrives; beyond it they are just closed."""


def allow_open_files(wanted: int) -> int | None:
    """Raise the soft limit of open files towards `wanted`; returns the limit in force, None where there is none."""
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= wanted:
        return None if soft == unlimited else soft
    raised = wanted if hard == unlimited else min(wanted, hard)
    if raised <= soft:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):
        return soft  # some systems cap it below the hard limit they report: the old limit stays in force
    return raised
