"""The contexts of docker: `docker context ls`. No daemon is asked.

Reference: cli/examples/providers-and-discover, "Discover helpers"; C-115.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .tools import ToolError, json_said, said_by, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One context. `error` is docker's own word on one that it cannot read."""

    name: str
    is_current: bool
    endpoint: str | None
    description: str | None
    error: str | None


def contexts() -> list[Context]:
    """Every one, by name. ToolError."""
    return parsed(said_by(["docker", "context", "ls", "--format", "{{json .}}"]).splitlines())


def parsed(lines: Iterable[str]) -> list[Context]:
    """What `docker context ls --format '{{json .}}'` prints: an object in each line. ToolError for what is none."""
    made = []
    for line in lines:
        if not line.strip():
            continue
        row = json_said("docker", line)
        if not isinstance(row, dict):
            raise ToolError(f"docker answered with something else than an object: {line[:80].strip()!r}")
        made.append(
            Context(
                name=str(row.get("Name")),
                is_current=bool(row.get("Current")),
                endpoint=text_of(row, "DockerEndpoint"),
                description=text_of(row, "Description"),
                error=text_of(row, "Error"),
            )
        )
    return sorted(made, key=lambda one: one.name)
