"""How one file gets to a host: by rsync where both sides have it, else through ssh's standard input.

rsync fails where a login prints something, or a wrapper is in its way; ssh's standard input does not mind.

Reference: nymph/install-remote-daemon.md, step 2.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from .bounded import Done
from .errors import RemoteFailure
from .ssh import Connection, explain

_SAFE = re.compile(r"/[A-Za-z0-9/_.-]+")
_LIMIT_S = 3600.0
_FULL = ("no space left on device", "disk quota exceeded")


def copy(connection: Connection, source: Path, target: str, *, rsync_there: bool, show: bool) -> str:
    """Put `source` at the path `target` there; what it was done with, `rsync` or `ssh`. RemoteFailure.

    `show` lets rsync draw its progress on stderr.
    """
    if not _SAFE.fullmatch(target):
        raise ValueError(f"{target!r} is no path of ours")
    alias = connection.place.alias
    if rsync_there and shutil.which("rsync") is not None and ":" not in alias:
        done = _by_rsync(connection, source, target, show=show)
        if done.code == 0:
            return "rsync"
        if _is_full(done):
            raise _failed(alias, target, done)
    # noclobber: what lies there under this name is not ours
    done = connection.pipe(source, f"sh -c 'umask 077; set -C; exec cat >{target}'", timeout_s=_LIMIT_S)
    if done.code != 0:
        raise _failed(alias, target, done)
    return "ssh"


def _by_rsync(connection: Connection, source: Path, target: str, *, show: bool) -> Done:
    alias = connection.place.alias
    # rsync splits its -e by blanks, in a way of its own: a script has no such trouble.
    with tempfile.NamedTemporaryFile("w", prefix="lakeshore-rsh-", dir="/tmp", encoding="utf-8") as shell:
        shell.write(f'exec {shlex.join(connection.program())} "$@"\n')
        shell.flush()
        command = ["rsync", "-a", "-v", "--progress", "--chmod=F700", "-e", f"sh {shell.name}"]
        try:
            done = subprocess.run(  # noqa: S603  (our own words; the alias was looked at)
                [*command, "--", os.path.abspath(source), f"{alias}:{target}"],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=2 if show else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise RemoteFailure(f"rsync to {alias} did not end within {_LIMIT_S:g} s") from error
    return Done(code=done.returncode, out="", err=done.stderr.decode("utf-8", "replace"))


def _is_full(done: Done) -> bool:
    return any(words in done.err.lower() for words in _FULL)


def _failed(alias: str, target: str, done: Done) -> RemoteFailure:
    if _is_full(done):
        return RemoteFailure(
            f"{alias}: no space is left for {target}", hint=f"make room in {os.path.dirname(target)} there"
        )
    return explain(alias, done.code, done.err)
