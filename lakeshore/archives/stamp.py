"""What a call carries of the commit that it was made in: `Envelope.cfg["code"]`, and where its archive is.

    {remote, commit, archiveKey, storageName, size, sha256, roots}

The first four are the documented ones. `storageName` is null for the control plane's own archives. `roots` are the
directories of the tree that modules are imported from, "" for the tree itself; the first is that of the call's module.
A stamp is somebody else's word: it is read with care, and what it names is used only if its digest is right.
Reference: api/function-protocol.md, "The Envelope".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..wire.messages import MAX_PAYLOAD_BYTES
from ..wire.values import value
from .errors import ArchiveError

MARK: Final = b"archiveKey"
"""In the bytes of every Envelope that has a stamp."""
MAX_BYTES: Final = MAX_PAYLOAD_BYTES
"""Of an archive."""
USUAL_STORAGE: Final = "code-staging"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_OWN: Final = re.compile(r"code/(?:[0-9a-f]{40}|[0-9a-f]{64})/([0-9a-f]{64})\.tar\.gz")
_MOST_ROOTS: Final = 16


@value
class Stamp:
    """One archive of one commit. `size` is in bytes, None where nobody said it."""

    remote: str
    commit: str
    key: str
    sha256: str
    storage: str | None = None
    size: int | None = None
    roots: tuple[str, ...] = ("",)

    def as_cfg(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "remote": self.remote,
            "commit": self.commit,
            "archiveKey": self.key,
            "storageName": self.storage,
            "size": self.size,
            "sha256": self.sha256,
            "roots": list(self.roots),
        }


def key_of(commit: str, sha256: str) -> str:
    """The key of an archive, which says what is in it."""
    return f"code/{commit}/{sha256}.tar.gz"


def sha256_of(key: str) -> str | None:
    """The digest that such a key names; None for any other key."""
    found = _OWN.fullmatch(key)
    return None if found is None else found.group(1)


def read_stamp(cfg: Any) -> Stamp:
    """The stamp in `cfg["code"]`. ArchiveError for what is none."""
    if not isinstance(cfg, Mapping):
        raise _wrong("is no map")
    commit, key, remote = cfg.get("commit"), cfg.get("archiveKey"), cfg.get("remote")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise _wrong("names no commit")
    if not isinstance(key, str) or not 0 < len(key) <= 1024 or not {".", ".."}.isdisjoint(key.split("/")):
        raise _wrong("names no archive")
    storage, size, sha256 = cfg.get("storageName"), cfg.get("size"), cfg.get("sha256")
    if storage is not None and not isinstance(storage, str):
        raise _wrong("has a storageName that is no text")
    sha256 = sha256_of(key) if sha256 is None else sha256
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _wrong("names no sha256")
    if size is not None and (type(size) is not int or not 0 < size <= MAX_BYTES):
        raise _wrong(f"has a size that is not 1 to {MAX_BYTES} bytes")
    return Stamp(
        remote=remote if isinstance(remote, str) else "",
        commit=commit,
        key=key,
        sha256=sha256,
        storage=storage,
        size=size,
        roots=_roots(cfg.get("roots")),
    )


def check_digest(stamp: Stamp, sha256: str) -> None:
    """ArchiveError unless what came is what was stamped."""
    if sha256 != stamp.sha256:
        raise ArchiveError(f"it arrived damaged: its digest is {sha256[:12]}…, not {stamp.sha256[:12]}…")


def _roots(given: Any) -> tuple[str, ...]:
    if given is None:
        return ("",)
    if not isinstance(given, list | tuple) or not 0 < len(given) <= _MOST_ROOTS:
        raise _wrong("has no roots")
    for root in given:
        if not isinstance(root, str) or len(root) > 1024 or "\0" in root:
            raise _wrong("has a root that is no path")
        if root.startswith("/") or ".." in root.split("/"):
            raise _wrong(f"has the root {root!r:.80}, which leads out of its tree")
    return tuple(given)


def _wrong(why: str) -> ArchiveError:
    return ArchiveError(f"the call's code stamp {why}; submit it again with an up-to-date Lakeshore")
