"""The state directory: one server's files, its lock and its secrets.

    <dir>/            0700, owned by the server's user
      lakeshore.db    journal/  blobs/  logs/     the plane
      records.db                           namespaces, tokens, daemons' keys
      execs.db        exec-logs/           commands on workers, and what they print
      releases/                            files that daemons update to
      code/                                archives of code
      secrets.key                          32 random bytes, base64; SECRETS_KEY wins
      secrets.key.next                     while secrets move to another key (`rekeying.py`)
      admin.token                          minted once; LAKESHORE_ADMIN_TOKEN is accepted besides it
      server.lock                          held by the one server of this directory, with its pid inside
      server.url                           where that server listens, while it does
      tunnel.sock                          where tunnels from other machines end: a token is needed there, always

Secrets are 0600, appear whole or not at all, and are never replaced.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..plane.directories import make_directories
from .here import ADMIN, LOCK, URL, default_directory, tunnel_socket

KEY_BYTES = 32
_KEY = "secrets.key"
_NEXT_KEY = "secrets.key.next"


class StateError(Exception):
    """The state directory cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An opened, locked state directory.

    `next_key` is the one that secrets are moving to, `previous_keys` what SECRETS_KEY_PREVIOUS names;
    `is_key_given`: the key is SECRETS_KEY.
    """

    root: Path
    admin_token: str
    secrets_key: bytes
    lock_fd: int
    next_key: bytes | None = None
    previous_keys: tuple[bytes, ...] = ()
    is_key_given: bool = False

    def __repr__(self) -> str:
        return f"State(root={str(self.root)!r})"

    @property
    def database(self) -> Path:
        """The plane's SQLite file; `journal/` and `blobs/` are beside it."""
        return self.root / "lakeshore.db"

    @property
    def records(self) -> Path:
        """The SQLite file of namespaces and tokens."""
        return self.root / "records.db"

    @property
    def execs(self) -> Path:
        """The SQLite file of commands; what they print is in `exec-logs` beside it."""
        return self.root / "execs.db"

    @property
    def admin_token_file(self) -> Path:
        """Where a person on this machine finds the admin token."""
        return self.root / ADMIN

    def key_for(self, purpose: str) -> bytes:
        """A key of its own for each purpose, derived from the secrets key."""
        return derived(self.secrets_key, purpose)

    @property
    def tunnel_socket(self) -> Path:
        """Where `ssh -R` from another machine ends."""
        return tunnel_socket(self.root)

    def announce(self, url: str) -> None:
        """Write down where this server listens. Raises StateError."""
        path = self.root / URL
        partial = path.with_name(f".{path.name}.part")
        try:
            partial.write_text(url + "\n", "utf-8")
            partial.replace(path)
        except OSError as error:
            raise _unusable(self.root, error) from error

    def close(self) -> None:
        """Let the next server in."""
        with contextlib.suppress(OSError):
            (self.root / URL).unlink(missing_ok=True)
            self.tunnel_socket.unlink(missing_ok=True)
        os.close(self.lock_fd)


def open_state(directory: Path | None, environ: Mapping[str, str]) -> State:
    """Make, check and lock the directory; mint what is missing. Raises StateError."""
    root = (directory.expanduser() if directory is not None else default_directory(environ)).absolute()
    _make(root)
    lock_fd = _lock(root)
    try:
        given = environ.get("SECRETS_KEY") or None
        key = _secrets_key(root / _KEY, given)
        older = environ.get("SECRETS_KEY_PREVIOUS", "").replace(",", " ").split()
        return State(
            root=root,
            admin_token=_admin_token(root / ADMIN),
            secrets_key=key,
            next_key=_next_key(root / _NEXT_KEY, key),
            previous_keys=tuple(decode_secrets_key(text, "SECRETS_KEY_PREVIOUS") for text in older),
            is_key_given=given is not None,
            lock_fd=lock_fd,
        )
    except BaseException:
        os.close(lock_fd)
        raise


def derived(key: bytes, purpose: str) -> bytes:
    """A key for one purpose, made of a secrets key."""
    return hmac.digest(key, purpose.encode(), hashlib.sha256)


def write_next_key(root: Path, key: bytes) -> None:
    """Write down the secrets key to come, durably. Raises StateError."""
    try:
        _write(root / _NEXT_KEY, base64.b64encode(key).decode())
    except OSError as error:
        raise _unusable(root, error) from error


def replace_secrets_key(root: Path) -> None:
    """The key to come takes the place of the one that is, durably. Raises StateError."""
    try:
        (root / _NEXT_KEY).replace(root / _KEY)
        _sync(root)
    except OSError as error:
        raise _unusable(root, error) from error


def _make(root: Path) -> None:
    try:
        make_directories(root)
        found = root.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise StateError(f"the state directory {root} is not a directory; choose another with --state-dir")
        if found.st_uid != os.geteuid() and os.geteuid() != 0:
            raise StateError(
                f"the state directory {root} belongs to user {found.st_uid}, not to you ({os.geteuid()}); "
                "run as that user, or choose another with --state-dir"
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            root.chmod(0o700)
    except OSError as error:
        raise _unusable(root, error) from error


def _lock(root: Path) -> int:
    path = root / LOCK
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode("ascii", "replace").strip()
        os.close(fd)
        raise StateError(
            f"another lakeshore serve (pid {holder or 'unknown'}) is using {root}; "
            "stop it, or choose another directory with --state-dir"
        ) from None
    except OSError as error:
        os.close(fd)
        raise StateError(
            f"cannot lock {path}: {error.strerror}; put the state directory on a local disk (--state-dir)"
        ) from error
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(fd)
        raise _unusable(root, error) from error
    return fd


def _admin_token(path: Path) -> str:
    token = _read_or_mint(path, lambda: secrets.token_urlsafe(KEY_BYTES)).strip()
    if len(token) < 16 or not token.isascii():
        raise StateError(f"{path} holds no usable token; delete it and start again to mint another")
    return token


def _secrets_key(path: Path, given: str | None) -> bytes:
    if given:
        return decode_secrets_key(given, "SECRETS_KEY")
    text = _read_or_mint(path, lambda: base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode())
    return decode_secrets_key(text, str(path))


def _next_key(path: Path, key: bytes) -> bytes | None:
    """The key that secrets move to; the file goes when it has become the key."""
    try:
        found = decode_secrets_key(path.read_text("ascii", errors="replace"), str(path))
        if found != key:
            return found
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path.parent, error) from error
    return None


def decode_secrets_key(text: str, name: str) -> bytes:
    """The 32 bytes of a base64 key. Raises StateError, which never shows the key."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise StateError(f"{name} is not base64; make one with: openssl rand -base64 32") from error
    if len(key) != KEY_BYTES:
        raise StateError(f"{name} decodes to {len(key)} bytes, not {KEY_BYTES}; make one with: openssl rand -base64 32")
    return key


def _read_or_mint(path: Path, mint: Callable[[], str]) -> str:
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o600)
            return path.read_text("ascii", errors="replace")
        value = mint()
        _write(path, value)
    except OSError as error:
        raise _unusable(path.parent, error) from error
    return value


def _write(path: Path, value: str) -> None:
    """A file of one line that appears whole, for its owner alone."""
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unusable(root: Path, error: OSError) -> StateError:
    return StateError(
        f"cannot write to the state directory {root}: {error.strerror or error}; "
        "make it writable, or choose another with --state-dir or LAKESHORE_STATE_DIR"
    )
