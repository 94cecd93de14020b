"""What trying to reach hosts gave, kept on this machine: `~/.config/dreamlake/ssh-status.json`.

    {"<alias>": [{"at": ISO time, "ok": bool, "ms": whole milliseconds, "error": sentence or null}, …newest last]}

Never sent to a server. A file that cannot be read counts as empty, and the next probe replaces it.
Reference: cli/examples/providers-and-discover, "ssh probe"; C-365.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..config.private_files import write_private
from .errors import RemoteFailure
from .installs import read_json
from .ssh import Place, explain

KEPT = 50
"""Probes of one host that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One attempt. `at` is UTC, `ms` how long it took, `error` a sentence where it failed."""

    at: str
    ok: bool
    ms: int
    error: str | None = None


def probe(place: Place, *, timeout_s: int) -> Probe:
    """Log in and run nothing of consequence. `timeout_s` is ssh's ConnectTimeout."""
    began = time.monotonic()
    named = [] if place.config is None else ["-F", place.config]
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}", "-o", "ControlPath=none")
    try:
        done = subprocess.run(  # noqa: S603  (ssh, with an alias that was looked at)
            ["ssh", *named, *options, "-T", "--", place.alias, "true"],  # noqa: S607
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s + 10,
        )
    except FileNotFoundError as error:
        raise RemoteFailure("there is no ssh on PATH", hint="install the OpenSSH client") from error
    except subprocess.TimeoutExpired:
        why: str | None = f"it did not answer within {timeout_s + 10} s"
    else:
        said = done.stderr.decode("utf-8", "replace")
        why = None if done.returncode == 0 else str(explain(place.alias, done.returncode, said))
    took = int((time.monotonic() - began) * 1000)
    return Probe(at=datetime.now(UTC).isoformat(timespec="seconds"), ok=why is None, ms=took, error=why)


def remember(path: Path, found: Mapping[str, Probe]) -> None:
    """Add probes to the file, also while another process does. OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known: dict[str, Any] = read_json(path)
        for alias, one in found.items():
            before = known.get(alias)
            known[alias] = [*(before if isinstance(before, list) else []), asdict(one)][-KEPT:]
        write_private(path, json.dumps(known, indent=2) + "\n", beside=f".{path.name}.part")


def remembered(path: Path) -> dict[str, list[Probe]]:
    """What is known of each host, newest last."""
    found: dict[str, list[Probe]] = {}
    for alias, rows in read_json(path).items():
        for row in rows if isinstance(rows, list) else ():
            try:
                one = Probe(at=str(row["at"]), ok=bool(row["ok"]), ms=int(row["ms"]), error=row.get("error"))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
            found.setdefault(alias, []).append(one)
    return found
