"""What stands around a list: the tab bar, the server's line, the banner, the line of questions and outcomes, the help.

Pure: from what is known and a width to text. Reference: cli/tui.md, "The four panes"; C-392, C-393, C-411, C-414.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..lengths import cut
from ..status_text import clock
from ..theme import BAD, DOUBTFUL, FAINT, GOOD, KEY, PLAIN, STRONG, drawable
from .actions import Action, hints
from .items import Item
from .tabs import TABS, Tab
from .tally import SHOWN, Tally
from .view import View

ACTIVE: Final = Style(reverse=True, bold=True)
_STYLES: Final = {"queued": Style(color="#5fd7d7"), "running": Style(color="#5fafd7"), "failed": BAD}
LEGEND: Final = (
    ("↑/↓", "select"),
    ("Enter", "open"),
    ("Tab", "next"),
    ("/", "filter"),
    ("<", "sort"),
    ("R", "refresh"),
    ("Y", "copy id"),
    ("?", "help"),
    ("q", "quit"),
)
PANE_LEGEND: Final = (
    ("Esc", "back"),
    ("↑/↓", "scroll"),
    ("←/→", "row before, next"),
    ("R", "refresh"),
    ("Y", "copy id"),
    ("?", "help"),
    ("q", "quit"),
)
KEYS: Final = (
    ("Tab, Shift+Tab", "the next tab, the one before"),
    ("1 2 3 4", "Workers, Queues, Invocations, Storage"),
    ("↑ ↓, page keys, Home, End", "another row; so do a click and the wheel"),
    (
        "Enter, a second click",
        "open the row; there ↑ ↓ scroll, ← → lead to the row before and the next, Esc back",
    ),
    ("R", "refresh this tab now"),
    ("/", "filter: words that a row must have, or column:word, as state:failed; Esc shows all"),
    ("< >", "sort by the column before, by the next one; so does a click on a title"),
    ("S", "sort the other way round"),
    ("Y", "copy the id of the selected row"),
    ("Ctrl-P", "every command by its name, and themes"),
    ("q, Ctrl-C", "quit"),
)


def bar(namespace: str, views: Sequence[View], active: Tab, width: int) -> tuple[Text, list[tuple[int, int, str]]]:
    """The tab bar, and where each tab's name stands: (first cell, cell after it, tab)."""
    text = Text(no_wrap=True, overflow="crop")
    text.append(" lakeshore", style=KEY).append(" · ", style=FAINT)
    counts = [f" {len(view.items):,}" if view.loaded else "" for view in views]
    names = sum(cell_len(view.tab.title) + 4 for view in views)
    whole = names + sum(map(len, counts))
    room = width - cell_len(text.plain) - (whole if whole + 24 <= width else names) - 1
    text.append(cut(drawable(namespace), max(room, 8)), style=STRONG).append(" ")
    places = []
    for number, (view, count) in enumerate(zip(views, counts, strict=True), start=1):
        left = cell_len(text.plain)
        said = f" {number} {view.tab.title}{count if whole + 24 <= width else ''} "
        text.append(said, style=ACTIVE if view.tab is active else FAINT)
        places.append((left, left + cell_len(said), view.tab.name))
    return text, places


def server_line(url: str, who: Mapping[str, Any] | None, tally: Tally, width: int) -> Text:
    """Which server, how we may talk to it, and what its calls do."""
    told = Text(no_wrap=True)
    for state in SHOWN:
        count, rate = tally.count(state), tally.per_s(state)
        if count is not None:
            told.append("  ").append(f"{state} ", style=FAINT).append(
                f"{count:,}", style=_STYLES[state] if count else PLAIN
            )
            if abs(rate) >= 0.05:
                told.append(f" {rate:+.1f}/s", style=FAINT)
    mode = f" ({who['authMode']})" if who is not None and who.get("authMode") else ""
    room = width - cell_len(told.plain) - 2
    left = cut(f"{drawable(url)}{drawable(mode)}", max(room, 0))
    text = Text(no_wrap=True, overflow="crop").append(f" {left}", style=FAINT)
    return text.append(" " * max(room - cell_len(left), 0)).append_text(told)


def banner(url: str, failure: str, last_at: float | None, interval: float) -> Text:
    """Why what is shown is not of now."""
    shown = "nothing was read yet" if last_at is None else f"this is of {clock(last_at)}"
    again = f"asking again every {interval:g}s"
    return Text(
        f" ✗ {drawable(url)}: {drawable(failure)} — {shown}, {again}", style=BAD, no_wrap=True, overflow="ellipsis"
    )


def question(asked: str) -> Text:
    """The confirm bar."""
    return Text(f" {drawable(asked)} … ", style=DOUBTFUL, no_wrap=True, overflow="crop").append("[y/n]", style=KEY)


def outcome(said: str, *, good: bool) -> Text:
    """`✓` or `✗`, and what happened."""
    text = f" {'✓' if good else '✗'} {drawable(said)}"
    return Text(text, style=GOOD if good else BAD, no_wrap=True, overflow="ellipsis")


def doing(action: Action, item: Item | None) -> Text:
    """While the server has not answered."""
    return Text(f" … {action.name}{'' if item is None else f' {item.name}'}", style=FAINT, no_wrap=True)


def idle(view: View, item: Item | None, may: Sequence[Action], width: int) -> Text:
    """That row's whole name, and all that may be done to it."""
    text = Text(no_wrap=True, overflow="ellipsis")
    place = f" {view.at + 1:,}/{len(view.shown):,}" if view.shown else " none"
    if len(view.shown) != len(view.items):
        place += f" of {len(view.items):,}, filter {view.filter!r}"
    hint = hints(may)
    room = width - cell_len(place) - cell_len(hint) - 5
    name = "" if item is None else cut(drawable(item.id), max(room, 8))
    text.append(place, style=FAINT)
    if name:
        text.append(f"  {name}", style=STRONG)
    return text.append("  ").append_text(marked(hint))


def marked(hint: str) -> Text:
    """A hint with its keys in colour."""
    text = Text(hint, style=FAINT, no_wrap=True)
    text.highlight_regex(r"(?<=\[)[^\]](?=\])", KEY)
    return text


def legend(width: int, *, pane: bool = False) -> Text:
    """The footer: as much of it as fits, its end before its middle; of the detail pane, where that is open."""
    every = PANE_LEGEND if pane else LEGEND
    sizes = [cell_len(key) + cell_len(what) + 3 for key, what in every]
    count, room, shown = len(every), width, set()
    for at in (0, count - 2, count - 1, *range(1, count - 2)):
        if sizes[at] > room:
            break
        shown.add(at)
        room -= sizes[at]
    text = Text(no_wrap=True, overflow="crop")
    for at in sorted(shown):
        key, what = every[at]
        text.append(f" {key} ", style=KEY).append(f"{what} ", style=FAINT)
    return text


def help_table() -> Table:
    """Every key, and what each tab's actions do: from the same table as they."""
    table = Table.grid(padding=(0, 2))
    for key, what in KEYS:
        table.add_row(Text(key, style=KEY), what)
    for tab in TABS:
        table.add_row("", "")
        table.add_row(Text(tab.title, style=STRONG), "")
        for action in tab.actions:
            asks = Text(" (asks first)" if action.question else "", style=FAINT)
            table.add_row(Text(action.hint, style=KEY), Text(action.what).append_text(asks))
    return table
