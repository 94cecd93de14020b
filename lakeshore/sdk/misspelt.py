"""Keys of a run config that were probably meant otherwise: `timeout` for `timeout_s`. Any key may be in one, so what is
near none of those that workers and daemons read is somebody's own, and nothing is said of it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable

from .warned import SubmitWarning, calls_of_ours

_READ = (
    "as_user", "docker", "entry", "env", "image", "kube", "match", "max_attempts", "mounts", "priority", "python",
    "resources", "runner", "slurm", "tags", "timeout_s",
)  # fmt: skip
_MEANT = {"attempts": "max_attempts", "max_retries": "max_attempts", "retries": "max_attempts", "timeout": "timeout_s"}
_ALIKE = 0.85


def warn_of(keys: Iterable[str]) -> None:
    """SubmitWarning for each that is nearly one that is read."""
    for key in keys:
        if key not in _READ and (meant := _meant(key)) is not None:
            warnings.warn(
                f"nobody reads {key!r} of a run config; did you mean {meant!r}?",
                SubmitWarning,
                stacklevel=calls_of_ours(),
            )


@functools.lru_cache(maxsize=1000)
def _meant(key: str) -> str | None:
    import difflib  # wall: only an unknown key pays for it

    return _MEANT.get(key) or next(iter(difflib.get_close_matches(key, _READ, n=1, cutoff=_ALIKE)), None)
