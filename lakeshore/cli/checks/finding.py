"""One thing that a check saw, and what every check is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`seen` is what there is; `advice` what to do about it, empty where there is nothing to do."""

    status: Status
    subject: str
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line and the environment say. `limit_s` is for one check. The token is not part of its text."""

    environ: Mapping[str, str]
    url: str | None = None
    namespace: str | None = None
    token: str | None = None
    state_dir: Path | None = None
    limit_s: float = 10.0

    def __repr__(self) -> str:
        return f"Asked(url={self.url!r}, namespace={self.namespace!r}, state_dir={self.state_dir!r})"


Check = Callable[[Asked], Iterator[Finding]]


def ok(subject: str, seen: str) -> Finding:
    """As it should be."""
    return Finding(status="ok", subject=subject, seen=seen)


def warning(subject: str, seen: str, advice: str) -> Finding:
    """Works, and somebody should know."""
    return Finding(status="warning", subject=subject, seen=seen, advice=advice)


def failure(subject: str, seen: str, advice: str) -> Finding:
    """Does not work."""
    return Finding(status="failure", subject=subject, seen=seen, advice=advice)
