"""Which resources a write of the records changes: told by the table that a statement names, and the values that it has.

A table of resources needs nothing here unless its kind has another name than the table's plural (`mode` → `modes`), or
its rows are a part of something else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .commits import Statements

Change = tuple[str, str, str | None, bool]
"""Kind, namespace, name or id (None: any of them), and whether it is gone."""

_WRITES: Final = re.compile(r"\s*(INSERT|REPLACE|UPDATE|DELETE)\b(?:\s+OR\s+\w+)?(?:\s+INTO|\s+FROM)?\s+(\w+)", re.I)
SILENT: Final = frozenset({"audit", "mark", "nonce", "nymph_release"})
EVENTS: Final = frozenset({"event", "elasticity_event"})
PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "token": ("tokens", "id"),
    "removed_worker": ("workers", "id"),
    "worker_order": ("workers", "worker"),
    "machine": ("workers", "worker"),
    "daemon_key": ("workers", "worker_id"),
}
"""Kind, and which value names the resource: where a row is a part of one, or has a name besides its id."""
_OTHERWISE: Final[Mapping[str, str]] = {"enroll_token": "enroll-tokens", "code_repo": "code", "exec_job": "exec"}


def changed(statements: Statements) -> Iterator[Change]:
    """What these statements change, once they are committed."""
    noted: str | None = None
    for _statement, values in statements:
        if "actor" in values:  # the audit's line names the namespace of what it stands beside
            noted = values["ns"]
    for statement, values in statements:
        verb, table = written(statement)
        if table in SILENT or not table:
            continue
        if table == "namespace":
            yield "namespaces", values["name"], values["name"], verb == "DELETE"
            continue
        ns = values.get("ns", noted)
        if ns is None or (table in EVENTS and verb == "DELETE"):
            continue
        if table in EVENTS:
            yield "events", ns, "", False
        elif table in PARTS:
            kind, name = PARTS[table]
            yield kind, ns, values.get(name), False
        else:
            yield kind_of(table), ns, _named(values), verb == "DELETE"


@functools.lru_cache(maxsize=1024)
def written(statement: str) -> tuple[str, str]:
    """The verb and the table of a statement; two empty texts for one that only reads."""
    found = _WRITES.match(statement)
    return ("", "") if found is None else (found[1].upper(), found[2].lower())


def kind_of(table: str) -> str:
    """What rows of a table are called in paths."""
    return _OTHERWISE.get(table, f"{table.replace('_', '-')}s")


def _named(values: Mapping[str, Any]) -> str | None:
    name = values.get("name", values.get("id"))
    return name if isinstance(name, str) else None
