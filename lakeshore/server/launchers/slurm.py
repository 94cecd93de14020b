"""SLURM: the daemon as a batch job, submitted on the login host that the provider names.

A provider that names none means this server's own machine, and with it this server's own account: a job there reads
what the server may read. So that is the operator's to allow: `LAKESHORE_OWN_ACCESS=slurm` (`own_access.py`).

    kwargs and capacity   partition, account, qos, and what else of sbatch is said below, in its words: time, gres, …
    requeue               yes (the usual): shortly before the job's time is up it hands its work back and queues again

Reference: DECISIONS, "SSH and SLURM launch"; nymph/daemon-lifecycle, "--slurm".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ...remote.here import Here
from ...remote.launch import How
from ...remote.ssh import Connection
from . import own_access
from .contract import Machine, Means, Resolved, Unsupported
from .installing import Installer
from .ssh import check, over_ssh

OPTIONS: Final = (
    *("account", "qos", "time", "gres", "gpus", "mem", "mem-per-cpu", "cpus-per-task", "ntasks", "nodes"),
    *("constraint", "nodelist", "exclude", "reservation", "nice", "licenses", "exclusive"),
)
"""Of sbatch, as kwargs and capacity may say them; `_` stands for `-`, too."""
_WORD: Final = re.compile(r"[\w.,:;/@+=&|*\[\]()-]+")


class SlurmLauncher(Installer):
    """One cluster."""

    how: How = "slurm"

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if not names_host(self._provider):
            yield Here()
            return
        with over_ssh(self._provider) as connection:
            yield connection

    def _options(self, machine: Machine) -> dict[str, Any]:
        if machine.bootstrap_script:
            raise Unsupported(
                "bootstrap_script: no node of a cluster is ours to change before the daemon starts",
                hint="send it as --setup-script, which the daemon runs once it is there, or leave it out (--no-setup)",
            )
        said = {**self._provider.kwargs, **machine.capacity}
        return {
            "partition": _word("partition", said["partition"]) if said.get("partition") else "",
            "options": tuple(options_of(said)),
            "requeue": said.get("requeue") not in (False, "false", "no"),
        }


def make(provider: Resolved, means: Means) -> SlurmLauncher:
    """The launcher of a provider. HttpError 403 for this machine's where that is not allowed, 422, 501."""
    if names_host(provider):
        check(provider)
    else:
        own_access.need(
            "slurm",
            f"provider {provider.name!r} names no host, so the daemon would be a job of this server's own account",
            f"`lakeshore providers update {provider.name} --kwarg host=<login-node> --kwarg ssh_key.$secret=<secret>`",
        )
    return SlurmLauncher(provider)


def names_host(provider: Resolved) -> bool:
    """Whether it leads to a login node."""
    return bool(provider.kwargs.get("ip") or provider.kwargs.get("host"))


def options_of(said: Mapping[str, Any]) -> Iterator[str]:
    """Words for sbatch. Unsupported for a value that is no word."""
    for name in OPTIONS:
        value = said.get(name, said.get(name.replace("-", "_")))
        if value is True:
            yield f"--{name}"
        elif value not in (None, False, ""):
            yield f"--{name}={_word(name, value)}"


def _word(name: str, value: Any) -> str:
    text = str(value)
    if not isinstance(value, str | int | float) or not _WORD.fullmatch(text):
        raise Unsupported(f"{name}: {text!r:.80} is no word that sbatch takes")
    return text
