"""The process's plane, from the environment: `LAKESHORE_URL` selects HTTP, else a file under LAKESHORE_HOME.

Reference: get-started/functions.md, python-sdk/dispatch.md. A saved login does not select a plane.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from .ambient import ambient_plane
from .dispatch import Dispatch
from .http_dispatch import HttpDispatch

_lock = threading.Lock()
_planes: dict[tuple[str, ...], Any] = {}


def default_dispatch() -> Any:
    """The plane of the invocation that runs here, else the one that the environment names: one object each."""
    ambient = ambient_plane()
    if ambient is not None:
        return ambient
    key = tuple(os.environ.get(name, "") for name in ("LAKESHORE_URL", "LAKESHORE_NAMESPACE", "LAKESHORE_HOME"))
    with _lock:
        plane = _planes.get(key)
        if plane is None:
            plane = _planes[key] = _make()
        return plane


def home() -> Path:
    """Where local state lives: `LAKESHORE_HOME`, else `~/.lakeshore`."""
    return Path(os.environ.get("LAKESHORE_HOME") or "~/.lakeshore").expanduser()


def _make() -> Any:
    namespace = os.environ.get("LAKESHORE_NAMESPACE") or "default"
    url = os.environ.get("LAKESHORE_URL")
    if url:
        token = os.environ.get("LAKESHORE_CLIENT_TOKEN") or os.environ.get("LAKESHORE_TOKEN")
        return HttpDispatch(url, token=token, namespace=namespace)
    return Dispatch(home() / "dispatch.sqlite", ns=namespace)
