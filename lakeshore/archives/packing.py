"""An archive of one commit: `git archive`, compressed. The same commit gives the same bytes.

No more than MAX_BYTES, and no more than an unpacked one may have: who keeps data in git hears of it here, not on a
worker.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
from pathlib import Path
from typing import IO, BinaryIO, Final

from ..wire.values import value
from .errors import ArchiveError
from .stamp import MAX_BYTES
from .trees import git_command, git_environment
from .unpacking import MOST_BYTES

_PIECE: Final = 1 << 20
_LEVEL: Final = 6


@value
class Packed:
    """The file that was written."""

    path: Path
    size: int
    sha256: str


def pack(top: Path, commit: str, into: Path, *, most: int = MAX_BYTES) -> Packed:
    """Write the archive of a commit of the tree at `top`. ArchiveError, and then there is no file."""
    argv = git_command(top, "archive", "--format=tar", commit)
    try:
        with (
            open(os.open(into, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b") as file,
            subprocess.Popen(  # noqa: S603  (git)
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=git_environment(),
            ) as git,
        ):
            assert git.stdout is not None
            try:
                _compress(git.stdout, file, commit, most)
            except BaseException:
                git.kill()
                raise
            _check(git.wait(), top, commit)
            size = file.tell()
            file.seek(0)
            return Packed(path=into, size=size, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        into.unlink(missing_ok=True)
        raise ArchiveError(f"no archive of {top} can be written: {error.strerror or error}") from error
    except BaseException:
        into.unlink(missing_ok=True)
        raise


def _check(status: int, top: Path, commit: str) -> None:
    if status != 0:
        raise ArchiveError(f"`git archive {commit[:12]}` failed in {top}: run it there to see why")


def _compress(source: IO[bytes], file: BinaryIO, commit: str, most: int) -> None:
    whole = 0
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as packed:
        while piece := source.read(_PIECE):
            whole += len(piece)
            packed.write(piece)
            if file.tell() > most or whole > MOST_BYTES:
                break
    if file.tell() > most or whole > MOST_BYTES:
        raise ArchiveError(
            f"the archive of {commit[:12]} has more than {most >> 20} MiB (unpacked {MOST_BYTES >> 20} MiB): keep data "
            "out of git, or out of the archive with `export-ignore` in .gitattributes"
        )
