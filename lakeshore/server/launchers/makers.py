"""The launchers that are built, by the kind of provider. A kind that is not here is a 422 of whoever asks.

Each is imported when it is first needed: with what they import they are a seventh of a server's start, and most servers
launch nothing.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from .contract import Launcher, Maker, Means, Resolved


def _ec2(provider: Resolved, means: Means) -> Launcher:
    from . import ec2  # wall: as above

    return ec2.make(provider, means)


def _gce(provider: Resolved, means: Means) -> Launcher:
    from . import gce  # wall: as above

    return gce.make(provider, means)


def _ssh(provider: Resolved, means: Means) -> Launcher:
    from . import ssh  # wall: as above

    return ssh.make(provider, means)


def _slurm(provider: Resolved, means: Means) -> Launcher:
    from . import slurm  # wall: as above

    return slurm.make(provider, means)


def _kube(provider: Resolved, means: Means) -> Launcher:
    from . import kube  # wall: as above

    return kube.make(provider, means)


MAKERS: Final[MutableMapping[str, Maker]] = {"EC2": _ec2, "GCE": _gce, "SSH": _ssh, "SLURM": _slurm, "Kube": _kube}
