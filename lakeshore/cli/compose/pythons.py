"""`python` of a group: the interpreter of its jobs.

A job's interpreter is said by its run config, and a queue may have a default of that: so a declared queue whose groups
all say the same version gets it, unless the file says another one there.
Reference: get-started/compose.md, "Runtime configuration"; C-331.
"""

from __future__ import annotations

import re
from dataclasses import replace

from lakeshore.config.compose import Compose, Queue

_VERSION = re.compile(r"(\d+\.\d+)(?:\.\d+)?|\d+")


def with_pythons(compose: Compose) -> Compose:
    """The file as its queues are made; what cannot be done is among the warnings."""
    warnings: list[str] = []
    queues = tuple(_with_python(queue, compose, warnings) for queue in compose.queues)
    declared = {queue.name for queue in queues}
    warnings += [
        f"daemons.{group.name}.python: is the default of declared queues, and {', '.join(left)} is not declared"
        for group in compose.groups
        if group.python is not None and (left := [name for name in group.queues if name not in declared])
    ]
    return replace(compose, queues=queues, warnings=(*compose.warnings, *warnings))


def _with_python(queue: Queue, compose: Compose, warnings: list[str]) -> Queue:
    said = {group.name: group.python for group in compose.groups if queue.name in group.queues}
    config = queue.settings.get("runConfig") or {}
    if "python" in config or not any(said.values()):
        return queue
    versions = set(said.values())
    if len(versions) > 1:
        each = ", ".join(f"{name} {version or 'says none'}" for name, version in said.items())
        warnings.append(f"queues.{queue.name}: its groups have different Pythons ({each}); a call names its own")
        return queue
    return replace(
        queue, settings={**queue.settings, "runConfig": {**config, "python": interpreter(str(versions.pop()))}}
    )


def interpreter(said: str) -> str:
    """The program that is meant: `3.12` and `3.12.1` are `python3.12`, what is no version is a program."""
    found = _VERSION.fullmatch(said)
    return said if found is None else f"python{found[1] or found[0]}"
