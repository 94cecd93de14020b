"""Tunnels and mounts: a kind and a config under a name.

Reference: get-started/tunnels.md, "HTTP"; get-started/mounts.md, "HTTP".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from .api import ApiClient
from .rows import Row, change_row, remove_row


class Entries:
    """Those of the namespace that `api` is for: `{name, kind, config, namespace, revision, createdAt, updatedAt}`.

    A tunnel's row has `activation` and `providers`, too. ApiError 404 for one that is not there.
    """

    def __init__(self, api: ApiClient, noun: Literal["tunnels", "mounts"]) -> None:
        self._api, self._noun = api, noun

    def all(self) -> list[Row]:
        """All of them, by name."""
        return list(self._api.pages(self._api.ours(self._noun), self._noun))

    def show(self, name: str) -> Row:
        """One."""
        return self._api.map("GET", self._api.ours(self._noun, name))

    def add(self, name: str, kind: str, config: Mapping[str, Any]) -> Row:
        """A new one; its row, with `warnings`. ApiError 409 for a name that is taken, 422 for an unknown secret."""
        return self._api.map("POST", self._api.ours(self._noun), body={"name": name, "kind": kind, "config": config})

    def change(self, name: str, change: Callable[[Row], Mapping[str, Any]]) -> Row:
        """Give it the config that `change` makes of its row."""
        return change_row(self._api, self._api.ours(self._noun, name), lambda row: {"config": change(row)})

    def remove(self, name: str) -> None:
        """Forget one. ApiError 409 for a tunnel that a provider refers to."""
        remove_row(self._api, self._api.ours(self._noun, name))
