"""The server that runs on this machine, found by its state directory (`state`), and where that is.

Light: a command asks it before it knows which server it talks to. Rule: who may read the directory is who serves; a
directory of another user's names no server to us, for a token would go there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..config.paths import data_dir

ADMIN, URL, LOCK = "admin.token", "server.url", "server.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """The server that runs from a state directory of this machine, as who may read that directory sees it."""

    url: str
    admin_token: str

    def __repr__(self) -> str:
        return f"LocalServer(url={self.url!r})"


def local_server(directory: Path | None, environ: Mapping[str, str]) -> LocalServer | None:
    """The server that runs from this directory (default: the usual one); None when none does, or it is not ours."""
    root = directory if directory is not None else default_directory(environ)
    try:
        url = (root / URL).read_text("utf-8").strip()
        if os.geteuid() not in (0, root.stat().st_uid):  # who made it chose the URL: a token would go there
            return None
        pid = int((root / LOCK).read_text("ascii"))
        token = (root / ADMIN).read_text("ascii").strip()
        if pid <= 0 or not url or not token:
            return None
        os.kill(pid, 0)  # a server that was killed leaves its URL behind
    except (OSError, ValueError, OverflowError):
        return None
    return LocalServer(url=url, admin_token=token)


def tunnel_socket(directory: Path) -> Path:
    """The end of tunnels, in this state directory."""
    return directory / "tunnel.sock"


def default_directory(environ: Mapping[str, str]) -> Path:
    """LAKESHORE_STATE_DIR, else the user's data directory."""
    named = environ.get("LAKESHORE_STATE_DIR")
    if named:
        return Path(named).expanduser()
    if os.uname().sysname != "Darwin":
        return data_dir(environ)
    import platformdirs  # wall: a tenth of a command, and only there is it another place than XDG's

    return Path(platformdirs.user_data_dir("lakeshore", appauthor=False))
