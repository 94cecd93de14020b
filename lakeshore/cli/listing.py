"""What `list` and `show` have in common: JSON of the rows as the server has them, or a table, or a sentence.

    Listing(rows, columns=("name", "kind", "changed"), cells=_cells, right=("changed",), gives=("kind",),
            empty="no things in namespace 'x'", as_json=as_json).print()

Rules: `--json` is the array, also when it is empty; a table fits the terminal (`output.table_text`) and is whole in a
pipe; the sentence is talk, so stdout stays empty. `--limit` cuts what is shown, `--all` does not; that there is more is
said, with what to type.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from .numbers import Whole
from .output import json_text, plain, say, table_text
from .watching import shown

if TYPE_CHECKING:
    from lakeshore.client.api import ApiClient

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def limit_options(usual: int | None = None, *, most: int | None = None, every: bool = True) -> Callable[[F], F]:
    """`--limit <n>` as `limit`, None for none. With a `usual` one also `--all` (`every`), unless that cannot be."""

    def options(command: F) -> F:
        if usual is not None and every:
            command = click.option("--all", "every", is_flag=True, help="All of them, however many.")(command)
        return click.option(
            "--limit",
            type=Whole(1, most),
            default=usual,
            show_default=usual is not None,
            metavar="<n>",
            help="Show so many at most." if usual is None else None,
        )(command)

    return options


def first(rows: Iterable[R], limit: int | None) -> tuple[list[R], bool]:
    """The first `limit` of them (None: all), and whether there are more; no page is asked for that nobody needs."""
    if limit is None:
        return list(rows), False
    found = list(islice(rows, limit + 1))
    return found[:limit], len(found) > limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[R]):
    """Rows, and how they are shown. `cells` makes a row's texts of it and of the time now; `gives` are the columns that
    become shorter where the terminal is narrow; `json_rows` makes a row's JSON where the row itself is none; `more`
    says how to see those that are not shown.
    """

    rows: Sequence[R] = field(kw_only=False)
    columns: Sequence[str]
    cells: Callable[[R, datetime], Sequence[str]]
    empty: str
    gives: str | Sequence[str]
    right: Iterable[str] = ()
    as_json: bool = False
    json_rows: Callable[[R], Any] | None = None
    more: str | None = None

    def print(self) -> None:
        """The rows on stdout; what is said about them on stderr."""
        if self.rows or self.as_json:
            sys.stdout.write(self._rows())
        else:
            say(self.empty)
        if self._note:
            say(self._note)

    def text(self) -> str:
        """All of it in one piece."""
        if self.as_json:
            return self._rows()
        if not self.rows:
            return f"{self.empty}\n"
        return self._rows() + (f"{self._note}\n" if self._note else "")

    @property
    def _note(self) -> str | None:
        return f"{len(self.rows)} shown; more with {self.more}" if self.more and self.rows else None

    def _rows(self) -> str:
        if self.as_json:
            return json_text([row if self.json_rows is None else self.json_rows(row) for row in self.rows])
        now = datetime.now(UTC)
        cells = [self.cells(row, now) for row in self.rows]
        return table_text(self.columns, cells, right=self.right, flexible=self.gives)


def watched(look: Callable[[], Listing[Any]], every: float | None, server: ApiClient, kind: str) -> None:
    """Printed, or with `every` shown again and again: see `watching.shown`."""
    if every is None:
        look().print()
    else:
        shown(lambda: look().text(), every, server, kind)


def facts(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Lines of a record: names in a column, `—` for what is not said."""
    pairs = list(pairs)
    width = max((len(name) for name, _said in pairs), default=0) + 2
    return [f"{name:<{width}}{'—' if said is None or said == '' else plain(said)}" for name, said in pairs]
