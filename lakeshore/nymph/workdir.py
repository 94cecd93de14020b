"""The directory of one invocation, to the letter of the contract that every runner follows.

    <root>/<invocation id>/     made by the daemon, 0700, its owner the user that the job runs as
        args.msgpack            what was submitted, verbatim
        result.msgpack          left by a job that succeeded
        error.json              left by one that failed: {"type", "message", "traceback"}
        frames/                 what a body yields, as it comes (`frames.py`)
        code.tar.gz             the commit of the call, for a job that cannot read the daemon's copy (`code.py`)

After a success it is removed. After a failure it stays to be looked at, and what the job printed lies in it as well, as
`stdout.log` and `stderr.log`. An attempt starts in an empty directory: what an earlier one left is removed first.

What a job left is read as what it is, somebody else's: no link is followed, nothing but a plain file is read, and no
more of it than is allowed. Reference: nymph/daemons.md, "Shared workdir contract".
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .keeping.protocol import is_id

ARGS, RESULT, ERROR, FRAMES, CODE = "args.msgpack", "result.msgpack", "error.json", "frames", "code.tar.gz"
OUTPUTS = {"stdout": "stdout.log", "stderr": "stderr.log"}
MAX_PAYLOAD = 100 << 20
"""Bytes of arguments, and of a result."""
MAX_ERROR = 1 << 20
MAX_TRACEBACK = 256 << 10


class WorkdirError(Exception):
    """The directory cannot be made, or what was left in it cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of this host."""

    name: str
    uid: int
    gid: int
    home: str

    @staticmethod
    def named(name: str) -> Account:
        """WorkdirError when there is no such user."""
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise WorkdirError(f"as_user: this host has no user {name!r}") from None
        return Account(name=found.pw_name, uid=found.pw_uid, gid=found.pw_gid, home=found.pw_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workdir:
    """An invocation's directory. `create` makes it; `at` is one that an earlier daemon made."""

    path: Path

    @staticmethod
    def at(root: Path, invocation_id: str) -> Workdir:
        """WorkdirError for an id that is no plain name."""
        if not is_id(invocation_id):
            raise WorkdirError(f"{invocation_id!r} cannot name a directory: letters, digits, '-', '_' and '.'")
        return Workdir(path=root / invocation_id)

    @staticmethod
    def create(
        root: Path,
        invocation_id: str,
        args: bytes | Path | None,
        owner: Account | None = None,
        archive: Path | None = None,
    ) -> Workdir:
        """Make it, empty but for `args` (bytes, or a file on the same disk that is moved there; None: a script has
        none) and a copy of `archive`. `owner` is another user than the daemon's. WorkdirError says what cannot be done.
        """
        made = Workdir.at(root, invocation_id)
        size = len(args) if isinstance(args, bytes) else 0 if args is None else args.stat().st_size
        if size > MAX_PAYLOAD:
            raise WorkdirError(f"arguments of {size} bytes: the limit is {MAX_PAYLOAD} (100 MiB)")
        try:
            try:
                made.path.mkdir(0o700)
            except (FileExistsError, FileNotFoundError, NotADirectoryError):
                made_root(root)
                made.remove()
                made.path.mkdir(0o700)
            if isinstance(args, Path):
                os.replace(args, made.path / ARGS)
                os.chmod(made.path / ARGS, 0o600)
            elif args is not None:
                fd = os.open(made.path / ARGS, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with open(fd, "wb") as file:
                    file.write(args)
            if archive is not None:
                _copy(archive, made.path / CODE)
            if owner is not None:
                made.give_to(owner)
        except OSError as error:
            made.remove()
            raise WorkdirError(f"the working directory {made.path} cannot be made: {_why(error)}") from error
        return made

    def give_to(self, owner: Account) -> None:
        """The job's user may write there. Only root gives away; another daemon opens the directory to those that know
        its name, and nobody can list those. OSError when it cannot be.
        """
        if owner.uid == os.geteuid():
            return
        if os.geteuid() == 0:
            for path in (*self.path.iterdir(), self.path):
                os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
            return
        for path in self.path.iterdir():
            path.chmod(0o644)
        self.path.chmod(0o777)

    def result(self) -> bytes:
        """The packed value. WorkdirError when it is absent or cannot be one."""
        return _left(self.path / RESULT, MAX_PAYLOAD)

    def error(self) -> dict[str, Any] | None:
        """`{type, message, traceback}` as the job told it; None when it told nothing that can be read."""
        try:
            told = json.loads(_left(self.path / ERROR, MAX_ERROR))
        except (WorkdirError, ValueError, RecursionError):
            return None
        if not isinstance(told, dict) or not isinstance(told.get("type"), str):
            return None
        trace = told.get("traceback")
        return {
            "type": told["type"],
            "message": str(told.get("message", "")),
            "traceback": trace[-MAX_TRACEBACK:] if isinstance(trace, str) else "",
        }

    def keep(self, outputs: Path) -> None:
        """After a failure: what the job printed comes to lie beside what it left."""
        for name, kept in OUTPUTS.items():
            target = self.path / kept
            try:
                if (outputs / name).stat().st_size:
                    os.replace(outputs / name, target)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    _copy(outputs / name, target)

    def result_size(self) -> int:
        """In bytes; 0 when there is none."""
        try:
            return os.lstat(self.path / RESULT).st_size
        except OSError:
            return 0

    def remove_plain(self) -> bool:
        """What nearly every job leaves. False when there is more, for `remove`."""
        path = str(self.path)
        try:
            for name in (ARGS, RESULT):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{path}/{name}")
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """After a success, and before another attempt. What is too deep for us is `rm`'s affair, and what a job made
        unremovable that of `sudo -n`. OSError when it cannot be tried.
        """
        with contextlib.suppress(RecursionError):
            shutil.rmtree(self.path, onerror=_unlock)
        for helper in ((), ("sudo", "-n")):
            if not os.path.lexists(self.path):
                return
            if helper and (os.geteuid() == 0 or shutil.which(helper[0]) is None):
                return
            argv = [*helper, "rm", "-rf", "--one-file-system", "--", str(self.path)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)  # noqa: S603


def made_root(root: Path) -> None:
    """The place of all of them: others may pass through to a directory of theirs (root's daemon runs jobs as other
    users), and list nothing. OSError when it cannot be made.
    """
    if not root.is_dir():
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        root.chmod(0o711)


def _left(path: Path, most: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise WorkdirError(f"the job left no {path.name}: {_why(error)}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise WorkdirError(f"{path.name} is not a file")
        if found.st_size > most:
            raise WorkdirError(f"{path.name} has {found.st_size} bytes: the limit is {most} ({most >> 20} MiB)")
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)


def _copy(source: Path, target: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(source, "rb") as old, open(os.open(target, flags, 0o600), "wb") as new:
        shutil.copyfileobj(old, new)


def _unlock(_function: Any, path: str, failure: Any) -> None:
    """A job may have taken the rights from its own directories."""
    if isinstance(failure[1], FileNotFoundError):
        return
    parent = os.path.dirname(path)
    try:
        for folder in (parent, path):
            if not os.path.islink(folder) and os.path.isdir(folder):
                os.chmod(folder, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        return


def _why(error: OSError) -> str:
    return error.strerror or str(error)
