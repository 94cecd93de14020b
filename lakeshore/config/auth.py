"""The saved login, `auth.yml`: a mapping of `server`, `namespace` and `token`, mode 600.

Rules: the token in it belongs to the server in it and goes nowhere else (`SavedLogin.token_for`). A file of ours that
others may read is not used, as ssh does with a key: what it holds may be known by now, and only its owner can tell. It
is written whole or not at all, and never readable by others.
Reference: api/auth-and-secrets.md; cli/installation.md.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import ConfigError
from .paths import auth_file
from .private_files import write_private

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
    """The saved login, or None where nobody logged in. ConfigError for a file that cannot be read or used."""
    path = auth_file(environ)
    try:
        with path.open(encoding="utf-8") as file:
            text, about = file.read(), os.fstat(file.fileno())
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
    except (ValueError, LookupError, AttributeError, RecursionError):  # a date such as 2026-02-31
        raise ConfigError(f"{path}: not YAML; remove it and log in again") from None
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must be a mapping of server, namespace and token; remove it and log in again")
    saved = SavedLogin(
        path=path,
        server=_text(path, found, "server"),
        namespace=_text(path, found, "namespace", "default"),
        token=_text(path, found, "token", "") or None,
    )
    mode = stat.S_IMODE(about.st_mode)
    if saved.token and mode & 0o077 and about.st_uid == os.getuid():
        raise ConfigError(
            f"{path} can be read by others (mode {mode:o}), so its token is not used: "
            f"`chmod 600 {path}`, or log in again if somebody may have read it"
        )
    return saved


def write_saved_login(
    server: str, namespace: str, token: str | None, environ: Mapping[str, str] = os.environ
) -> SavedLogin:
    """Save a login in the place of any other. ConfigError when it cannot be written."""
    import yaml  # wall: as above

    path = auth_file(environ)
    saved = SavedLogin(path=path, server=server, namespace=namespace, token=token)
    content = {"server": server, "namespace": namespace, **({"token": token} if token else {})}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=10_000)
    try:
        write_private(path, text, beside=f".{Path(os.path.realpath(path)).name}.{os.getpid()}.part")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; XDG_CONFIG_HOME names another place"
        ) from error
    return saved


def forget_saved_login(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Delete the saved login, readable or not; its path, or None when there was none. ConfigError when it stays."""
    path = auth_file(environ)
    try:
        Path(os.path.realpath(path)).unlink()
        if path.is_symlink():
            path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot delete {path}: {error.strerror or error}") from error
    return path


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
