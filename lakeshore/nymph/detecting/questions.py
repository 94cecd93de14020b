"""Which programs of a host are asked what they are, all at once, by threads: the daemon is loaded meanwhile.

Rules: they have one time limit together, counted from the start. What only matters after another's answer is asked
after it (its thread goes on), so that a host without a cluster starts no client twice. A thread that hangs (a PATH that
leads over a dead network mount) is left behind. Only the standard library is imported here.
Reference: nymph/daemons, "Host detection"; N-065, N-079, N-082…N-085.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from .commands import output_of, python_of

LIMIT_S: Final = 2.5
"""For everything; a cluster's API server has 2 s of it, as kubectl is told."""

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "kubectl": ("kubectl", "version", "--client=false", "--request-timeout=2s", "--output=json"),
    "kube context": ("kubectl", "config", "current-context"),
    "docker": ("docker", "version", "--format", "{{.Server.Version}}"),
    "docker runtimes": ("docker", "info", "--format", "{{json .Runtimes}}"),
    "runsc": ("runsc", "--version"),
    "sbatch": ("sbatch", "--version"),
    "python3": ("python3", "--version"),
    "python": ("python", "--version"),
    "gpus": ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
    "cuda": ("nvidia-smi",),
}
"""The slowest first."""
DARWIN_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "sysctl": ("sysctl", "-n", "machdep.cpu.brand_string", "hw.logicalcpu", "hw.memsize"),
    "sw_vers": ("sw_vers",),
}
_AFTER: Final = {"kube context": "kubectl", "docker runtimes": "docker", "cuda": "gpus"}
"""Says more about what has answered."""
_INSTEAD: Final = {"python": "python3"}
"""Says what the other one did not."""


class Questions:
    """They are asked from now on, in this environment."""

    def __init__(self, environ: Mapping[str, str], *, limit_s: float = LIMIT_S, darwin: bool = False) -> None:
        self._environ, self._until = environ, time.monotonic() + limit_s
        self._texts: dict[str, str | None] = {}
        self._commands = COMMANDS | (DARWIN_COMMANDS if darwin else {})
        later = {*_AFTER, *_INSTEAD}
        self._threads = [
            threading.Thread(target=self._ask, args=(name,), name=f"nymph-ask-{name}", daemon=True)
            for name in self._commands
            if name not in later
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, name: str) -> None:
        said = output_of(
            self._commands[name],
            environ=self._environ,
            limit_s=self._until - time.monotonic(),
            stderr_too=name in ("python", "python3"),
        )
        self._texts[name] = said
        for more in self._commands:
            if (_AFTER.get(more) == name and said is not None) or (_INSTEAD.get(more) == name and not python_of(said)):
                self._ask(more)

    def texts(self) -> dict[str, str | None]:
        """What each has said, by its name, when all have answered or the time is over."""
        for thread in self._threads:
            thread.join(max(0.0, self._until - time.monotonic()))
        return dict(self._texts)
