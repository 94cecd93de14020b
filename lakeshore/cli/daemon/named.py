"""Which daemon a word means: a worker id, a label, a machine id, or the unambiguous beginning of one.

Rules: what is named whole goes before what is only begun; an id in the form of ours is not looked up; where several
match nothing is done, and the candidates are listed. The look-up is the command's: the server knows ids only.
Reference: cli.md, "Exec and run"; cli/release-notes.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakeshore.client.workers import Workers

from ..exits import ExitCode
from ..failures import Failure
from ..output import age, local_time, moment, say

Row = Mapping[str, Any]
ID_SHAPED = re.compile(r"[0-9a-f]{24}", re.ASCII)
MACHINE_SHOWN = 12
"""Characters of a machine id that stand for a label which is missing."""
MANY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A daemon that was named. `row` is None where nothing was looked up, and `begun` when only a beginning matched."""

    id: str
    row: Row | None = None
    begun: bool = False

    @property
    def label(self) -> str:
        """What people call it."""
        return self.id if self.row is None else label_of(self.row)


def tell_of_rest(one: Found) -> None:
    """Say it to who gives one something to do while it hibernates: it does not ask before it wakes."""
    if one.row is not None and one.row.get("state") == "hibernating":
        until = local_time(one.row.get("hibernateUntil"), datetime.now(UTC))
        say(f"{one.label} rests until {until}, and hears of it then")


def find(workers: Workers, word: str, *, literal: bool = False) -> Found:
    """The daemon that `word` means; `literal` takes it for an id. Failure for none, or several."""
    if literal or ID_SHAPED.fullmatch(word):
        return Found(id=word)
    return among(workers.all(), word)


def among(rows: Sequence[Row], word: str) -> Found:
    """The same among `rows`."""
    if not word:
        raise Failure("no daemon has an empty name", hint="`lakeshore daemon list` shows them", code=ExitCode.USAGE)
    for begun in (False, True):
        matching = [row for row in rows if any(_fits(name, word, begun) for name in _names(row))]
        if len(matching) == 1:
            return Found(id=str(matching[0]["id"]), row=matching[0], begun=begun)
        if matching:
            raise Failure(
                f"{word!r} names {len(matching)} daemons:\n{candidates(matching)}",
                hint="name one by its worker id",
                code=ExitCode.USAGE,
            )
    raise Failure(f"no daemon is called {word!r}", hint="`lakeshore daemon list` shows them")


def candidates(rows: Iterable[Row]) -> str:
    """Lines that tell rows apart, freshest first."""
    now = datetime.now(UTC)
    rows = freshest_first(rows)
    lines = [
        "  ".join(
            ("", str(row["id"]), label_of(row), str(row.get("state")), f"seen {age(row.get('lastSeenAt'), now)} ago")
        )
        for row in rows[:MANY]
    ]
    return "\n".join([*lines, *([f"  and {len(rows) - MANY} more"] if len(rows) > MANY else [])])


def labelled(rows: Iterable[Row], prefix: str) -> list[Row]:
    """Those whose label begins so."""
    return [row for row in rows if prefix and str(row.get("label") or "").startswith(prefix)]


def freshest_first(rows: Iterable[Row]) -> list[Row]:
    """By when they were last seen; never seen comes last."""
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(rows, key=lambda row: moment(row.get("lastSeenAt")) or never, reverse=True)


def label_of(row: Row) -> str:
    """The label; the beginning of the machine id, or the worker id, where there is none."""
    return str(row.get("label") or machine_of(row)[:MACHINE_SHOWN] or row.get("id"))


def machine_of(row: Row) -> str:
    """The machine id."""
    return str(row.get("machineId") or "")


def _names(row: Row) -> Iterable[str]:
    return (str(name) for name in (row.get("id"), row.get("label"), row.get("machineId")) if name)


def _fits(name: str, word: str, begun: bool) -> bool:
    return name.startswith(word) if begun else name == word
