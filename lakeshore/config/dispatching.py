"""A mode as the run config of a call: what a daemon and its runner read.

    tags, match               as they are: they decide which worker gets the call
    backend, provider         as they are, for whoever looks
    runner                    where the mode names one; for `backend: fabric` also the default. A mode of this machine
                              that names none leaves it to the daemon
    image, resources, env, timeout_s
    extras                    beside them: `python`, `slurm`, `docker`, `max_attempts`, …; never what is the call's own

Rule: a value of a secret is not here and cannot be: secrets are for launchers.
Reference: api/configuration.md, "Mode fields".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import ConfigError
from .marker import MARKER
from .modes import FIELDS, RunConfig

_OF_THE_CALL = frozenset({"queue", "key", "priority", "prefix", "parent", "name", "mode"})


def run_config_of(name: str, mode: RunConfig) -> dict[str, Any]:
    """The run config of the mode called `name`. Raises ConfigError for a secret in its `env`."""
    for variable, value in mode.env.items():
        if isinstance(value, Mapping):
            raise ConfigError(
                f"mode {name!r}: env.{variable} refers to the secret {value.get(MARKER)!r}, and a secret is given to "
                "launchers only, never to a job; set the variable where the daemon runs"
            )
    found: dict[str, Any] = {key: value for key, value in mode.extras.items() if key not in _OF_THE_CALL}
    for field in FIELDS:
        value = getattr(mode, field)
        if value not in (None, {}, []) and field != "server":
            found[field] = value
    if mode.backend == "local" and "runner" not in mode.written:
        del found["runner"]
    return {"mode": name, **found}
