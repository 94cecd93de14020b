"""What resources under a name have in common: changes that lose nobody else's, removals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakeshore.net.errors import NetError

from .api import ApiClient
from .errors import ApiError

Row = dict[str, Any]
TRIES = 5
"""How often a change is made anew to what somebody else has just changed."""


def change_row(api: ApiClient, path: str, change: Callable[[Row], Mapping[str, Any]]) -> Row:
    """PATCH what `change` makes of the row at `path`; its row, with `warnings`. A change of somebody else's in between
    is not lost: then `change` is asked once more. ApiError 404, 409, 422.
    """
    for left in reversed(range(TRIES)):
        row = api.map("GET", path)
        try:
            return api.map("PATCH", path, [("revision", row.get("revision"))], body=change(row))
        except ApiError as error:
            if not left or error.status != 409 or "revision" not in error.body:
                raise
    raise AssertionError("the last try answers or raises")


def remove_row(api: ApiClient, path: str) -> Row:
    """DELETE it; what is answered. ApiError 404, unless it was there before an answer was lost: then nothing."""
    lost: list[NetError] = []
    try:
        return api.insist(lambda: api.map("DELETE", path), lost)
    except ApiError as error:
        if not (lost and error.status == 404):
            raise
        return {}
