"""Where a daemon keeps what is its own, and where its jobs run.

    $XDG_STATE_HOME/lakeshore/nymph/<daemon>/    (~/.local/state) 0700: its keeper, its jobs' output, notes, its label
    [runtime] workdir                            one directory a job

A daemon is (server, namespace, machine, label), as the server knows it: the next one of the same finds its jobs there.
The default working directory needs root; who is not uses $XDG_DATA_HOME/lakeshore/udf (~/.local/share).
Reference: nymph/daemons, "Shared workdir contract"; N-040, N-201.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from ..config.errors import ConfigError
from .config import RuntimeSection
from .keeping.protocol import private_directory
from .lookup import Boot
from .workdir import made_root

DEFAULT_WORKDIR = RuntimeSection().workdir


def daemon_directory(boot: Boot, machine_id: str, environ: Mapping[str, str]) -> Path:
    """The directory of this very daemon; nothing is made."""
    config = boot.config
    parts = (config.server.url.rstrip("/"), config.server.namespace, machine_id, config.daemon.label)
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return _home("XDG_STATE_HOME", ".local/state", environ) / "lakeshore" / "nymph" / name


def sign(directory: Path, label: str) -> None:
    """Make a daemon's directory, and write down whose it is, so that whoever removes that daemon finds it. OSError."""
    private_directory(str(directory))
    (directory / "label").write_text(label + "\n", "utf-8")


def note_launch(directory: Path, launch_id: str) -> None:
    """Write down which launch the daemon is of that has its keeper here now; "" is none. OSError."""
    if launch_id:
        (directory / "launch").write_text(launch_id + "\n", "utf-8")


def working_directory(boot: Boot, environ: Mapping[str, str]) -> tuple[Path, str | None]:
    """(the root of the jobs' directories, a warning when it is not the configured one). Raises ConfigError."""
    written = boot.config.runtime.workdir
    path = boot.place(written)
    why = _unusable(path)
    if why is None:
        return path, None
    if written != DEFAULT_WORKDIR:
        raise ConfigError(f"runtime.workdir — {path} cannot be used: {why}")
    other = _home("XDG_DATA_HOME", ".local/share", environ) / "lakeshore" / "udf"
    told = _unusable(other)
    if told is not None:
        raise ConfigError(
            f"runtime.workdir — neither {path} ({why}) nor {other} ({told}) can be used: name a directory"
        )
    return other, f"{path} cannot be used ({why}): jobs run below {other}; [runtime] workdir names another place"


def _unusable(path: Path) -> str | None:
    try:
        made_root(path)
    except OSError as error:
        return error.strerror or str(error)
    return None if os.access(path, os.W_OK | os.X_OK) else "not writable"


def _home(variable: str, usual: str, environ: Mapping[str, str]) -> Path:
    named = environ.get(variable, "")
    return Path(named) if os.path.isabs(named) else Path(environ.get("HOME") or "~").expanduser() / usual
