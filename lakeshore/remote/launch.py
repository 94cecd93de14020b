"""The life of one daemon on a host: look and make room, start, look after, remove. Each step is one script there.

    ~/.local/share/nymph/launches/<launch id>/    0700: nymph, token (0600), udf-daemon.toml, code/, work/
    ~/.local/share/nymph-<launch id>.log          stdout and stderr
    /tmp/nymph-<launch id>[.code]                 what is copied, until it is moved into its place

Reference: nymph/install-remote-daemon.md, "What it does"; N-348…N-361.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .copying import copy
from .errors import RemoteFailure
from .ssh import Connection

How = Literal["process", "slurm", "service"]

LAUNCHES = ".local/share/nymph/launches"
GRACE_S = 60
"""What jobs get when the daemon is stopped: `[shutdown] grace_s` as it is where nothing else is said."""
STOP_S = GRACE_S + 30
"""What systemd gives the daemon: the jobs' time, and its own to tell how they ended."""
_LOOK_S = 120.0
_START_S = 600.0
_ROOM = 8 << 20  # for the log, the records and the first job


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What was found there. `unreached`: why the server cannot be reached from it, or ""; None where nobody asked."""

    user: str
    home: str
    triple: str
    python: str
    python_version: str
    has_rsync: bool
    joined_docker: bool
    unreached: str | None

    def code(self, launch_id: str) -> str:
        """Where the user's modules lie there."""
        return f"{self.directory(launch_id)}/code"

    def directory(self, launch_id: str) -> str:
        """Where a launch lies there."""
        return f"{self.home}/{LAUNCHES}/{launch_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What was started: a process, a SLURM job, or a unit; and what should be known of it."""

    pid: str = ""
    job: str = ""
    unit: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a launch fares: `running`, `ended`, `gone`, or the word of SLURM or systemd. And the end of its log."""

    state: str
    log: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        return self.state in ("ended", "gone", "failed", "inactive", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A launch that lies on a host: `state` as `Condition` has it, or `unfinished`."""

    launch_id: str
    state: str
    label: str


def log_path(launch_id: str) -> str:
    """The log as it is told to people."""
    return f"~/.local/share/nymph-{launch_id}.log"


def staged_path(launch_id: str) -> str:
    """Where the program is put first."""
    return f"/tmp/nymph-{launch_id}"  # noqa: S108  (80 random bits are in its name)


def prepare(
    connection: Connection, launch_id: str, *, python: str, size: int, docker_group: bool, server: str | None
) -> Host:
    """Look at the host, and make the launch's directory. `python` "" looks for one; `size` bytes must fit; `server` is
    the address that the daemon is to reach.
    """
    report = connection.script(
        "prepare",
        {
            "launch_id": launch_id,
            "python": python,
            "size": str(size + _ROOM),
            "docker_group": "yes" if docker_group else "no",
            "server": server or "",
        },
        timeout_s=_LOOK_S,
        refused="it could not be looked at",
    )
    if report["docker"]:
        connection.close()  # a login's groups are those of its beginning
    return Host(
        user=report["user"],
        home=report["home"],
        triple=report["triple"],
        python=report["python"],
        python_version=report["version"],
        has_rsync=bool(report["rsync"]),
        joined_docker=bool(report["docker"]),
        unreached=report.values.get("unreached") if server else None,
    )


def send(connection: Connection, host: Host, launch_id: str, program: Path, *, show: bool) -> str:
    """Copy the program there; what it was done with."""
    return copy(connection, program, staged_path(launch_id), rsync_there=host.has_rsync, show=show)


def send_code(connection: Connection, host: Host, launch_id: str, archive: Path) -> None:
    """Copy packed code there; `start` unpacks it."""
    copy(connection, archive, f"{staged_path(launch_id)}.code", rsync_there=host.has_rsync, show=False)


def start(
    connection: Connection,
    host: Host,
    launch_id: str,
    *,
    token: str,
    config: str,
    sha256: str = "",
    urls: tuple[str, ...] = (),
    how: How = "process",
    partition: str = "",
    options: tuple[str, ...] = (),
    requeue: bool = False,
    code: bool = False,
    first: str = "",
) -> Started:
    """Put everything into its place, and start the daemon. What fails leaves nothing there but the log.

    `options` are more of sbatch's, each one word; `first` is the text of a script that root runs there before the
    daemon starts.
    """
    report = connection.script(
        "start",
        {
            "launch_id": launch_id,
            "python": host.python,
            "token": token,
            "config": config.rstrip("\n"),
            "sha256": sha256,
            "urls": "\n".join(urls),
            "how": how,
            "partition": partition,
            "options": "\n".join(options),
            "first": first.rstrip("\n"),
            "requeue": "yes" if requeue else "no",
            "code": "yes" if code else "no",
            "grace": str(STOP_S),
        },
        timeout_s=_START_S,
        refused="the daemon was not started",
    )
    return Started(pid=report["pid"], job=report["job"], unit=report["unit"], note=report["note"])


def condition(connection: Connection, launch_id: str, *, lines: int = 0) -> Condition:
    """How the launch fares, with the last `lines` of its log."""
    report = connection.script("status", {"launch_id": launch_id, "lines": str(lines)}, timeout_s=_LOOK_S)
    return Condition(state=report["state"], log=tuple(report.lines.get("log", ())))


def listed(connection: Connection) -> list[Listed]:
    """Every launch that lies there, of whichever server."""
    report = connection.script("list", {}, timeout_s=_LOOK_S)
    found = []
    for line in report.lines.get("launch", ()):
        launch_id, state, label = [*line.split(" ", 2), "", ""][:3]
        found.append(Listed(launch_id=launch_id, state=state, label=_text_of(label)))
    return found


def remove(connection: Connection, launch_id: str, *, grace_s: int = GRACE_S, keep_log: bool = False) -> bool:
    """Stop the daemon, let its jobs end for `grace_s`, and remove its files; whether there was anything."""
    values = {"launch_id": launch_id, "grace": str(grace_s), "keep_log": "yes" if keep_log else "no"}
    report = connection.script("remove", values, timeout_s=3 * grace_s + _LOOK_S)
    return report["state"] != "absent"


def give_up(connection: Connection, launch_id: str, *, keep_log: bool) -> bool:
    """Remove what a failed install may have left there, as far as the host can still be reached; whether it could."""
    try:
        remove(connection, launch_id, grace_s=1, keep_log=keep_log)
    except RemoteFailure:
        return False
    return True


def _text_of(written: str) -> str:
    """A string of a daemon's file; one that is none is shown as it is written."""
    try:
        value = tomllib.loads(f"label = {written}")["label"]
    except (ValueError, RecursionError):  # the host may write anything: numbers and depths that Python refuses, too
        return written
    return value if isinstance(value, str) else written
