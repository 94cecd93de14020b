"""The launchers that are built, by the kind of provider. A kind that is not here is a 422 of whoever asks."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from . import ec2, gce, kube, slurm, ssh
from .contract import Maker

MAKERS: Final[MutableMapping[str, Maker]] = {
    "EC2": ec2.make,
    "GCE": gce.make,
    "SSH": ssh.make,
    "SLURM": slurm.make,
    "Kube": kube.make,
}
