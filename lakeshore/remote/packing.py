"""A directory of the user's code as one file to send: what git, caches and virtual environments hold stays here.

Links to files are sent as the files, links to directories are not followed; what is no file (sockets, devices) is left
out, and so is the program, which goes by itself. At most `LARGEST` bytes: who names a home directory by mistake hears
of it.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import RemoteFailure

LARGEST = 512 << 20
LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
        *(".cache", ".tox", ".nox", ".venv", "venv", "node_modules", ".ipynb_checkpoints", ".eggs"),
    }
)
_COMPILED = (".pyc", ".pyo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What was packed: where it is, how many files, how many bytes they have unpacked."""

    path: Path
    files: int
    size: int


def pack(directory: Path, into: Path, *, program: Path | None = None) -> Packed:
    """Write the archive `into`, without the file `program`. Raises RemoteFailure."""
    files = size = 0
    try:
        with tarfile.open(into, "x:gz", compresslevel=3, dereference=True) as archive:
            for path, name in _files(directory):
                if program is not None and os.path.samefile(path, program):
                    continue
                info = archive.gettarinfo(path, name)
                size += info.size
                files += 1
                if size > LARGEST:
                    raise RemoteFailure(
                        f"{directory} holds more than {LARGEST >> 20} MiB of files",
                        hint="name the directory of the modules alone; data travels otherwise",
                    )
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                with open(path, "rb") as file:
                    archive.addfile(info, file)
    except OSError as error:
        raise RemoteFailure(f"cannot read {error.filename or directory}: {error.strerror or error}") from error
    if not files:
        raise RemoteFailure(f"there is nothing to send in {directory}", hint="name the directory of your modules")
    return Packed(path=into, files=files, size=size)


def _files(directory: Path) -> Iterator[tuple[str, str]]:
    """(path, name in the archive) of everything that is sent, in a fixed order."""

    def unreadable(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(directory, onerror=unreadable):
        kept = (one for one in folders if one not in LEFT_OUT and not os.path.exists(f"{place}/{one}/pyvenv.cfg"))
        folders[:] = sorted(kept)
        for name in sorted(names):
            path = os.path.join(place, name)
            if name.endswith(_COMPILED) or not _is_file(path):
                continue
            yield path, os.path.relpath(path, directory)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:  # a link that leads nowhere
        return False
