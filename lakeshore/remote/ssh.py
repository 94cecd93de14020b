"""One host over ssh: its command lines, one shared connection, and what its failures mean.

Rules: an alias goes to ssh as one argument, after `--`, and so does nothing else of a user's; what is run there is a
script of ours on the standard input of `bash -s`, whatever the login shell is. Nobody is asked for a password or about
a host key (BatchMode). The connection is made once and shared; where that is refused each command makes its own.
Reference: nymph/install-remote-daemon.md, "What it does".
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from .bounded import MOST, Done, TooMuch, run
from .errors import RemoteFailure, SshFailure
from .scripts import Report, compose, report_of

CONNECT_S = 20
_IDLE_S = 60
"""How long a shared connection outlives a program that was killed."""
_SOCKET_NAME = 108 - len(".XXXXXXXXXXXXXXXX")  # ssh makes the socket under a longer name first
_REMOTE_HOST_SAID = 255
_UNKNOWN_KEY = "host key verification failed"

_MEANINGS = (  # what ssh says, in lower case -> what to do
    (
        "remote host identification has changed",
        "its host key is another one than before: if that is right, forget the old one with `ssh-keygen -R`, and accept"
        " the new one with `ssh {alias}`",
    ),
    (_UNKNOWN_KEY, "its host key is not known here: run `ssh {alias}` once, compare the fingerprint and accept it"),
    (
        "permission denied (",
        "the host refused the login, and no password can be asked for: `ssh {alias} true` must work without questions "
        "(a key in the agent, or IdentityFile in the ssh configuration)",
    ),
    ("too many authentication failures", "name the right key with IdentityFile and IdentitiesOnly for {alias}"),
    ("could not resolve hostname", "is {alias} the name of a host, or an alias of the ssh configuration?"),
    ("connection refused", "nothing listens there: are HostName and Port of {alias} right, and does sshd run?"),
    ("timed out", "the host does not answer: is it up, and can it be reached from here?"),
    ("no route to host", "the host cannot be reached from here"),
    ("bad configuration option", "mend the ssh configuration"),
    ("can't open user config file", "name an ssh configuration that exists"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A host as ssh knows it. `config` is the file for `ssh -F`; None for the usual one. `also`: options `Name=value`
    that win over the configuration.
    """

    alias: str
    config: str | None = None
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.alias or self.alias.startswith("-") or re.search(r"[\s\x00-\x1f\x7f'\"`$\\;&<>|()*?]", self.alias):
            raise RemoteFailure(
                f"{self.alias!r} is no ssh alias",
                hint="name a Host of your ssh configuration, or user@host",
            )

    def options(self, *more: str) -> list[str]:
        """The arguments of ssh before the host; each of `more` is a `Name=value`."""
        named = [] if self.config is None else ["-F", self.config]
        options = ("BatchMode=yes", f"ConnectTimeout={CONNECT_S}", *self.also, *more)
        return [*named, *(word for option in options for word in ("-o", option))]


