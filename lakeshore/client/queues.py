"""The queues of a namespace. Every verb may be sent twice, and is sent again when its answer was lost.

Reference: get-started/queues.md, "HTTP".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeshore.net.errors import NetError

from .api import ApiClient
from .errors import ApiError

Row = dict[str, Any]
_PAGE = 1000


class Queues:
    """The queues of the namespace that `api` is for. Every verb raises ApiError 404 for one that is not there."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self, *, state: str | None = None) -> list[Row]:
        """Every row, also of the org's other namespaces: `{name, namespace, kind, state, memberCount, …}`."""
        return list(self._api.pages(self._api.ours("queues"), "queues", [("state", state)], page=_PAGE))

    def show(self, name: str) -> Row:
        """One row, with `members`: `{id, label, state, queues}`."""
        return self._api.map("GET", self._path(name))

    def members(self, name: str) -> list[Row]:
        """Who pulls: `{id, label, state, queues}`."""
        return self._api.rows(self._path(name), "members")

    def stats(self, name: str) -> Row:
        """What is there now: `{daemon_count, utilization, pending, running, oldest_age_s, throughput_per_s, …}`."""
        return self._api.map("GET", self._path(name, "stats"))

    def events(self, name: str, *, verbose: bool, limit: int, calls: bool = False) -> list[Row]:
        """What was changed and decided, the newest first: `{at, kind, payload}`. `calls`: also of the newest calls."""
        query = [("verbose", "true" if verbose else None), ("limit", str(limit))]
        query += [("invocations", "true")] if calls else []
        return self._api.rows(self._path(name, "events"), "events", query)

    def add(self, asked: Mapping[str, Any]) -> Row:
        """Make one: `{name, kind?, …}`. ApiError 409 when the name is taken."""
        lost: list[NetError] = []
        try:
            return self._api.insist(lambda: self._api.map("POST", self._api.ours("queues"), body=asked), lost)
        except ApiError as error:
            if not (lost and error.status == 409):
                raise
            return self.show(str(asked["name"]))  # by the request whose answer was lost

    def patch(self, name: str, changed: Mapping[str, Any]) -> Row:
        """Change fields; null clears one. The row."""
        return self._api.insist(lambda: self._api.map("PATCH", self._path(name), body=changed), [])

    def move(self, name: str, verb: str) -> Row:
        """`archive`, `unarchive` or `drain` it; the row."""
        return self._api.insist(lambda: self._api.map("POST", self._path(name, verb), body={}), [])

    def remove(self, name: str, *, force: bool) -> Row:
        """Forget it. ApiError 409 while it has members or calls."""
        lost: list[NetError] = []
        query = [("force", "true" if force else None)]
        try:
            return self._api.insist(lambda: self._api.map("DELETE", self._path(name), query), lost)
        except ApiError as error:
            if not (lost and error.status == 404):
                raise
            return {"name": name, "deleted": True}

    def _path(self, *parts: str) -> str:
        return self._api.ours("queues", *parts)
