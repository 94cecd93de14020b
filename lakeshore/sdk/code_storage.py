"""Archives of code in an object store: a URL is asked of the control plane, the bytes go to and come from the store.

Rule: a URL is a secret while it lasts: no message has more of it than its host.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from . import http_wire
from .errors import DispatchError
from .http_client import HttpClient

URL_S: Final = 900
MOVE_S: Final = 60.0
"""For each wait of a transfer."""


def put(client: HttpClient, storage: str, key: str, file: Path) -> bool:
    """Store a file under a key; False where the namespace has no such storage. Refusal, DispatchError."""
    try:
        url = _url(client, storage, key, "put")
    except http_wire.Refusal as refusal:
        if refusal.status == 404:
            return False
        raise
    with file.open("rb") as body:
        answer = _asked("PUT", url, content=body, size=file.stat().st_size)
    _check(answer, "PUT", url, storage)
    return True


def fetch(client: HttpClient, storage: str, key: str, file: Path, most: int) -> str:
    """Write the object of a key into a new file; its sha256. Refusal, DispatchError, also for over `most` bytes."""
    import httpx  # wall: other people's servers are httpx's

    url, digest, size = _url(client, storage, key, "get"), hashlib.sha256(), 0
    try:
        with httpx.stream("GET", url, timeout=MOVE_S, follow_redirects=True) as answer, file.open("wb") as into:
            _check(answer, "GET", url, storage)
            for piece in answer.iter_raw():
                size += len(piece)
                if size > most:
                    raise DispatchError(f"the archive in storage {storage!r} has more than its {most} bytes")
                digest.update(piece)
                into.write(piece)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _lost("GET", url, error) from None
    return digest.hexdigest()


def _url(client: HttpClient, storage: str, key: str, operation: str) -> str:
    path = http_wire.path("v1", "namespaces", client.namespace, "storages", storage, "presign")
    asked = {"key": key, "operation": operation, "expiresIn": URL_S}
    return str(client.call("POST", path, asked, f"asking for an archive's place in storage {storage!r}")["url"])


def _asked(method: str, url: str, *, content: Any, size: int) -> Any:
    import httpx  # wall: as above

    try:
        return httpx.request(method, url, content=content, headers={"content-length": str(size)}, timeout=MOVE_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _lost(method, url, error) from None


def _check(answer: Any, method: str, url: str, storage: str) -> None:
    if not answer.is_success:
        raise DispatchError(
            f"{method} of an archive in storage {storage!r} at {urlsplit(url).netloc} was answered {answer.status_code}"
        )


def _lost(method: str, url: str, error: Exception) -> DispatchError:
    return DispatchError(f"{method} of an archive at {urlsplit(url).netloc} failed: {type(error).__name__}")
