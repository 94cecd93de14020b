"""A daemon's private key on the disk, in a directory that is its owner's alone.

    <key_file>         the key in use: 32 secret bytes, base64url without padding, one line
    <key_file>.next    its successor, from before the server is told of it until the server has confirmed it
    <key_file>.json    where it is enrolled: server, worker id, key id, and a digest of the token that was spent

Rules: each is mode 600 and is replaced whole (`<name>.tmp`, synced, renamed). A key that others may read is not used,
as ssh does; nor is one of another length. A key that cannot be used is never replaced by a new one: that would be
another identity. The successor is on the disk before anybody hears of it, or a crash would leave the server with a
key that nobody has. One daemon at a time has a key file (`<key_file>.lock`): the rotation of one would strand another.
Reference: nymph/key-rotation, "Daemon configuration"; N-061, N-068, N-255…N-257.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..config.private_files import readable_by_others, sync_directory, write_private
from ..wire.signing import SEED_BYTES, SigningKey, to_text


class IdentityError(Exception):
    """There is no key to sign with: the daemon must not start, and never falls back to its bearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """Where a key is enrolled. `spent` is a digest of the enroll token that was spent for it."""

    server: str
    worker_id: str
    key_id: str
    spent: str | None = None


class KeyFile:
    """The files of one identity. Every method may block on the disk, and raises IdentityError."""

    def __init__(self, path: Path, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self.path = Path(os.path.realpath(path))
        self._entropy = entropy
        self._next = self._sibling("next")
        self._notes = self._sibling("json")
        self._lock: int | None = None

    def load_or_create(self) -> SigningKey:
        """The key, held for this process until `close`; on the first boot a new one."""
        self._hold()
        return self._load(self.path) or self._create(self.path)

    def close(self) -> None:
        """Let another daemon have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load_next(self) -> SigningKey | None:
        """The successor of a rotation that is not confirmed."""
        return self._load(self._next)

    def create_next(self) -> SigningKey:
        """A successor, on the disk when this returns."""
        return self._create(self._next)

    def promote_next(self) -> None:
        """The successor takes the key's place."""
        try:
            self._next.replace(self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise self._failed("cannot replace", self.path, error) from error

    def drop_next(self) -> None:
        """Forget the successor: the server has refused it."""
        try:
            self._next.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed("cannot delete", self._next, error) from error

    def replace(self) -> SigningKey:
        """A new key in the place of one that was revoked."""
        fresh = self._create(self.path)
        self.drop_next()
        return fresh

    def enrolled(self) -> Enrolled | None:
        """What was noted of the enrolment; None when there is nothing that can be read: the server knows better."""
        try:
            said = json.loads(self._notes.read_text("utf-8"))
            return Enrolled(**{name: said[name] for name in ("server", "worker_id", "key_id", "spent")})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def note(self, enrolled: Enrolled) -> None:
        """Keep what the server confirmed."""
        self._write(self._notes, json.dumps(asdict(enrolled), indent=1))

    def _create(self, path: Path) -> SigningKey:
        key = SigningKey(self._entropy(SEED_BYTES))
        self._write(path, to_text(key.seed))
        return key

    def _write(self, path: Path, text: str) -> None:
        try:
            write_private(path, text + "\n", beside=f"{path.name}.tmp")
        except OSError as error:
            raise self._failed("cannot write", path, error) from error

    def _load(self, path: Path) -> SigningKey | None:
        try:
            with path.open("rb") as file:
                text, about = file.read(200), os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("cannot read", path, error) from error
        if readable_by_others(about):
            raise IdentityError(
                f"{path} can be read by others (mode {about.st_mode & 0o777:o}), so this key is not used: `chmod 600 "
                f"{path}`, or delete it and enrol anew if somebody may have read it"
            )
        seed = _seed(text)
        if seed is None:
            raise IdentityError(
                f"{path} holds no private key ({SEED_BYTES} bytes in base64 on one line): put the right file in its "
                "place, or delete it and enrol anew"
            )
        return SigningKey(seed)

    def _hold(self) -> None:
        if self._lock is not None:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._sibling("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            try:  # a directory that we may not write: no rotation can replace the key there, so its own file will do
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                raise self._failed("cannot make a key in", self.path.parent, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise IdentityError(
                f"another daemon on this host uses the key {self.path}: give each daemon its own [identity] key_file"
            ) from None
        self._lock = fd

    def _sibling(self, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{ending}")

    def _failed(self, what: str, path: Path, error: OSError) -> IdentityError:
        return IdentityError(
            f"{what} {path}: {error.strerror or error}. Name a key file that this user may write in [identity] key_file"
        )


def _seed(text: bytes) -> bytes | None:
    """The secret bytes in base64url or standard base64, padded or not; None when it is not exactly a key."""
    plain = text.strip().rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        seed = base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return seed if len(seed) == SEED_BYTES else None
