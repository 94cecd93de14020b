"""A daemon becomes a newer program: fetched, checked, put in its file's place, and taken back if it does not come up.

    <dir>/.nymph-ota-<pid>-<ulid>.tmp    while it is fetched: hashed on the way, started once with --version
    <dir>/.<name>.previous               the program before, until the next update
    <dir>/.<name>.trial                  {version, argv, …} from the swap until the new program is up
    <dir>/.<name>.refused                {version}: it was tried here and did not come up

Rules: nothing takes the file's place that was not asked for by its sha256, or does not start. The swap is one rename in
the same directory. The new program is on trial: it is given a pipe on which it says that it is up; when it ends before,
`trial.py` puts the old one back and starts it. Where that is killed with it (systemd), the next start finds the trial
and does the same. A version that was refused is not tried again by itself, only by an order.
Reference: nymph/protocol, "ota_update"; N-170…N-177, N-406, N-408.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import trio

from .._self import started_path
from ..config.private_files import sync_directory
from . import trial
from .keeping.protocol import is_id
from .transport import Transport, TransportError

RELEASES: Final = "/v1/admin/nymph-releases"
MAX_BYTES: Final = 256 << 20
PATIENCE_S: Final = 60.0
"""For each wait of a download, and for a program to say its version."""
HANDED_OVER: Final = "LAKESHORE_NYMPH_TRIAL"
"""In the environment of a program on trial: the end of the pipe, and the process that watches."""
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}\b")
log = logging.getLogger("nymph.update")


class UpdateError(Exception):
    """Nothing was changed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The file that this daemon was started from, and with which arguments."""

    path: Path
    arguments: tuple[str, ...]

    @staticmethod
    def this(argv: Sequence[str] = sys.argv) -> Program | None:
        """None for one that was not started from its one file."""
        path = started_path()
        if path is None:
            return None
        arguments = tuple(argv[1:])
        if os.path.basename(path) == "nymph" and arguments[:1] == ("nymph",):
            arguments = arguments[1:]  # the file's own name says it again
        return Program(path=Path(path), arguments=arguments)

    def beside(self, name: str) -> Path:
        """A file of ours beside it."""
        return self.path.with_name(f".{self.path.name}.{name}")

    def command(self, *arguments: str) -> list[str]:
        """What starts it."""
        return [*_interpreter(self.path), str(self.path), *arguments]


# ---- fetch and swap


async def install(
    transport: Transport, program: Program | None, new_id: str, *, version: str, url: str | None, sha256: str | None
) -> None:
    """Put a version in the place of the program. UpdateError; then everything is as it was."""
    if program is None:
        raise UpdateError("this Lakeshore was not started from its one file: update it with what installed it")
    if url is None or sha256 is None:
        if _note(program.beside("refused")).get("version") == version:
            raise UpdateError(f"{version} was tried here and did not come up; `daemon update` tries it again")
        url, sha256 = await _look_up(transport, version)
    url = _ours(url)
    try:
        if await trio.to_thread.run_sync(_digest, program.path) == sha256:
            log.info("%s is in place already", version)
            return
        await _install(transport, program, new_id, version=version, url=url, sha256=sha256)
    except TransportError as error:
        raise UpdateError(f"{url}: {error}") from error
    except OSError as error:
        raise UpdateError(f"{error.filename or program.path}: {error.strerror or error}") from error


async def _install(transport: Transport, program: Program, new_id: str, *, version: str, url: str, sha256: str) -> None:
    fresh = program.path.with_name(f".nymph-ota-{os.getpid()}-{new_id}.tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            digest, size = hashlib.sha256(), 0
            async with transport.streamed(url, timeout_s=PATIENCE_S) as answer:
                async for piece in answer:
                    size += len(piece)
                    if size > MAX_BYTES:
                        raise UpdateError(f"{url}: more than {MAX_BYTES >> 20} MiB: no program is that large")
                    digest.update(piece)
                    file.write(piece)
            if digest.hexdigest() != sha256:
                raise UpdateError(f"{url}: sha256 mismatch (expected {sha256}, got {digest.hexdigest()})")
            file.flush()
            await trio.to_thread.run_sync(os.fsync, file.fileno())
        os.chmod(fresh, os.stat(program.path).st_mode & 0o7777 | 0o111)  # noqa: S103 - whoever may read it may run it
        await _try_out(fresh)
        await trio.to_thread.run_sync(_swap, program, fresh, version)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)


async def _try_out(fresh: Path) -> None:
    argv = [*_interpreter(fresh), str(fresh), "--version"]
    done: subprocess.CompletedProcess[bytes] | None = None
    with trio.move_on_after(PATIENCE_S):
        try:
            done = await trio.run_process(
                argv, stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True, check=False
            )
        except OSError as error:
            raise UpdateError(f"the new program does not start: {error.strerror or error}") from error
    if done is None:
        raise UpdateError(f"the new program did not say its version within {PATIENCE_S:g} s")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise UpdateError(f"the new program does not start: {said[-1]}")
    log.info("the new program starts: %s", done.stdout.decode(errors="replace").strip()[:100])


def _swap(program: Program, fresh: Path, version: str) -> None:
    previous, kept = program.beside("previous"), program.beside("previous.tmp")
    kept.unlink(missing_ok=True)
    try:
        os.link(program.path, kept)
    except OSError:  # a file system without links
        shutil.copy2(program.path, kept)
    os.replace(kept, previous)
    told = {"version": version, "program": str(program.path), "previous": str(previous)}
    program.beside("trial").write_text(json.dumps(told))
    os.replace(fresh, program.path)
    sync_directory(program.path.parent)


async def _look_up(transport: Transport, version: str) -> tuple[str, str]:
    """(URL, sha256) of a version, as the server's releases have it."""
    if not is_id(version.replace("+", "-")):
        raise UpdateError(f"{version!r:.80} is no version")
    url = f"{RELEASES}/{version}"
    try:
        said = (await transport.get(f"{url}.sha256", max_body=1024)).decode("ascii", "replace")
    except TransportError as error:
        raise UpdateError(f"no release {version}: {error}") from error
    found = _DIGEST.match(said)
    if found is None:
        raise UpdateError(f"{url}.sha256 does not begin with a sha256")
    return url, found.group().lower()


