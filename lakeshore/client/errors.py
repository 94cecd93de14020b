"""What a control plane may answer instead of what was asked for.

ApiError                 a 4xx or 5xx answer: `status`, `hint`, `field`, and the whole `body`
└── NotLakeshore         what answered is not a control plane

A connection that does not come about is a `lakeshore.net.errors.NetError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """The server refused. `str()` is its sentence; `hint` is what it says to do, or None."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        hint: str | None = None,
        field: str | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint
        self.field = field
        self.body = {} if body is None else body


class NotLakeshore(ApiError):
    """The answer is not one of ours: another program listens there, or a proxy answered for it. See `answers`."""
