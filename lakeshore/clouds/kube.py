"""The contexts of kubectl: `kubectl config view`, which hides what is secret. No cluster is asked.

Reference: cli/examples/providers-and-discover, "Discover helpers"; C-114.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .tools import json_of, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One context. `server` is the URL of its cluster's API."""

    name: str
    is_current: bool
    cluster: str | None
    server: str | None
    namespace: str | None
    user: str | None


def contexts() -> list[Context]:
    """Every one, by name. ToolError."""
    return parsed(json_of(["kubectl", "config", "view", "-o", "json"]))


def parsed(told: Any) -> list[Context]:
    """What `kubectl config view -o json` prints."""
    config = told if isinstance(told, Mapping) else {}
    servers = {str(row.get("name")): _inner(row, "cluster").get("server") for row in _rows(config.get("clusters"))}
    made = []
    for row in _rows(config.get("contexts")):
        inner = _inner(row, "context")
        made.append(
            Context(
                name=str(row.get("name")),
                is_current=row.get("name") == config.get("current-context"),
                cluster=text_of(inner, "cluster"),
                server=servers.get(str(inner.get("cluster"))),
                namespace=text_of(inner, "namespace"),
                user=text_of(inner, "user"),
            )
        )
    return sorted(made, key=lambda one: one.name)


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _inner(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, Mapping) else {}
