"""Archives of code: where that of each pushed commit lies, and sending one.

Reference: python-sdk/happy-paths/10-code-mount.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import urlsplit

from lakeshore.net.blocking import BlockingConnection
from lakeshore.net.target import parse_target

from .api import ApiClient
from .errors import ApiError
from .rows import Row

STALLED_S = 60.0


def put_object(url: str, file: BinaryIO, size: int) -> None:
    """PUT a file to a signed URL of an object store. ApiError when it refuses, NetError; neither shows the URL."""
    parts = urlsplit(url)
    with BlockingConnection(parse_target(f"{parts.scheme}://{parts.netloc}")) as store:
        answer = store.request(
            "PUT", f"{parts.path}?{parts.query}", headers=[], body=file, content_length=size, timeout=STALLED_S
        )
    if not 200 <= answer.status < 300:
        raise ApiError(f"the store at {parts.netloc} answered {answer.status}", status=answer.status)


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

    def register(self, *, key: str, storage: str, remote: str, commit: str, ref: str | None) -> Row:
        """Say where an archive is; its row, with `alreadyArchived`. ApiError 422 for a storage that is not there."""
        body = {"remote": remote, "commit": commit, "archiveKey": key, "storageName": storage}
        return self._api.map("POST", self._api.ours("code-repos"), body=body if ref is None else {**body, "ref": ref})

    def remove(self, id_: str) -> Row:
        """Forget one, by its id. ApiError 404."""
        return self._api.map("DELETE", self._api.ours("code-repos", id_))
