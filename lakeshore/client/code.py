"""Archives of code: where that of each pushed commit lies.

Reference: python-sdk/happy-paths/10-code-mount.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from .api import ApiClient
from .rows import Row


class CodeRepos:
    """Those of the namespace that `api` is for."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def each(self, *, remote: str | None = None, commit: str | None = None) -> Iterator[Row]:
        """Newest first: `{id, remote, commit, ref, archiveKey, storageName, createdAt}`."""
        query = [("remote", remote), ("commit", commit)]
        return self._api.pages(self._api.ours("code-repos"), "codeRepos", query)
