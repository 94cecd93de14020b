"""Which runner runs an invocation: the one that its run_config names, else the daemon's default. Never another one.

Reference: nymph/daemons.md, "Runners".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..keeping.client import KeeperClient, Kept
from ..keeping.job import GRACE_S
from .attended import AttendedRunner, Place
from .docker import RUNTIMES, Docker
from .kube import Kube
from .process import ProcessRunner, Refused, Run, failed
from .slurm import Slurm

DEFAULT = "process"
KINDS = ("process", "subprocess", "docker", "gvisor", "slurm", "kube")


class Runners:
    """Every kind, over one keeper and one root of working directories."""

    def __init__(
        self,
        keeper: KeeperClient,
        root: Path,
        environ: Mapping[str, str],
        *,
        default: str = DEFAULT,
        grace_s: float = GRACE_S,
        warm: bool = True,
    ) -> None:
        self._default = default
        process = ProcessRunner(keeper, root, environ, grace_s=grace_s, warm=warm)
        places: dict[str, Place] = {
            **{name: Docker(runtime) for name, runtime in RUNTIMES.items()},
            "slurm": Slurm(),
            "kube": Kube(),
        }
        self._runners: dict[str, ProcessRunner] = {"process": process, "subprocess": process}
        self._runners |= {
            name: AttendedRunner(name, place, keeper, root, environ, grace_s=grace_s) for name, place in places.items()
        }

    def of(self, run: Run) -> ProcessRunner:
        """The runner of an invocation; Refused for a kind that there is none of."""
        return self._named(str(run.run_config.get("runner") or self._default))

    def of_job(self, job: Kept) -> ProcessRunner:
        """The runner of a job that an earlier daemon began."""
        return self._named(str(job.claim.get("runner") or DEFAULT))

    def _named(self, kind: str) -> ProcessRunner:
        found = self._runners.get(kind)
        if found is None:
            raise Refused(failed("DaemonError", f"unknown runner kind: {kind}"))
        return found
