"""The directories of failed jobs, which stay to be looked at: not for ever.

    failed.jsonl    {"name", "at", "bytes", "changed"}, one a line, in the daemon's own directory

Kept are the newest 50 of the last 7 days, 1 GiB of them; at the least the newest. Only what this daemon has noted is
removed, and only while nobody has touched it: daemons share the root of their jobs' directories, and a job may be tried
again in the place where it failed. Reference: nymph/daemons, "Shared workdir contract"; N-204.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from .workdir import Workdir, WorkdirError

MOST: Final = 50
AGE_S: Final = 7 * 86_400.0
BYTES: Final = 1 << 30
NOTES: Final = "failed.jsonl"
log = logging.getLogger("nymph.leftovers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One directory. `at` in Unix seconds; `changed` is its ctime in nanoseconds, by which a touched one is known."""

    name: str
    at: float
    bytes: int
    changed: int


class Leftovers:
    """Blocking; one call at a time. Nothing of it raises."""

    def __init__(self, root: Path, directory: Path, now: Callable[[], float] = time.time) -> None:
        self._root, self._notes, self._now = root, directory / NOTES, now

    def add(self, name: str) -> None:
        """A job has failed, and its directory is kept; older ones go."""
        kept = [one for one in self._read() if one.name != name]
        path = self._root / name
        try:
            kept.append(Failed(name=name, at=self._now(), bytes=_size(path), changed=path.stat().st_ctime_ns))
        except OSError:
            log.debug("%s is gone", path)
        self._write(self._thinned(kept))

    def prune(self) -> None:
        """Let go what is too old by now."""
        before = self._read()
        after = self._thinned(before)
        if after != before:
            self._write(after)

    def _thinned(self, kept: list[Failed]) -> list[Failed]:
        stay: list[Failed] = []
        room, oldest = BYTES, self._now() - AGE_S
        for one in reversed(kept):
            room -= one.bytes
            if not stay or (len(stay) < MOST and room >= 0 and one.at >= oldest):
                stay.append(one)
            else:
                self._remove(one)
        return stay[::-1]

    def _remove(self, one: Failed) -> None:
        try:
            found = Workdir.at(self._root, one.name)
            if found.path.lstat().st_ctime_ns == one.changed:
                found.remove()
        except FileNotFoundError:
            return
        except (OSError, WorkdirError) as error:
            log.warning("%s is not removed: %s", one.name, error)

    def _read(self) -> list[Failed]:
        found = []
        try:
            lines = self._notes.read_text("utf-8").splitlines()
        except OSError:
            return []
        for line in lines:
            try:
                found.append(Failed(**json.loads(line)))
            except (ValueError, TypeError):
                continue
        return found

    def _write(self, kept: list[Failed]) -> None:
        fresh = self._notes.with_name(f".{NOTES}")
        try:
            fresh.write_text("".join(json.dumps(asdict(one)) + "\n" for one in kept), "utf-8")
            os.replace(fresh, self._notes)
        except OSError as error:
            log.warning("%s: %s", self._notes, error)


def _size(path: Path) -> int:
    try:
        return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(path) for name in names)
    except RecursionError:
        return BYTES  # a nest of directories: the first to go
