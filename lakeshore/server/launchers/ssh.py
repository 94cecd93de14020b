"""SSH: a host that there is, reached from this server's machine with the key that the provider brings.

Rules: nothing of the server's own account leads there, neither its keys nor its agent nor its configuration, for who
may launch chooses the host; `LAKESHORE_SSH_CONFIG` names a configuration that the operator wrote for this. The host's
key must be known to the server's account (its known_hosts, or that configuration's).
Reference: DECISIONS, "SSH and SLURM launch"; S-148.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...remote.errors import RemoteFailure
from ...remote.providers import keyed_place
from ...remote.ssh import Connection
from ..http import HttpError
from .contract import Machine, Means, Resolved
from .installing import Installer

CONFIG = "LAKESHORE_SSH_CONFIG"
_NO_CONFIG = "none"
_UNKNOWN_KEY = "host key verification failed"


class SshLauncher(Installer):
    """One host."""

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with over_ssh(self._provider) as connection:
            yield connection

    def _options(self, machine: Machine) -> dict[str, Any]:
        return {"first": machine.bootstrap_script or ""}


def make(provider: Resolved, means: Means) -> SshLauncher:
    """The launcher of a provider. HttpError 501 without ssh, 422 for what leads nowhere."""
    check(provider)
    return SshLauncher(provider)


def check(provider: Resolved) -> None:
    """HttpError 501 without ssh, 422 for kwargs that lead nowhere."""
    if shutil.which("ssh") is None:
        hint = "install the OpenSSH client on the machine that runs `lakeshore serve` (Debian: openssh-client)"
        raise HttpError(501, "this server has no ssh", hint=hint)
    try:
        with keyed_place(provider.name, provider.kwargs, config=_NO_CONFIG):
            pass
    except RemoteFailure as error:
        raise HttpError(422, str(error), field="provider", hint=error.hint) from error


@contextmanager
def over_ssh(provider: Resolved) -> Iterator[Connection]:
    """The host that a provider leads to. RemoteFailure."""
    config = os.environ.get(CONFIG) or _NO_CONFIG
    with keyed_place(provider.name, provider.kwargs, config=config) as place:
        try:
            yield Connection(place)
        except RemoteFailure as error:
            if _UNKNOWN_KEY not in str(error).lower():
                raise
            hint = (
                f"let the server's account know it: on its machine, `ssh-keyscan {place.alias}`, compare the "
                f"fingerprint, and add the line to ~/.ssh/known_hosts (or to the one that {CONFIG} names)"
            )
            raise RemoteFailure(str(error), hint=hint) from error
