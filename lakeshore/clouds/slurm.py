"""The partitions of the SLURM cluster that this machine belongs to: its configuration file, and what `sinfo` says.

    SLURM_CONF, /etc/slurm/slurm.conf, /etc/slurm-llnl/slurm.conf

Where the controller does not answer, the file's partitions are told, without states.
Reference: cli/examples/providers-and-discover, "Discover helpers"; C-113; slurm.conf(5), sinfo(1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from .tools import ToolError, ToolMissing, said_by

PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_FORMAT = "%P|%a|%l|%D|%t|%c|%m|%G"  # name, up or down, time limit, nodes, their state, CPUs, MB, generic resources
_PAIR = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition. `nodes` counts them, `states` by their state; `cpus` and `memory_mb` of a node, as sinfo says."""

    name: str
    is_default: bool
    state: str | None
    time_limit: str | None
    nodes: int | None
    states: dict[str, int]
    cpus: str | None
    memory_mb: str | None
    gres: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is known; `trouble` is why `sinfo` did not answer."""

    name: str | None
    controller: str | None
    conf: str | None
    partitions: tuple[Partition, ...]
    trouble: str | None = None


def cluster() -> Cluster:
    """The cluster of this machine. ToolError where there is none."""
    path = next((place for place in (os.environ.get("SLURM_CONF"), *PLACES) if place and Path(place).is_file()), None)
    lines = [] if path is None else _lines(Path(path))
    told, written = _settings(lines), _written(lines)
    known = {name: told.get(name) for name in ("clustername", "slurmctldhost", "controlmachine")}
    controller = known["slurmctldhost"] or known["controlmachine"]
    found = Cluster(name=known["clustername"], controller=controller, conf=path, partitions=tuple(written))
    try:
        return replace(found, partitions=tuple(parsed(said_by(["sinfo", "--noheader", "-o", _FORMAT]).splitlines())))
    except ToolError as error:
        if path is None and isinstance(error, ToolMissing):
            why = f"there is no SLURM here: no sinfo on PATH, and none of {', '.join(PLACES)}"
            raise ToolMissing(why, hint=error.hint) from error
        if path is None:
            raise
        return replace(found, trouble=str(error))


def parsed(lines: Iterable[str]) -> list[Partition]:
    """What `sinfo` prints in our format: a line for each kind of node of each partition."""
    found: dict[str, Partition] = {}
    for line in lines:
        parts = line.strip().split("|")
        if len(parts) != 8:
            continue
        name, up, limit, count, state, cpus, memory, gres = (part.strip() for part in parts)
        nodes = int(count) if count.isdecimal() else 0
        word = state.rstrip("*~#!%$@^-+")
        before = found.get(name)
        if before is None:
            found[name] = Partition(
                name=name.rstrip("*"),
                is_default=name.endswith("*"),
                state=up,
                time_limit=limit,
                nodes=nodes,
                states={word: nodes},
                cpus=cpus,
                memory_mb=memory,
                gres=None if gres in ("", "(null)") else gres,
            )
        else:
            states = {**before.states, word: before.states.get(word, 0) + nodes}
            found[name] = replace(before, nodes=(before.nodes or 0) + nodes, states=states)
    return list(found.values())


def _written(lines: list[str]) -> list[Partition]:
    made = []
    for line in lines:
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
        name = pairs.get("partitionname")
        if name and name.upper() != "DEFAULT":
            made.append(
                Partition(
                    name=name,
                    is_default=pairs.get("default", "").upper() == "YES",
                    state=(pairs.get("state") or "up").lower(),
                    time_limit=pairs.get("maxtime"),
                    nodes=None,
                    states={},
                    cpus=None,
                    memory_mb=None,
                    gres=None,
                )
            )
    return made


def _settings(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        pair = _PAIR.match(line)
        if pair is not None:
            found.setdefault(pair[1].lower(), pair[2].strip('"'))
    return found


def _lines(path: Path) -> list[str]:
    """Without comments, lines that a backslash splits as one."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return []
    whole = text.replace("\\\n", " ").splitlines()
    return [line for raw in whole if (line := raw.partition("#")[0].strip())]
