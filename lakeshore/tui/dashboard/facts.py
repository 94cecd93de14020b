"""One row in full, as text: what the detail pane shows. Pure: from what was read, a width and a time.

A field that is missing or of another kind is an empty one. Reference: docs/guides/dashboard.md, "One row".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.style import Style
from rich.text import Text

from lakeshore.client.times import age, ahead, duration, moment

from ..lengths import length
from ..theme import BAD, DOUBTFUL, FAINT, GOOD, PLAIN, STATE_STYLES, STRONG
from .actions import call_state, worker_state
from .columns import NONE, Row
from .history import SPAN_S, History, drawn
from .items import Item
from .sheet import Sheet, size
from .tabs import INVOCATIONS, QUEUES, STORAGE, WORKERS, Tab, storage_target, worker_label

if TYPE_CHECKING:
    from .printed import Said

_SPARK: Final = 60
_TIMES: Final = (
    ("submittedAt", "submitted"),
    ("claimedAt", "claimed"),
    ("startedAt", "started"),
    ("finishedAt", "ended"),
)
_BETWEEN: Final = {"claimedAt": "waited", "startedAt": "got ready", "finishedAt": "ran"}
_EXEC_STYLES: Final = {"done": GOOD, "failed": BAD, "timeout": BAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of one row. `row` is the whole row, None until it was read; the others are of one kind of row each:
    `jobs` and `exec` of a worker, `stats` and `waiting` (why its oldest calls wait) of a queue, `printed`, `frames` and
    `attempt` (which printed) of an invocation. `gone`: it is there no more. `away`: why it is not of now.
    """

    row: Row | None = None
    jobs: Sequence[Row] = ()
    exec: Row | None = None
    stats: Row = field(default_factory=dict)
    waiting: Sequence[str] = ()
    printed: Sequence[Said] = ()
    frames: Sequence[str] = ()
    attempt: int | None = None
    gone: bool = False
    away: str = ""


def told(tab: Tab, item: Item, facts: Facts, history: History, *, width: int, now: datetime, at: float) -> Text:
    """The pane's text; `at`: now, as `history` counts."""
    sheet = Sheet(width)
    row = facts.row if facts.row is not None else item.row
    if facts.gone:
        sheet.line(f"✗ {item.name} is gone; this is what was read last", BAD)
    elif facts.away:
        sheet.line(f"✗ {facts.away}", BAD)
    if tab is QUEUES:
        _queue(sheet, item, row, facts, history, at, now)
    else:
        _TOLD[tab.name](sheet, row, facts, now)
    if facts.row is None and not facts.gone and not facts.away:
        sheet.line("reading…", FAINT)
    return sheet.text


def _state(sheet: Sheet, name: str, state: str) -> None:
    sheet.title(name, state, STATE_STYLES.get(state, PLAIN))


def _at(value: Any) -> str:
    found = moment(value)
    return NONE if found is None else f"{found.astimezone():%Y-%m-%d %H:%M:%S}"


def _past(sheet: Sheet, label: str, value: Any, now: datetime) -> None:
    sheet.fact(label, _at(value), more=f"{age(value, now)} ago" if moment(value) else "")


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# --- a worker


def _worker(sheet: Sheet, row: Row, facts: Facts, now: datetime) -> None:
    _state(sheet, worker_label(row), worker_state(row))
    for label, name in (("id", "id"), ("machine", "machineId")):
        sheet.fact(label, row.get(name))
    sheet.fact("queues", ", ".join(map(str, _list(row.get("queues")))))
    sheet.fact("tags", ", ".join(map(str, _list(row.get("tags")))))
    if row.get("providerName") or row.get("hostStatus"):
        sheet.fact("provider", row.get("providerName"), more=str(row.get("hostStatus") or ""))
    _past(sheet, "last poll", row.get("lastSeenAt"), now)
    _past(sheet, "said hello", row.get("helloAt"), now)
    if row.get("hibernateUntil"):
        sheet.fact("rests until", _at(row["hibernateUntil"]), more=ahead(row["hibernateUntil"], now))
    orders = [str(_map(one).get("kind")) for one in _list(row.get("orders"))]
    if orders:
        sheet.fact("told to", ", ".join(orders), DOUBTFUL, "from its next poll on")
    running, most = row.get("inFlight"), row.get("maxInvocations")
    sheet.head("in flight", f"{running if running is not None else NONE} of {most if most is not None else NONE}")
    for job in facts.jobs:
        state = call_state(job)
        since = age(job.get("startedAt") or job.get("claimedAt"), now)
        sheet.row(
            (str(job.get("id")), 26, PLAIN),
            (state, 10, STATE_STYLES.get(state, PLAIN)),
            (since, 5, FAINT),
            (str(job.get("queue") or NONE), 16, PLAIN),
            (str(job.get("functionQualname") or NONE), max(sheet.width - 65, 12), PLAIN),
        )
    if not facts.jobs and facts.row is not None:
        sheet.line("nothing", FAINT)
    sheet.head("last exec")
    _exec(sheet, facts, now)
    sheet.head("capabilities")
    sheet.nested(_map(row.get("capabilities")))


