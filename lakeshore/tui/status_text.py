"""What stands above the log of `nymph tui`: the banner, and the state of the daemon when it last answered.

Pure: from an answer, a width and a time to text. Reference: nymph/status-tui.md, "Layout"; N-312…N-314.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from .lengths import cut, cut_middle, length
from .theme import BAD, DOUBTFUL, FAINT, GOOD, PLAIN, RUN_STATE_STYLES, drawable

if TYPE_CHECKING:
    from lakeshore.client.introspection import Look, Status

NOTHING_YET: Final = "no status yet — the header populates on the first successful poll"
_NONE: Final = "—"
_GAP: Final = 3
_LABEL: Final = len("run-state ")
_TWO_COLUMNS: Final = 60
_LEAST: Final = 16


def banner(url: str, *, asked: bool, failure: str | None, interval: float) -> Text:
    """The line that says whether the daemon answers."""
    url = drawable(url)
    if failure is not None:
        return Text(f"✗ daemon unreachable at {url} — {drawable(failure)} (retrying every {interval:g}s)", style=BAD)
    if not asked:
        return Text(f"◌ waiting for daemon at {url} (retrying…)", style=DOUBTFUL)
    return Text("● connected", style=GOOD)


def fields(look: Look | None, *, width: int, now: float, stale: bool) -> Text:
    """The daemon's state in as many columns as there is room for; faint when it is not of now."""
    if look is None:
        return Text(NOTHING_YET, style=FAINT)
    cells = _cells(look.status, now)
    columns = next((count for count in (4, 2) if sum(_widths(cells, count)) + _GAP * (count - 1) <= width), 1)
    if columns == 1 and width >= _TWO_COLUMNS:
        columns = 2
    widths = _widths(cells, columns)
    widths[-1] = min(widths[-1], max(width - sum(widths[:-1]) - _GAP * (columns - 1), _LEAST))
    text = Text(no_wrap=True, overflow="ellipsis")
    for place, (label, said, style) in enumerate(cells):
        column = place % columns
        if column == 0 and place:
            text.append("\n")
        room = widths[column] - _LABEL
        shown = cut_middle(said, room) if label == "worker" else cut(said, room)
        text.append(f"{label:<{_LABEL}}", style=FAINT)
        text.append(shown, style=FAINT if stale else style)
        if column < columns - 1:
            text.append(" " * (room - cell_len(shown) + _GAP))
    return text


def _widths(cells: Sequence[tuple[str, str, Style]], columns: int) -> list[int]:
    """How wide each column would like to be."""
    return [max(_LABEL + cell_len(said) for _, said, _ in cells[column::columns]) for column in range(columns)]


def _cells(status: Status, now: float) -> list[tuple[str, str, Style]]:
    state = status.run_state
    running = _NONE if status.inflight is None else str(status.inflight)
    if status.inflight and status.last_exec_id:
        running += f" (last {status.last_exec_id})"
    told = [
        ("run-state", state, RUN_STATE_STYLES.get(state or "", PLAIN)),
        ("version", status.version, PLAIN),
        ("queue", status.queue, PLAIN),
        ("worker", status.worker_id, PLAIN),
        ("uptime", None if status.uptime_s is None else length(status.uptime_s), PLAIN),
        ("last poll", _moment(status.last_poll_ok_ts, now), PLAIN),
        ("backoff", _backoff(status.backoff_s), DOUBTFUL if status.backoff_s else PLAIN),
        ("in-flight", running, GOOD if status.inflight else PLAIN),
    ]
    return [(label, _NONE if said is None else drawable(said), style) for label, said, style in told]


def _backoff(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return length(seconds) if seconds else "none"


def _moment(ts: float | None, now: float) -> str | None:
    if ts is None:
        return "never"
    return f"{clock(ts)} ({length(now - ts)} ago)"


def clock(ts: float) -> str:
    """`HH:MM:SS` here. A time that no calendar has is dashes."""
    try:
        return f"{datetime.fromtimestamp(ts):%H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return "--:--:--"
