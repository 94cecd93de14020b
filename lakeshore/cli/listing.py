"""What `list` and `show` have in common: JSON of the rows as the server has them, or a table, or a sentence.

    listed(rows, columns=("name", "kind", "changed"), cells=_cells, right=("changed",), gives=("kind",),
           empty="no things in namespace 'x'", as_json=as_json)

Rules: `--json` is the array, also when it is empty; a table fits the terminal (`output.table_text`) and is whole in a
pipe; the sentence is talk, so stdout stays empty. `--limit` cuts what is shown, `--all` does not; that there is more is
said, with what to type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

import click

from lakeshore.client.following import Follower

from .numbers import Whole
from .output import json_text, plain, print_json, print_table, say, table_text
from .watching import shown

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


def listed(
    rows: Sequence[R],
    *,
    columns: Sequence[str],
    cells: Callable[[R, datetime], Sequence[str]],
    empty: str,
    gives: str | Sequence[str],
    right: Iterable[str] = (),
    as_json: bool = False,
    json_rows: Callable[[R], Any] | None = None,
    more: str | None = None,
) -> None:
    """Print rows. `cells` makes a row's texts of it and of the time now; `gives` are the columns that become shorter
    where the terminal is narrow; `json_rows` makes a row's JSON where the row itself is none; `more` says how to see
    those that are not shown.
    """
    if as_json:
        print_json([row if json_rows is None else json_rows(row) for row in rows])
    elif not rows:
        say(empty)
    else:
        now = datetime.now(UTC)
        print_table(columns, [cells(row, now) for row in rows], right=right, flexible=gives)
    if more and rows:
        say(f"{len(rows)} shown; more with {more}")


def watched(look: Callable[[], functools.partial[None]], every: float | None, changes: Follower) -> None:
    """A `listed(…)` that is yet to be called: called, or with `every` shown again and again."""
    if every is None:
        look()()
        return

    def text() -> str:
        made = look()
        return listed_text(*made.args, **made.keywords)

    shown(text, every, changes)


def listed_text(
    rows: Sequence[R],
    *,
    columns: Sequence[str],
    cells: Callable[[R, datetime], Sequence[str]],
    empty: str,
    gives: str | Sequence[str],
    right: Iterable[str] = (),
    as_json: bool = False,
    json_rows: Callable[[R], Any] | None = None,
    more: str | None = None,
) -> str:
    """What `listed` prints, in one piece."""
    if as_json:
        return json_text([row if json_rows is None else json_rows(row) for row in rows])
    if not rows:
        return f"{empty}\n"
    now = datetime.now(UTC)
    table = table_text(columns, [cells(row, now) for row in rows], right=right, flexible=gives)
    return f"{table}{len(rows)} shown; more with {more}\n" if more else table


def facts(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Lines of a record: names in a column, `—` for what is not said."""
    pairs = list(pairs)
    width = max((len(name) for name, _said in pairs), default=0) + 2
    return [f"{name:<{width}}{'—' if said is None or said == '' else plain(said)}" for name, said in pairs]
