"""Payloads of 64 KiB and more as files: write, sync, rename, sync the directory (K-20).

A key is a relative path that is made here or checked here; it never leaves the root. A name carries the content's
sha256, so that writing the same payload twice is harmless and two payloads never share a file.

A file that no row names may be about to be named: whoever is about to name it touches it first, and what was written or
touched lately is never collected. Touching and collecting exclude each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
from io import FileIO
from pathlib import Path

from .contract import INLINE_BYTES, BlobRef, Payload, SyncFailed
from .directories import KeptDirectories, sync_directory

log = logging.getLogger(__name__)

_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_KEY = re.compile(rf"{_PART}(/{_PART})*")
_ADVISES = hasattr(os, "posix_fadvise")  # not on macOS
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BlobDamaged(OSError):
    """A blob's file is not what was stored; it is never served."""


class Blobs:
    """The blob directory. With `root=None` blobs live in memory."""

    def __init__(self, root: Path | None, *, sync: bool = True) -> None:
        self.root = root
        self._sync = sync
        self._memory: dict[str, bytes] = {}
        self._lock = threading.Lock()
        if root is not None:
            root.mkdir(mode=0o700, exist_ok=True)
            self._directories = KeptDirectories(root, sync=sync)

    def keep(self, invocation_id: str, kind: str, data: bytes) -> Payload:
        """`data` itself when it is small, else the reference of the file that now holds it, durably."""
        if len(data) < INLINE_BYTES or self.root is None:
            return data
        digest = hashlib.sha256(data).hexdigest()
        safe = hashlib.sha256(invocation_id.encode()).hexdigest()
        name = invocation_id if _ID.fullmatch(invocation_id) else safe[:32]
        return self.put(f"inline/{safe[:2]}/{name}.{digest[:16]}.{kind}", data, digest)

    def put(self, key: str, data: bytes, digest: str | None = None) -> BlobRef:
        """Write a blob durably under `key`, which names its content. `digest` is its sha256 in hex, if it is known."""
        ref = BlobRef(key=key, size=len(data), sha256=digest or hashlib.sha256(data).hexdigest())
        if self.root is None:
            self._memory[key] = data
            return ref
        path = self.path(key)
        partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            with open(self.create(partial), "wb", buffering=0) as file:
                _write_all(file, data)
                if self._sync:
                    _sync_file(file.fileno(), partial)
            os.replace(partial, path)
            self.keep_name(key)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
            raise
        return ref

    def get(self, payload: Payload) -> bytes:
        """The bytes of a payload, wherever they are. Raises FileNotFoundError when the blob is gone, BlobDamaged."""
        if isinstance(payload, bytes):
            return payload
        if self.root is None:
            return self._memory[payload.key]
        path = self.path(payload.key)
        data = path.read_bytes()
        if len(data) != payload.size or hashlib.sha256(data).hexdigest() != payload.sha256:
            message = f"{path} is damaged: its {len(data)} bytes are not the {payload.size} that were stored"
            log.error("%s", message)
            raise BlobDamaged(message)
        return data

    def drop(self, key: str) -> None:
        """Delete a blob, if it is there."""
        if self.root is None:
            self._memory.pop(key, None)
            return
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()

    def create(self, partial: Path) -> int:
        """A new file for writing, and its directories. `keep_name` makes all of them stay, also after a power cut: once
        the content is on the disk, so that one commit of the file system's journal has what one sync each would write.
        """
        with self._lock:
            partial.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def keep_name(self, key: str) -> None:
        """Make the name of a blob durable, also one that was there: whoever wrote it may not have come to that."""
        if self._sync:
            path = self.path(key)
            sync_directory(path.parent)
            self._directories.keep(path.parent)

    def uncache(self, key: str) -> None:
        """The kernel need not keep the pages of a file that is on the disk: nobody is about to read it. They are warm,
        so the next file is written into them; a page that a virtual machine never used costs 11 µs, a megabyte 3 ms.
        FileNotFoundError when it is gone.
        """
        if not _ADVISES:
            return
        fd = os.open(self.path(key), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def touch(self, key: str) -> None:
        """A row is about to name this blob. FileNotFoundError when it is gone."""
        path = self.path(key)
        with self._lock:
            os.utime(path)

    def collect(self, path: Path, before: float) -> bool:
        """Delete a file that no row names, unless it was written or touched since `before`; whether it is gone.

        Directories that it leaves empty go with it.
        """
        assert self.root is not None
        with self._lock:
            try:
                if path.stat().st_mtime >= before:
                    return False
                path.unlink()
            except FileNotFoundError:
                return True
            for parent in path.parents:
                if parent == self.root:
                    break
                try:
                    parent.rmdir()
                except OSError:  # not empty
                    break
                self._directories.forget(parent)
        return True

    def path(self, key: str) -> Path:
        """The file of a key. Raises ValueError for a key that could leave the root."""
        if self.root is None:
            raise ValueError("this plane keeps its blobs in memory")
        if len(key) > 512 or not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a blob key")
        return self.root / key


def start_writing(fd: int, start: int, length: int) -> None:
    """Have the kernel begin with what was just written, where it does so: the sync then has less to wait for."""
    if _ADVISES:
        with contextlib.suppress(OSError):  # advice that a kernel or a sandbox does not take changes nothing
            os.posix_fadvise(fd, start, length, os.POSIX_FADV_DONTNEED)  # dirty pages are queued for the disk, and stay


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _sync_file(fd: int, path: Path) -> None:
    try:
        os.fsync(fd)
    except OSError as exc:
        raise SyncFailed(f"syncing {path} failed: {exc}") from exc
