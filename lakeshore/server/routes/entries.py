"""What the routes of tunnels, mounts and storages share: configs, warnings, pages, notes.

Rules: a config is a map of JSON; the secrets that it refers to exist in its namespace, at every write, and stay
references in every answer. What is probably a mistake is stored, and told in `warnings`.
Reference: get-started/tunnels; get-started/mounts; get-started/storages; S-117…S-119, S-803.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict, TypeVar

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request
from ..records import EntryRow, EntryRows
from ..records.commits import Statement
from ..records.events import EventRow, storing
from ..references import MARKER, storable
from ..render import iso
from ..shapes import SLUG, Time, longest, whole
from ..structure import bad_field

T = TypeVar("T")

NAME: Final = (SLUG, longest(200))
_PAGE: Final = 200
_MOST: Final = 500
_LOOKALIKE: Final = "$secret:"


class EntryChange(TypedDict, total=False):
    """All of the config; name and kind only as they are."""

    name: str
    kind: str
    config: dict[str, Any]


class EntryRevision(TypedDict, total=False):
    """Only while it has this one."""

    revision: Annotated[int, whole(0, 2**53)]


class EntryShown(TypedDict):
    """References to secrets stay references."""

    name: str
    kind: str
    config: dict[str, Any]
    namespace: str
    revision: int
    createdAt: Time
    updatedAt: Time
    warnings: NotRequired[list[str]]


class PageQuery(TypedDict, total=False):
    """Where a page begins, and how much is on it (200)."""

    limit: Annotated[int, whole(1, _MOST)]
    cursor: str


def config_of(app: App, ns: str, value: dict[str, Any]) -> dict[str, Any]:
    """A config that may be written down. HttpError 400, 413, 422."""
    if MARKER in value:
        raise bad_field("config", f"{MARKER} stands for a value within a config, not for a whole one", status=400)
    storable(value, "config", knows=lambda name: app.records.secrets.get(ns, name) is not None)
    return value


def text_of(value: Any, field: str, longest: int = 1024) -> str:
    """Text that is not empty. HttpError 422."""
    if type(value) is not str or not 0 < len(value) <= longest or not value.isprintable():
        raise bad_field(field, f"must be a string of 1 to {longest} printable characters")
    return value


def need_same(body: EntryChange, name: str, kind: str) -> None:
    """A PATCH names neither another name nor another kind. HttpError 400."""
    for field, now, said in (("name", name, body.get("name")), ("kind", kind, body.get("kind"))):
        if said not in (None, now):
            raise bad_field(field, "cannot be changed", hint=f"add another one with that {field}", status=400)


def need_revision(query: EntryRevision, name: str, revision: int) -> None:
    """`?revision=` is the one that the row has. HttpError 409."""
    wanted = query.get("revision")
    if wanted and wanted != revision:
        raise HttpError(
            409,
            f"{name!r} has changed meanwhile",
            field="revision",
            hint="read it again, and make the change to what it says now",
            revision=revision,
        )


def lookalikes(config: dict[str, Any]) -> list[str]:
    """A warning for each text that is no reference to a secret, but looks like one."""
    return [
        f'{at}: {value!r:.80} is text; a reference to a secret is the map {{"{MARKER}": "<name>"}}'
        for at, value in _texts(config, "config")
        if value.startswith(_LOOKALIKE)
    ]


def _texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{at}[{index}]")


def page_of(query: PageQuery, rows: Sequence[T], key: Callable[[T], str]) -> tuple[list[T], str | None]:
    """The rows behind `?cursor=`, at most `?limit=` (200, at most 500) of them, and the cursor of the following page.
    `rows` are in the order of `key`, either way; a row that went meanwhile does no harm.
    """
    limit, cursor = query.get("limit", _PAGE), query.get("cursor")
    if cursor is not None:
        falling = len(rows) > 1 and key(rows[0]) > key(rows[-1])
        rows = [row for row in rows if (key(row) < cursor if falling else key(row) > cursor)]
    shown = list(rows[:limit])
    return shown, key(shown[-1]) if len(rows) > limit else None


def notes_of(app: App, caller: Caller, noun: str, verb: str, name: str) -> tuple[Statement, ...]:
    """For the audit, and for who watches the namespace."""
    event = EventRow(ns=caller.ns, kind=f"{noun}.{verb}", at=time.time(), payload={noun: name, "actor": caller.name})
    return app.records.note(caller.name, caller.ns, f"{noun}.{verb}", name), storing(event)


def entry_of(rows: EntryRows, request: Request, caller: Caller) -> EntryRow:
    """The one that the path names. HttpError 404."""
    name = request.params["name"]
    row = rows.get(caller.ns, name)
    if row is None:
        raise HttpError(404, f"no {rows.noun} {name!r:.80}", "name", f"`lakeshore {rows.noun}s list` shows them")
    return row


def need_free(rows: EntryRows, ns: str, name: str) -> None:
    """Nobody has the name. HttpError 409."""
    if rows.get(ns, name) is not None:
        raise HttpError(409, f"there is a {rows.noun} {name!r} already", field="name")


def shown(row: EntryRow) -> dict[str, Any]:
    """An entry as it is told."""
    return {
        "name": row.name,
        "kind": row.kind,
        "config": row.config,
        "namespace": row.ns,
        "revision": row.revision,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
    }