def _exec(sheet: Sheet, facts: Facts, now: datetime) -> None:
    done = facts.exec
    if done is None:
        if facts.row is not None:
            sheet.line("none", FAINT)
        return
    status = str(done.get("status"))
    code = f"exit {done['exit_code']}" if done.get("exit_code") is not None else ""
    took = done.get("duration_ms")
    more = ", ".join(
        word
        for word in (code, f"took {length(took / 1000)}" if isinstance(took, int | float) else "", _ago(done, now))
        if word
    )
    style = BAD if done.get("exit_code") else _EXEC_STYLES.get(status, PLAIN)
    sheet.fact("command", done.get("command"))
    sheet.fact("status", status, style, more)
    sheet.fact("id", done.get("exec_id"))
    if done.get("error"):
        sheet.fact("error", done["error"], BAD)


def _ago(row: Row, now: datetime) -> str:
    value = row.get("finished_at") or row.get("created_at")
    return f"{age(value, now)} ago" if moment(value) else ""


# --- a queue


def _queue(sheet: Sheet, item: Item, row: Row, facts: Facts, history: History, at: float, now: datetime) -> None:
    _state(sheet, item.id, str(row.get("state") or NONE))
    if row.get("description"):
        sheet.fact("for", row["description"])
    sheet.fact("kind", row.get("kind"))
    for label, name in (("admission", "admission"), ("kind's own", "kindParams"), ("elasticity", "elasticity")):
        if row.get(name):
            value = row[name]
            pairs = ", ".join(f"{key} {inner}" for key, inner in value.items()) if isinstance(value, Mapping) else value
            sheet.fact(label, pairs)
    if row.get("providerRef"):
        sheet.fact("provider", row["providerRef"])
    _past(sheet, "made", row.get("createdAt"), now)
    sheet.head("depth and throughput", f"of the last {SPAN_S:g} s")
    stats = {**row, **facts.stats}
    cells = min(_SPARK, max(sheet.width - 34, 10))
    for which, (label, name, style) in enumerate(_LINES, start=1):
        values = history.series(item.id, which, cells, at)
        most = max((value for value in values if value is not None), default=None)
        value = stats.get(name)
        said = NONE if not isinstance(value, int | float) else f"{value:,}" if which < 3 else f"{value:,.1f}"
        top = "" if most is None else f"most {most:,.0f}" if which < 3 else f"most {most:,.1f}"
        sheet.row((label, 10, FAINT), (drawn(values), cells, style), (said, 8, STRONG), (top, 12, FAINT))
    delayed, oldest = stats.get("delayed"), stats.get("oldest_age_s")
    if delayed:
        sheet.fact("delayed", f"{delayed:,}" if isinstance(delayed, int) else delayed, more="a part of those queued")
    if isinstance(oldest, int | float):
        sheet.fact("oldest", f"waits for {duration(oldest)}")
    if isinstance(used := stats.get("utilization"), int | float):
        sheet.fact("workers", f"{used:.0%} in use")
    if stats.get("held_submits"):
        sheet.fact("held", f"{stats['held_submits']:,} submits wait for room", DOUBTFUL)
    if facts.waiting:
        sheet.head("waits")
        for why in facts.waiting:
            sheet.line(why, DOUBTFUL)
    members = [_map(one) for one in _list(row.get("members"))]
    sheet.head("members", str(row.get("memberCount") if row.get("memberCount") is not None else len(members)))
    for one in members:
        state = str(one.get("state"))
        others = [name for name in map(str, _list(one.get("queues"))) if name != row.get("name")]
        sheet.row(
            (str(one.get("label") or one.get("id")), 28, PLAIN),
            (state, 11, STATE_STYLES.get(state, PLAIN)),
            (f"also {', '.join(others)}" if others else "", max(sheet.width - 43, 8), FAINT),
        )
    for title, name in (("run config", "runConfig"), ("daemon template", "daemonTemplate")):
        if row.get(name):
            sheet.head(title)
            sheet.nested(_map(row[name]))


_LINES: Final = (
    ("queued", "queued", Style(color="#5fd7d7")),
    ("running", "running", Style(color="#5fafd7")),
    ("ended/s", "throughput_per_s", GOOD),
)


# --- an invocation


