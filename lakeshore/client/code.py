"""Archives of code: where that of each pushed commit lies, and sending one.

Reference: python-sdk/happy-paths/10-code-mount.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from .api import ApiClient
from .rows import Row

STALLED_S = 60.0


class CodeRepos:
    """Those of the namespace that `api` is for."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def each(self, *, remote: str | None = None, commit: str | None = None) -> Iterator[Row]:
        """Newest first: `{id, remote, commit, ref, archiveKey, storageName, sha256, createdAt}`."""
        query = [("remote", remote), ("commit", commit)]
        return self._api.pages(self._api.ours("code-repos"), "codeRepos", query)

    def keep(self, file: BinaryIO, *, size: int, sha256: str, remote: str, commit: str, ref: str | None) -> Row:
        """Have the control plane keep an archive; its row, with `alreadyArchived`."""
        query = [("remote", remote), ("commit", commit), ("sha256", sha256), ("ref", ref)]
        path = self._api.ours("code-archives")
        answer: Row = self._api.call("POST", path, query, data=file, size=size, timeout=STALLED_S)
        return answer

    def remove(self, id_: str) -> Row:
        """Forget one, by its id. ApiError 404."""
        return self._api.map("DELETE", self._api.ours("code-repos", id_))
