"""The saved login, `auth.yml`: a mapping of `server`, `namespace` and `token`, mode 600.

Rule: the token in it belongs to the server in it and goes nowhere else (`SavedLogin.token_for`).
Reference: api/auth-and-secrets.md; cli/installation.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import ConfigError
from .paths import auth_file

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedLogin:
    """What `auth login` left behind. `token` is None on a server that asks for none."""

    path: Path
    server: str
    namespace: str
    token: str | None

    def is_for(self, url: str) -> bool:
        """Whether `url` is the server that this login was made for."""
        return same_server(self.server, url)

    def token_for(self, url: str) -> str | None:
        """The token, when `url` is its own server; else None."""
        return self.token if self.is_for(url) else None

    def __repr__(self) -> str:
        return f"SavedLogin({str(self.path)!r}, server={self.server!r}, namespace={self.namespace!r})"


def read_saved_login(environ: Mapping[str, str] = os.environ) -> SavedLogin | None:
    """The saved login, or None where nobody logged in. ConfigError for a file that cannot be read."""
    path = auth_file(environ)
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}; remove it and log in again") from error
    import yaml  # wall: only who has logged in pays for it

    try:
        found: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise ConfigError(f"{path}{line}: not YAML; remove it and log in again") from None  # its text holds the token
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must be a mapping of server, namespace and token; remove it and log in again")
    return SavedLogin(
        path=path,
        server=_text(path, found, "server"),
        namespace=_text(path, found, "namespace", "default"),
        token=_text(path, found, "token", "") or None,
    )


def same_server(one: str, other: str) -> bool:
    """Whether two URLs lead to the same server: scheme, host, port and path prefix. Malformed ones do not."""
    place = _place(one)
    return place is not None and place == _place(other)


def _place(url: str) -> tuple[str, str, int, str] | None:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/")


def _text(path: Path, found: dict[Any, Any], key: str, default: str | None = None) -> str:
    value = found.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None):
        got = "nothing" if value is None else type(value).__name__
        raise ConfigError(f"{path}: {key} — required, a string (got {got}); log in again")
    return value
