"""How one file gets to a host: by rsync where both sides have it, else through ssh's standard input.

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

from .errors import RemoteFailure
from .ssh import Connection, Done, explain

_SAFE = re.compile(r"/[A-Za-z0-9/_.-]+")
_LIMIT_S = 3600.0
_FULL = ("no space left on device", "disk quota exceeded")
_SSH_FAILED = (12, 30, 255)


def copy(connection: Connection, source: Path, target: str, *, rsync_there: bool, show: bool) -> str:
    """Put `source` at the path `target` there; what it was done with, `rsync` or `ssh`. RemoteFailure.

    `show` lets rsync draw its progress on stderr.
    """
    if not _SAFE.fullmatch(target):
        raise ValueError(f"{target!r} is no path of ours")
    alias = connection.place.alias
    if rsync_there and shutil.which("rsync") is not None and ":" not in alias:
        _by_rsync(connection, source, target, show=show)
        return "rsync"
    # noclobber: what lies there under this name is not ours
    done = connection.pipe(source, f"sh -c 'umask 077; set -C; exec cat >{target}'", timeout_s=_LIMIT_S)
    if done.code != 0:
        raise _failed(alias, target, done, by="ssh")
    return "ssh"


def _by_rsync(connection: Connection, source: Path, target: str, *, show: bool) -> None:
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
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace")
        raise _failed(alias, target, Done(code=done.returncode, out="", err=said), by="rsync")


def _failed(alias: str, target: str, done: Done, *, by: str) -> RemoteFailure:
    lowered = done.err.lower()
    if any(words in lowered for words in _FULL):
        return RemoteFailure(
            f"{alias}: no space is left for {target}", hint=f"make room in {os.path.dirname(target)} there"
        )
    if done.code in _SSH_FAILED and by == "ssh":
        return explain(alias, done.code, done.err)
    lines = [line for line in done.err.splitlines() if line.strip()]
    return RemoteFailure(
        f"{by} to {alias} exited with code {done.code}" + (f": {lines[0].strip()}" if lines else ""),
        hint=f"`ssh {alias} true` must work without printing anything",
    )
