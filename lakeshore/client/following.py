"""What changed at a control plane since the last question: the answers of `/v1/…/changes`, and a follower of them.

`Follower` is for one thread; `watch.py` has the same for a loop of asyncio.
Reference: docs/guides/watching.md; S-068…S-075.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .api import ApiClient, Query, path_of
from .errors import NotLakeshore

HOLD_S: Final = 30.0
PATIENCE_S: Final = 15.0
"""An answer may come so much later than it should."""
ALL: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One resource. `kind` is what its path says: `workers`, `queues`, `invocations`, `exec`, `modes`, …

    `row` is what the list of that kind shows of it; None for one that is gone, and for kinds whose rows are not sent
    (they change rarely: list them). The `id` of `events` is empty: there are newer ones.
    """

    kind: str
    namespace: str
    id: str
    gone: bool
    row: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """`reset`: kinds to list anew. `away`: why the server cannot be reached; nothing else is told then."""

    reset: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    away: str | None = None
    cursor: int = field(default=0, repr=False)

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind that is no longer as it was."""
        return frozenset(self.reset) | {change.kind for change in self.changes}


class Place:
    """Where a watcher is: what to ask next, and what an answer means. Pure."""

    def __init__(self, namespace: str, kinds: Iterable[str], *, rows: bool, limit: int) -> None:
        self.path = "/v1/admin/changes" if namespace == ALL else path_of(namespace, "changes")
        self._query: list[tuple[str, str | int | None]] = [("kinds", ",".join(kinds) or None), ("limit", limit)]
        if not rows:
            self._query.append(("rows", "false"))
        self.cursor: int | None = None

    def query(self, hold_s: float) -> Query:
        """Of the next question."""
        return [*self._query, ("since", self.cursor), ("hold_s", f"{hold_s:g}")]

    def take(self, answer: Any) -> News:
        """What an answer told. NotLakeshore for one that is none."""
        try:
            news = News(
                cursor=int(answer["cursor"]),
                reset=tuple(map(str, answer["reset"])),
                changes=tuple(
                    Change(
                        kind=str(one["kind"]),
                        namespace=str(one["namespace"]),
                        id=str(one["id"]),
                        gone=bool(one["gone"]),
                        row=one.get("row"),
                    )
                    for one in answer["changes"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotLakeshore("what changed was answered in no known way; is the server newer?", status=200) from error
        self.cursor = news.cursor
        return news


class Follower:
    """The same on a connection of `api`, for one thread: `wait` returns when something changed, or the time is up."""

    def __init__(self, api: ApiClient, kinds: Iterable[str]) -> None:
        self._api = api
        self._place = Place(api.namespace, kinds, rows=False, limit=500)

    def wait(self, seconds: float) -> bool:
        """Whether anything changed since the last call (the first: it may have). Raises ApiError, NetError."""
        hold_s = min(seconds, HOLD_S)
        answer = self._api.call("GET", self._place.path, self._place.query(hold_s), timeout=hold_s + PATIENCE_S)
        news = self._place.take(answer)
        return bool(news.reset or news.changes)
