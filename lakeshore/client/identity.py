"""Enroll tokens: each lets one daemon register a key of its own.

Reference: nymph/key-rotation.md.
"""

from __future__ import annotations

from typing import Any

from .api import ApiClient

Row = dict[str, Any]


class EnrollTokens:
    """Those of the namespace that `api` is for. Needs the admin token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def create(self, label: str, *, ttl_s: float | None = None) -> Row:
        """A new one: `{id, label, prefix, plaintext, expiresAt, createdAt}`; the plaintext is told this once."""
        body: Row = {"label": label} | ({} if ttl_s is None else {"ttl_s": ttl_s})
        return self._api.map("POST", self._api.ours("enroll-tokens"), body=body)

    def all(self) -> list[Row]:
        """All of them, spent ones too: `{id, label, prefix, createdAt, expiresAt, consumedAt, spent, …}`."""
        return self._api.rows(self._api.ours("enroll-tokens"), "enrollTokens")

    def revoke(self, token_id: str) -> Row:
        """Burn one: nobody enrolls with it any more. Again is no error."""
        return self._api.insist(lambda: self._api.map("DELETE", self._api.ours("enroll-tokens", token_id)), [])
