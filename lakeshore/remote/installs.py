"""What was installed from this machine: one file a launch, in the state directory.

    <state>/installs/<launch id>.json           where it is, by which token, and how it was started
    <state>/installs/<launch id>.tunnel.json    its tunnel: the process that keeps it up, and how it fares
    <state>/installs/<launch id>.tunnel.log     what ssh said of it

It holds no secret: of a token there is the id. Who lost it names the host with `--alias`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..config.private_files import write_private

LAUNCH_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """One launch. `how`: process, slurm or service; `port`: of its tunnel, on the host."""

    launch_id: str
    alias: str
    ssh_config: str | None
    label: str
    url: str
    namespace: str
    token_id: str
    token_name: str
    how: str
    created_at: str
    port: int | None = None


def launch_id_in(text: str) -> str | None:
    """The launch id that a label ends in, or that this is; None for neither."""
    found = LAUNCH_ID.fullmatch(text[-26:].upper())
    return found[0] if found and (len(text) == 26 or text[-27] == "-") else None


class Installs:
    """The records below one state directory."""

    def __init__(self, state: Path) -> None:
        self.directory = state / "installs"

    def path(self, launch_id: str, ending: str = "json") -> Path:
        """Where one of the files of a launch lies."""
        return self.directory / f"{launch_id}.{ending}"

    def save(self, install: Install) -> None:
        """Write it down. OSError."""
        path = self.path(install.launch_id)
        write_private(path, json.dumps(asdict(install), indent=2) + "\n", beside=f".{path.name}.part")

    def forget(self, launch_id: str) -> None:
        """Remove what is known of a launch."""
        for ending in ("json", "tunnel.json", "tunnel.log", "tunnel.lock"):
            self.path(launch_id, ending).unlink(missing_ok=True)

    def all(self) -> list[Install]:
        """Every launch, oldest first."""
        try:
            names = sorted(os.listdir(self.directory))
        except OSError:
            return []
        return list(self._read(name for name in names if LAUNCH_ID.fullmatch(name.removesuffix(".json"))))

    def named(self, text: str) -> list[Install]:
        """Those whose launch id, label, or label without the id this is."""
        wanted = launch_id_in(text)
        return [
            one for one in self.all() if wanted == one.launch_id or text in (one.label, one.label[: -len("-") - 26])
        ]

    def _read(self, names: Iterator[str]) -> Iterator[Install]:
        known = {one.name for one in fields(Install)}
        for name in names:
            value = read_json(self.directory / name)
            try:
                yield Install(**{key: value[key] for key in known & value.keys()})
            except TypeError:
                continue  # of another version, or cut short


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; an empty one when there is none."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
