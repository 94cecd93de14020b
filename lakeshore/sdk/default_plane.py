"""The process's plane, from the environment: `LAKESHORE_URL` selects HTTP, else a file under LAKESHORE_HOME.

Reference: get-started/functions.md, python-sdk/dispatch.md. A saved login does not select a plane.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lakeshore.config.auth import read_saved_login, same_server

from . import forks
from .ambient import ambient_plane
from .dispatch import Dispatch
from .http_dispatch import HttpDispatch

_planes: dict[tuple[str, ...], Any] = {}


def default_dispatch() -> Any:
    """The plane of the invocation that runs here, else the one that the environment names: one object each."""
    ambient = ambient_plane()
    if ambient is not None:
        return ambient
    key = tuple(os.environ.get(name, "") for name in ("LAKESHORE_URL", "LAKESHORE_NAMESPACE", "LAKESHORE_HOME"))
    with forks.gate:
        plane = _planes.get(key)
        if plane is None:
            plane = _planes[key] = _make()
        return plane


def plane_at(url: str) -> Any:
    """The plane of the server that a mode names: one object each. A token goes to its own server only: that of the
    environment to LAKESHORE_URL, a saved one to where it was saved for.
    """
    namespace = os.environ.get("LAKESHORE_NAMESPACE") or "default"
    key = ("at", url, namespace)
    with forks.gate:
        if key not in _planes:
            _planes[key] = HttpDispatch(url, token=_token_for(url), namespace=namespace)
        return _planes[key]


def _token_for(url: str) -> str | None:
    own = os.environ.get("LAKESHORE_URL")
    token = os.environ.get("LAKESHORE_CLIENT_TOKEN") or os.environ.get("LAKESHORE_TOKEN")
    if token and (not own or same_server(own, url)):
        return token
    saved = read_saved_login()
    return None if saved is None else saved.token_for(url)


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