def _call(sheet: Sheet, row: Row, facts: Facts, now: datetime) -> None:
    _state(sheet, str(row.get("functionQualname") or row.get("id")), call_state(row))
    sheet.fact("id", row.get("id"))
    sheet.fact("queue", row.get("queue"))
    sheet.fact(
        "worker", row.get("worker"), more=str(row["workerId"]) if row.get("workerId") != row.get("worker") else ""
    )
    most = row.get("maxAttempts")
    retried = isinstance(row.get("attempt"), int) and row["attempt"] > 1
    sheet.fact(
        "attempts", f"{row.get('attempt', NONE)}" + (f" of {most}" if most else ""), DOUBTFUL if retried else PLAIN
    )
    if "argsBytes" in row:
        sheet.fact("sizes", f"arguments {size(row['argsBytes'])}, result {size(row.get('resultBytes'))}")
    for label, name in (("key", "key"), ("parent", "parentInvocationId")):
        if row.get(name):
            sheet.fact(label, row[name])
    if row.get("priority"):
        sheet.fact("priority", f"{row['priority']:g}")
    if isinstance(left := row.get("leaseLeftS"), int | float):
        sheet.fact("lease", f"{left:.0f} s left", more="unless its worker polls before")
    waits = _map(row.get("waits"))
    if waits or row.get("why"):
        sheet.fact("waits", waits.get("message") or row.get("why"), DOUBTFUL)
        for one in map(_map, _list(waits.get("workers"))):
            sheet.fact("", f"{one.get('label') or one.get('id')}: {one.get('why')}", FAINT)
    _timeline(sheet, row, now)
    _error(sheet, row.get("error"))
    if row.get("runConfig"):
        sheet.head("run config")
        sheet.nested(_map(row["runConfig"]))
    if facts.frames:
        sheet.head("frames", str(row.get("frames") or ""))
        for line in facts.frames:
            sheet.line(line, wraps=False)
    if facts.row is not None:
        sheet.head("printed", f"attempt {facts.attempt}" if facts.attempt else "")
        for stream, line in facts.printed:
            sheet.line(line, _STREAMS.get(stream, PLAIN))
        if not facts.printed:
            sheet.line("nothing yet" if row.get("finishedAt") is None else "nothing", FAINT)


_STREAMS: Final = {"stderr": DOUBTFUL, "note": FAINT}


def _timeline(sheet: Sheet, row: Row, now: datetime) -> None:
    sheet.head("timeline")
    before = None
    for name, label in _TIMES:
        found = moment(row.get(name))
        took = ""
        if found is not None and before is not None and name in _BETWEEN:
            how = "waited" if row.get("claimedAt") is None else _BETWEEN[name]
            took = f"{how} {length((found - before).total_seconds())}"
        elif found is not None and before is None:
            took = f"{age(row.get(name), now)} ago"
        elif found is None and before is not None and _lasts(row, name):
            took = f"{_LASTS[name]} for {length((now - before).total_seconds())}"
        sheet.fact(label, _at(row.get(name)), more=took)
        before = found if found is not None else before
        if name == "submittedAt" and row.get("due") and row.get("claimedAt") is None:
            sheet.fact("due", _at(row["due"]), more=ahead(row["due"], now))


_LASTS: Final = {"claimedAt": "waits", "startedAt": "gets ready", "finishedAt": "runs"}


def _lasts(row: Row, name: str) -> bool:
    """Whether that is what it waits for now."""
    if row.get("finishedAt") is not None:
        return False
    if name == "claimedAt":
        return row.get("state") == "queued"
    if name == "startedAt":
        return row.get("claimedAt") is not None and row.get("state") == "running"
    return row.get("startedAt") is not None and row.get("state") == "running"


def _error(sheet: Sheet, error: Any) -> None:
    if not error:
        return
    known = _map(error)
    sheet.head("error")
    sheet.line(f"{known.get('type') or 'Error'}: {known.get('message') or ''}" if known else str(error), BAD)
    rest = {key: value for key, value in known.items() if key not in ("type", "message", "traceback")}
    sheet.nested(rest)
    for line in str(known.get("traceback") or "").rstrip().splitlines():
        sheet.line(line.expandtabs(4))


# --- a storage


def _storage(sheet: Sheet, row: Row, facts: Facts, now: datetime) -> None:
    sheet.title("/".join(str(row[part]) for part in ("namespace", "name") if row.get(part)), str(row.get("kind") or ""))
    if row.get("description"):
        sheet.fact("for", row["description"])
    sheet.fact("target", storage_target(row))
    for name in ("bucket", "prefix", "endpoint"):
        sheet.fact(name, row.get(name) or _map(row.get("config")).get(name))
    _past(sheet, "made", row.get("createdAt"), now)
    _past(sheet, "changed", row.get("updatedAt"), now)
    rest = {key: value for key, value in _map(row.get("config")).items() if key not in ("bucket", "prefix", "endpoint")}
    if rest:
        sheet.head("configuration")
        sheet.nested(rest)


_TOLD: Final[dict[str, Callable[[Sheet, Row, Facts, datetime], None]]] = {
    WORKERS.name: _worker,
    INVOCATIONS.name: _call,
    STORAGE.name: _storage,
}
