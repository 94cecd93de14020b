"""Releases of the daemon's file on a control plane, which daemons update themselves from.

Reference: cli/examples/secrets-modes-tunnels-config-nymph.md, "nymph".
"""

from __future__ import annotations

from typing import Any, BinaryIO

from .api import ApiClient

Row = dict[str, Any]
ROUTE = "/v1/admin/nymph-releases"
STALLED_S = 60.0


class Releases:
    """All of them; they are no namespace's. Needs the admin token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def upload(self, file: BinaryIO, *, size: int, sha256: str, target: str, label: str | None) -> Row:
        """Store a file of that size: `{url, full_url, sha256, label, target, version, bytes}`; `url` is a path, and
        `full_url` is None where the server does not know its own address. The same file again is the same row.
        """
        query = [("sha256", sha256), ("target", target), ("label", label)]
        answer: Row = self._api.call("POST", ROUTE, query, data=file, size=size, timeout=STALLED_S)
        return answer

    def all(self) -> list[Row]:
        """Every release, newest first."""
        return self._api.rows(ROUTE, "releases")
