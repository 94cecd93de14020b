"""The events of a log as rows: which are shown, and what a row and its opened part say.

    HH:MM:SS  LEVEL  target  message   [+N fields — enter]

Pure: no terminal, no clock. A narrow terminal shortens the target, then leaves it out; what a row could not hold is in
its opened part, whole. Reference: nymph/status-tui.md, "Events log"; N-315, N-317.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from .lengths import cut, cut_middle, wrapped
from .status_text import clock
from .theme import FAINT, KEY, LEVEL_STYLES, PLAIN, drawable

if TYPE_CHECKING:
    from lakeshore.client.introspection import Event

    Key = tuple[Event, int]
    """An event, and how many equal ones came before it."""

RANKS: Final = {level: rank for rank, level in enumerate(LEVEL_STYLES, 1)}
_HEAD: Final = len("HH:MM:SS  LEVEL  ")
_MESSAGE: Final = 20
"""Below so many cells for the message the target gives way."""


def keyed(events: Iterable[Event]) -> list[Key]:
    """Each event with a name that it keeps while it is in the ring."""
    seen: Counter[Event] = Counter()
    found = []
    for event in events:
        found.append((event, seen[event]))
        seen[event] += 1
    return found


def shown(events: Iterable[Key], minimum: str) -> list[Key]:
    """Those of at least this level."""
    most = RANKS[minimum]
    return [key for key in events if RANKS[key[0].level] <= most]


def target_width(events: Iterable[Event], width: int) -> int:
    """How many cells targets have in a log of `width`; 0 where there is no room for them."""
    widest = max((cell_len(event.target) for event in events), default=0)
    share = width // 4 if width >= 100 else width // 5
    room = min(widest, share)
    return room if width - _HEAD - room - 2 >= _MESSAGE and share >= 10 else 0


def row(event: Event, *, width: int, target: int, selected: bool, opened: bool) -> list[Segment]:
    """One line of at most `width` cells."""
    hint = f"  [+{len(event.fields)} fields — enter]" if selected and event.fields and not opened else ""
    segments = [
        Segment(f"{clock(event.ts)}  ", FAINT),
        Segment(f"{event.level:<5}  ", LEVEL_STYLES[event.level]),
    ]
    left = width - _HEAD
    if target:
        name = cut_middle(drawable(event.target), target)
        segments.append(Segment(name + " " * (target - cell_len(name) + 2), FAINT))
        left -= target + 2
    if left - len(hint) < min(_MESSAGE // 2, left):
        hint = "  [+]" if hint else ""
    segments.append(Segment(cut(drawable(event.message), max(left - len(hint), 0)), PLAIN))
    if hint:
        segments.append(Segment(hint, KEY))
    return segments


def opened(event: Event, *, width: int, target: int) -> list[list[Segment]]:
    """The lines below a row that is open: what the row had no room for, then the fields."""
    indent = 4 if width < 80 else 10
    lines: list[list[Segment]] = []
    if cell_len(event.target) > target:
        lines += _pair("target", event.target, indent, width)
    if cell_len(drawable(event.message)) > width - _HEAD - (target + 2 if target else 0):
        lines += _pair("message", event.message, indent, width)
    for name, said in event.fields:
        lines += _pair(name, said, indent, width)
    return lines


def _pair(name: str, said: str, indent: int, width: int) -> list[list[Segment]]:
    label = f"{cut(drawable(name), max(width // 3, 8))} = "
    hanging = indent + 2
    first, *rest = _lines(said, width - indent - cell_len(label), width - hanging)
    return [
        [Segment(" " * indent), Segment(label, FAINT), Segment(first, PLAIN)],
        *([Segment(" " * hanging), Segment(line, PLAIN)] for line in rest),
    ]


def _lines(text: str, first: int, others: int) -> Sequence[str]:
    """Lines of what others wrote, none of which can steer the terminal; their own line ends are kept."""
    if "\n" not in text and cell_len(drawable(text)) <= first:
        return [drawable(text)]
    lines = [drawable(line) for line in text.expandtabs(4).split("\n")]
    if len(lines) > 1 or first < others // 2:
        return ["", *(part for line in lines for part in wrapped(line, others))]
    head, *tail = wrapped(lines[0], first)
    return [head, *(wrapped(" ".join(tail), others) if tail else [])]


def styled(segments: Iterable[Segment], over: Style) -> list[Segment]:
    """The same, with another style on top."""
    return [Segment(text, (style or PLAIN) + over) for text, style, _ in segments]
