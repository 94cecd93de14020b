"""The namespaces of a server, and their orgs.

Reference: api/auth-and-secrets.md, "Organizations".
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .api import ApiClient

Row = dict[str, Any]
_ROUTE = "/v1/admin/namespaces"


class Namespaces:
    """All of a server's. Needs the admin token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self) -> list[Row]:
        """Every one: `{name, orgId, targetNymphVersion, createdAt}`."""
        return self._api.rows(_ROUTE, "namespaces")

    def show(self, name: str) -> Row:
        """One, and its `siblings`: the names of the others of its org. ApiError 404."""
        return self._api.map("GET", _at(name))

    def create(self, name: str, *, org: str | None = None) -> Row:
        """A new one; its row. ApiError 409 when there is one of that name."""
        return self._api.map("POST", _ROUTE, body={"name": name} | ({} if org is None else {"orgId": org}))

    def set_org(self, name: str, org: str | None) -> Row:
        """Put it into an org, or with None into none; its row. ApiError 404."""
        return self._api.insist(lambda: self._api.map("PATCH", _at(name), body={"orgId": org}), [])

    def delete(self, name: str) -> Row:
        """Delete it for a few seconds: `{name, deleted, forgotten}`; ask again while `deleted` is false."""
        return self._api.map("DELETE", _at(name))


def _at(name: str) -> str:
    return f"{_ROUTE}/{quote(name, safe='')}"
