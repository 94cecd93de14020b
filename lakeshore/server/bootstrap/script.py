"""The script that a new machine runs at its first boot: cloud-init's, GCE's startup script, a pod's command.

Rules: everything that came from somebody stands in single quotes, so that a label or a tag is never a command. It holds
the token of one worker, which is why it is never logged and never answered. dash and bash run it.
Reference: nymph/daemon-lifecycle, nymph/installation; S-162…S-168, N-367, N-369.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Final

from ..launchers.contract import Machine
from .config import rendered as config_of

STOP_S: Final = 30
"""What systemd gives the daemon to end."""
_WORKDIR: Final = "/var/lib/dreamlake/udf"


def rendered(machine: Machine) -> str:
    """The script for one machine."""
    values = {
        "url": machine.url,
        "program": machine.program.url,
        "sha256": machine.program.sha256,
        "token": machine.token,
        "config": config_of(machine, token_file="token", workdir=_WORKDIR),  # noqa: S106  (beside the file)
        "bootstrap": machine.bootstrap_script or "",
        "grace": str(STOP_S),
        "stays": "yes" if machine.keep_alive_s < 0 else "no",
    }
    given = "\n".join(f"{name}={quoted(value)}" for name, value in values.items())
    return f"#!/bin/sh\n# shellcheck shell=sh\n{given}\n\n{_body()}"


def quoted(text: str) -> str:
    """A text as one word of any shell; a NUL, which none can hold, is left out."""
    return "'" + text.replace("\0", "").replace("'", "'\\''") + "'"


@functools.cache
def _body() -> str:
    return files(__package__).joinpath("machine.sh").read_text("utf-8")
