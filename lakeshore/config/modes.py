"""What a `.dreamrc` says: modes (`RunConfig`), provider connections (`Provider`), and both together (`DreamRc`).

Rule: modes inherit nothing. Keys of a mode that stand at the top of the file are a mode of their own, `root`, which
answers to the name `default`; `extras` keeps what only a launcher knows, as it was written.
Reference: api/configuration.md, "Mode fields", "Provider entries".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

KNOWN_PROVIDER_TAGS = ("SSH", "SLURM", "EC2", "GCE", "Kube")
TAG = "!providers."
RUNNERS = ("process", "docker", "gvisor", "slurm", "kube")
BACKENDS = ("local", "fabric")
LOCAL = "local"
DEFAULT = "default"
"""The name that the root answers to."""
_BY_DAEMON = ("EC2", "GCE")

Source = Literal["explicit", "env", "workspace", "home", "server", "cache", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An account that workers are launched through. `kind` is the tag without its prefix, `kwargs` the launcher's."""

    name: str
    kind: str
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def dispatch(self) -> str:
        """How its workers get their work: what `kwargs` says, else `daemon` for EC2 and GCE and `direct` for others."""
        own = self.kwargs.get("dispatch")
        return str(own) if own is not None else "daemon" if self.kind in _BY_DAEMON else "direct"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One mode: where and how an invocation runs. `timeout_s` in seconds; `extras` holds what only a launcher knows."""

    backend: str = "local"
    server: str | None = None
    tags: list[str] = field(default_factory=list)
    runner: str = "docker"
    resources: dict[str, Any] = field(default_factory=dict)
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    provider: str | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    written: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The fields that the file gave, whatever their value."""


FIELDS = ("backend", "server", "tags", "runner", "resources", "image", "env", "timeout_s", "provider")
"""What a mode's keys are, in the order in which people read them; any other key is an extra."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DreamRc:
    """A whole file. `path` is None and `source` is `none` when there was no file."""

    default_mode: str = "local"
    modes: dict[str, RunConfig] = field(default_factory=lambda: {"local": RunConfig()})
    providers: dict[str, Provider] = field(default_factory=dict)
    root: RunConfig = field(default_factory=RunConfig)
    path: Path | None = None
    source: Source = "none"
