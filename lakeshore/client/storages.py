"""Storages: buckets, or directories of buckets, under a name.

Reference: get-started/storages.md, "HTTP".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .api import ApiClient
from .rows import Row, change_row, remove_row


class Storages:
    """Those of the namespace that `api` is for: `{name, kind, config, description, bucket, prefix, endpoint, …}`.

    ApiError 404 for one that is not there; 502 when its object store refuses or does not answer, 501 where the server
    has no botocore to ask it with.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self, *, deleted: bool = False) -> list[Row]:
        """All of them, by name; also those that were removed."""
        query = [("deleted", "true")] if deleted else []
        return list(self._api.pages(self._api.ours("storages"), "storages", query))

    def show(self, name: str) -> Row:
        """One."""
        return self._api.map("GET", self._api.ours("storages", name))

    def add(
        self,
        name: str,
        kind: str,
        config: Mapping[str, Any],
        *,
        description: str | None = None,
        provision: bool = False,
        s3_options: Mapping[str, str] | None = None,
    ) -> Row:
        """A new one; its row, with `warnings`. ApiError 409 when its name or its target is taken."""
        body: Row = {"name": name, "kind": kind, "config": config}
        if description is not None:
            body["description"] = description
        if provision:
            body["provision"] = True
        if s3_options:
            body["s3Options"] = s3_options
        return self._api.map("POST", self._api.ours("storages"), body=body)

    def change(self, name: str, change: Callable[[Row], Mapping[str, Any]]) -> Row:
        """Send what `change` makes of its row: `{config?, description?}`. ApiError 409 for what never changes."""
        return change_row(self._api, self._api.ours("storages", name), change)

    def remove(self, name: str, *, purge: bool = False) -> Row:
        """Remove one: it is kept under another name. `purge`: its bucket, too; ApiError 409 while that has objects."""
        path = self._api.ours("storages", name)
        return self._api.map("DELETE", path, [("purge", "true")]) if purge else remove_row(self._api, path)

    def presign(self, name: str, key: str, *, put: bool = False, expires_in: int | None = None) -> Row:
        """`{url, key, bucket, operation, expiresIn, expiresAt}` of an object below the storage's prefix."""
        body: Row = {"key": key, "operation": "put" if put else "get"}
        if expires_in is not None:
            body["expiresIn"] = expires_in
        return self._api.map("POST", self._api.ours("storages", name, "presign"), body=body)

    def credentials(self, name: str, *, duration_s: int | None = None) -> Row:
        """`{accessKeyId, secretAccessKey, sessionToken, expiration, region, endpoint}`."""
        body = {} if duration_s is None else {"durationSeconds": duration_s}
        return self._api.map("POST", self._api.ours("storages", name, "credentials"), body=body)