class Connection:
    """A host, connected to when the first command runs. For `with`; one thread at a time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._directory: str | None = None
        self._shared = False
        self._opened = False

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the shared connection; the next command makes another."""
        if self._shared:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self._ssh(*self._path(), "-O", "exit", "--", self.place.alias, timeout_s=10)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory, self._shared, self._opened = None, False, False

    def program(self) -> list[str]:
        """ssh and its options on the shared connection, without the host: what rsync is given."""
        self._open()
        return ["ssh", *self.place.options("LogLevel=ERROR"), *self._path()]

    def script(
        self, name: str, values: Mapping[str, str], *, timeout_s: float, refused: str = "it could not be done"
    ) -> Report:
        """Run one of our scripts there. Raises RemoteFailure with what the script says, or SshFailure.

        `refused` is the sentence where a script ends without one.
        """
        text, nonce = compose(name, values)
        done = self.run(["bash", "-s"], text.encode(), timeout_s=timeout_s)
        report = report_of(done.out, nonce)
        if report.error is not None:
            raise RemoteFailure(f"{self.place.alias}: {report.error}", hint=report.hint)
        if done.code != 0:
            raise self.failure(done)
        if not report.complete:
            raise RemoteFailure(
                f"{self.place.alias}: {refused}: the script there ended early",
                hint=f"does `ssh {self.place.alias} bash -s` start a bash that reads its standard input?",
            )
        return report

    def run(self, command: list[str], stdin: bytes | None = None, *, timeout_s: float) -> Done:
        """Run words that need no quoting (ssh joins them by blanks). Raises SshFailure only where ssh itself failed."""
        self._open()
        done = self._ssh(*self._path(), "-T", "--", self.place.alias, *command, stdin=stdin, timeout_s=timeout_s)
        if done.code == _REMOTE_HOST_SAID:
            raise self.failure(done)
        return done

    def pipe(self, path: Path, command: str, *, timeout_s: float) -> Done:
        """Run a command line of ours with a file as its standard input."""
        self._open()
        with path.open("rb") as file:
            return self._ssh(*self._path(), "-T", "--", self.place.alias, command, stdin=file, timeout_s=timeout_s)

    def failure(self, done: Done) -> SshFailure:
        """What an exit code of ssh means."""
        return explain(self.place.alias, done.code, done.err)

    # --- the shared connection

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        self._directory = tempfile.mkdtemp(prefix="lakeshore-", dir=private_directory())
        if len(os.path.join(self._directory, "c")) > _SOCKET_NAME:
            return
        with tempfile.TemporaryFile() as said:  # not a pipe: the connection keeps it open
            arguments = ["-M", "-N", "-f", "-o", f"ControlPersist={_IDLE_S}", *self._path(always=True)]
            command = ["ssh", *self.place.options(), *arguments, "--", self.place.alias]
            try:
                code = subprocess.run(  # noqa: S603  (ssh, with an alias that was looked at)
                    command, check=False, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=3 * CONNECT_S
                ).returncode
            except FileNotFoundError as error:
                raise _no_ssh() from error
            except subprocess.TimeoutExpired as error:
                raise self._silent(3 * CONNECT_S) from error
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        if code == _REMOTE_HOST_SAID:
            raise explain(self.place.alias, code, text)
        self._shared = code == 0

    def _path(self, *, always: bool = False) -> list[str]:
        if self._directory is None or not (self._shared or always):
            return ["-o", "ControlMaster=no", "-o", "ControlPath=none"]
        return ["-o", f"ControlPath={os.path.join(self._directory, 'c')}"] + (
            [] if always else ["-o", "ControlMaster=no"]
        )

    def _ssh(self, *arguments: str, stdin: bytes | IO[bytes] | None = None, timeout_s: float) -> Done:
        try:
            return run(["ssh", *self.place.options(), *arguments], stdin=stdin, timeout_s=timeout_s)
        except FileNotFoundError as error:
            raise _no_ssh() from error
        except subprocess.TimeoutExpired as error:
            raise self._silent(timeout_s) from error
        except TooMuch as error:
            raise RemoteFailure(f"{self.place.alias} says more than {MOST >> 20} MiB") from error

    def _silent(self, seconds: float) -> RemoteFailure:
        alias = self.place.alias
        return RemoteFailure(
            f"ssh {alias} did not end within {seconds:g} s", hint=f"is the host under load? Try `ssh {alias} true`"
        )


def explain(alias: str, code: int, said: str) -> SshFailure:
    """ssh's exit code and its words as one sentence, and what to do about it."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(("Warning:", "debug"))]
    lowered = said.lower()
    for words, advice in _MEANINGS:
        if words in lowered:
            shown = next((line for line in lines if words in line.lower()), lines[-1]).strip("@ ")
            return SshFailure(
                f"ssh {alias} exited with code {code}: {shown}", hint=advice.format(alias=alias), code=code
            )
    last = f": {lines[-1]}" if lines else ""
    return SshFailure(
        f"ssh {alias} exited with code {code}{last}", hint=f"`ssh {alias} true` must work on its own first", code=code
    )


def _no_ssh() -> RemoteFailure:
    return RemoteFailure("there is no ssh on PATH", hint="install the OpenSSH client (Debian: openssh-client)")


def private_directory() -> str | None:
    """Where a directory for a socket gets a short name, and one for a key lies in memory; None for the usual one."""
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"):  # noqa: S108  (mkdtemp makes it private)
        if place and os.access(place, os.W_OK | os.X_OK) and os.path.isdir(place):
            return place
    return None
