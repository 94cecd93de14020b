"""The daemon's file, `udf-daemon.toml`, for a machine of a launch. Reference: nymph/installation; S-163, S-169."""

from __future__ import annotations

import json
from typing import Any, Final

from ..launchers.contract import Machine

_DELETE: Final = "\x7f"


def rendered(machine: Machine, *, token_file: str, workdir: str) -> str:
    """Where its token and its jobs lie is whoever's who puts the file there. A queue of none is the default one."""
    runners = machine.runners or ("process",)
    lines = [
        "[server]",
        _line("url", machine.url),
        _line("token_file", token_file),
        _line("namespace", machine.ns),
        "",
        "[daemon]",
        _line("label", machine.label),
        _line("tags", machine.tags),
        *([_line("queues", machine.queues)] if machine.queues else []),
        "",
        "[runtime]",
        _line("workdir", workdir),
        _line("runners", runners),
        _line("default_runner", runners[0]),
        _line("keep_alive_s", machine.keep_alive_s),
    ]
    return "\n".join(lines)


def _line(key: str, value: Any) -> str:
    """A text of JSON is one of TOML, but for DEL and surrogates, which no label has."""
    return f"{key} = {json.dumps(value, ensure_ascii=False).replace(_DELETE, chr(92) + 'u007f')}"