def _ours(url: str) -> str:
    """A release of a server is fetched from our own server, by whichever address that is known to others."""
    path = urlsplit(url).path
    return path if path.startswith(f"{RELEASES}/") else url


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _interpreter(path: Path) -> list[str]:
    """Ours for an archive, whatever its first line finds on this host; none for another kind of program."""
    return [sys.executable] if zipfile.is_zipfile(path) else []


# ---- the trial


def become(program: Program) -> NoReturn:
    """Become what lies there now, watched until it is up. OSError when it cannot be."""
    again = [] if _systemd_restarts() else _old(program)
    ours, theirs = os.pipe()
    watcher = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-I", "-S", trial.__file__, str(ours), str(program.beside("trial")), *again],
        pass_fds=[ours],
        start_new_session=True,
    )
    os.close(ours)
    os.set_inheritable(theirs, True)
    os.environ[HANDED_OVER] = f"{theirs}:{watcher.pid}"
    argv = program.command(*program.arguments)
    try:
        os.execv(argv[0], argv)  # noqa: S606 - as above
    finally:
        os.close(theirs)


def _systemd_restarts() -> bool:
    """Whether this very process is a service's. What runs in a service's terminal has its variables, too."""
    pid = str(os.getpid())
    return "INVOCATION_ID" in os.environ and os.environ.get("SYSTEMD_EXEC_PID", pid) == pid


def _old(program: Program) -> list[str]:
    """How the program before is started again: it takes the place of the file, and its kind is known."""
    return [*_interpreter(program.beside("previous")), str(program.path), *program.arguments]


class Trial:
    """A program's own end of its trial. Nothing of it does anything where there is none."""

    def __init__(self, program: Program | None) -> None:
        self._program = program
        handed = os.environ.pop(HANDED_OVER, "")
        self._pipe: int | None = None
        self._watcher = 0
        if re.fullmatch(r"[0-9]+:[0-9]+", handed):
            pipe, watcher = map(int, handed.split(":"))
            with contextlib.suppress(OSError):
                os.set_inheritable(pipe, False)
                self._pipe, self._watcher = pipe, watcher

    def failed_before(self) -> bool:
        """Whether the program was started, ended before it was up, and nobody has put the old one back."""
        return self._pipe is None and self._program is not None and self._program.beside("trial").exists()

    def roll_back(self) -> None:
        """Put the old one back and become it; returns where it cannot be."""
        assert self._program is not None, "asked only where `failed_before`"
        argv = _old(self._program)
        if trial.put_back(str(self._program.beside("trial"))):
            os.execv(argv[0], argv)  # noqa: S606 - it ran here before

    def is_up(self) -> None:
        """The new program stays."""
        if self._pipe is None:
            return
        pipe, self._pipe = self._pipe, None
        assert self._program is not None, "only a program is handed over"
        with contextlib.suppress(OSError):
            self._program.beside("trial").unlink(missing_ok=True)
            self._program.beside("refused").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.write(pipe, trial.UP)
        os.close(pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._watcher, 0)  # it ends at once


def _note(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
