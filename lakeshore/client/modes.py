"""Modes: named run configs of a namespace.

Reference: api/configuration.md, "Server-stored modes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .api import ApiClient
from .rows import Row, change_row, remove_row


class Modes:
    """Those of the namespace that `api` is for."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self) -> list[Row]:
        """All of them, by name: `{name, namespace, backend, runner, image, tags, resources, env, timeout_s, provider,
        revision, createdAt, updatedAt}`.
        """
        return self._api.rows(self._api.ours("modes"), "modes")

    def show(self, name: str) -> Row:
        """One. ApiError 404."""
        return self._api.map("GET", self._api.ours("modes", name))

    def add(self, name: str, config: Mapping[str, Any]) -> Row:
        """A new one; its row, with `warnings`. ApiError 409 when the name is taken, 422 for an unknown secret."""
        return self._api.map("POST", self._api.ours("modes"), body={**config, "name": name})

    def change(self, name: str, change: Callable[[Row], Mapping[str, Any]]) -> Row:
        """Make it say what `change` makes of its row, null where a key goes; a change of somebody else's in between is
        not lost: then it is asked for once more.
        """
        return change_row(self._api, self._api.ours("modes", name), change)

    def remove(self, name: str) -> None:
        """Forget one. ApiError 404, unless it was there before an answer was lost."""
        remove_row(self._api, self._api.ours("modes", name))
