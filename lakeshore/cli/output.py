"""What commands print: JSON, tables, times.

Rules: data on stdout, talk on stderr. A table fits the terminal; into a pipe it is never cut, and what is in its first
column (ids) nowhere. With NO_COLOR there is no bold either; colour says nothing that the text does not say. Times are
ISO in JSON, local and relative for people.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

from lakeshore.client.steering import in_json, in_lines
from lakeshore.client.times import age as age
from lakeshore.client.times import ahead as ahead
from lakeshore.client.times import duration as duration
from lakeshore.client.times import moment as moment

from .cells import ELLIPSIS, cells, shortened
from .streams import PLAINLY_TOO

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000
USUAL_WIDTH = 80
"""Of a terminal that does not say."""
GAP = 2
NARROWEST = 5
"""What is left of a flexible column before others go."""
_BOLD = "1"
STATE_STYLES = {
    "queued": "36",
    "running": "34",
    "succeeded": "32",
    "failed": "31",
    "timeout": "31",
    "killed": "33",
    "active": "32",
    "stale": "33",
    "gone": "31",
    "done": "32",
}


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """A JSON document as stdout can have it."""
    readable = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return in_json(json.dumps(value, indent=2, ensure_ascii=not readable)) + "\n"


def say(message: str) -> None:
    """A line for the person, on stderr, after what stdout has got so far. It may quote others: see `plain`."""
    sys.stdout.flush()
    sys.stderr.write(plain(message) + "\n")
    sys.stderr.flush()


def one_line(text: object) -> str:
    """`plain`, in one line: what a table's cell can have."""
    return plain(text).replace("\n", "\\n").replace("\t", " ")


def writable(text: str) -> str:
    """`text` as stdout will have it, so that its width is known: see `streams`."""
    encoding = sys.stdout.encoding or "utf-8"
    return text if text.isascii() else text.encode(encoding, PLAINLY_TOO).decode(encoding)


def plain(text: object) -> str:
    """Text of others, which does not steer the terminal."""
    return in_lines(str(text))


def console(file: TextIO | None = None) -> Console:
    """A rich console for stdout, or for `file`: what draws and redraws. A table needs none."""
    from rich.console import Console  # wall: only what draws pays for it

    file = sys.stdout if file is None else file
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    width = None if file.isatty() else WIDE
    return Console(file=file, width=width, color_system=colours, highlight=False, markup=False, emoji=False)


def terminal_width(file: TextIO | None = None) -> int:
    """Columns of the terminal behind `file` (stdout); without limit where it is none."""
    file = sys.stdout if file is None else file
    if not file.isatty():
        return WIDE
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(file.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH


def has_colours(file: TextIO | None = None) -> bool:
    """Whether `file` (stdout) is a terminal that takes colours, and nobody forbids them."""
    file = sys.stdout if file is None else file
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    flexible: str | Sequence[str],
    width: int | None = None,
) -> None:
    """A table on stdout: see `table_text`."""
    sys.stdout.write(table_text(columns, rows, right=right, flexible=flexible, width=width))


def table_text(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    flexible: str | Sequence[str],
    width: int | None = None,
    capitals: bool = True,
) -> str:
    """A table without lines, a row a line. `right` columns are numbers. Where the terminal is narrow the `flexible`
    ones give way, the widest first; then the columns go from the last on; the first one stays whole.
    """
    width = terminal_width() if width is None else width
    heads = [name.upper() if capitals else name for name in columns]
    texts = [[writable(one_line(value)) for value in row] for row in rows]
    sizes = [max(map(cells, column)) for column in zip(heads, *texts, strict=True)]
    giving = {flexible} if isinstance(flexible, str) else set(flexible)
    least = [
        min(size, NARROWEST) if name in giving and at else size
        for at, (name, size) in enumerate(zip(columns, sizes, strict=True))
    ]
    shown = len(columns)
    while shown > 1 and sum(least[:shown]) + GAP * (shown - 1) > width:
        shown -= 1
    sizes = _narrowed(sizes[:shown], least, width - GAP * (shown - 1))
    numbers, bold, mark = set(right), has_colours(), writable(ELLIPSIS)
    styles = [STATE_STYLES if name == "state" and bold else {} for name in columns]
    lines = []
    for texts_of_row, head in ((heads, bold), *((row, False) for row in texts)):
        line = []
        for name, text, size, colour in zip(columns, texts_of_row, sizes, styles, strict=False):
            short = shortened(text, size, mark)
            pad = " " * (size - cells(short))
            code = _BOLD if head else colour.get(text)
            short = short if code is None else f"\x1b[{code}m{short}\x1b[0m"
            line.append(pad + short if name in numbers else short + pad)
        lines.append((" " * GAP).join(line).rstrip() + "\n")
    return "".join(lines)


def _narrowed(sizes: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Sizes that fit the room: the widest that may give gives a column of it at a time."""
    fitting = list(sizes)
    for _ in range(sum(fitting) - room):
        able = [at for at, size in enumerate(fitting) if size > least[at]]
        if not able:
            break
        fitting[max(able, key=fitting.__getitem__)] -= 1
    return fitting


def local_time(text: object, now: datetime) -> str:
    """A time for people: local, to the second, and how long ago, or how long until then."""
    found = moment(text)
    if found is None:
        return "—"
    how_far = ahead(text, now) if found > now else f"{age(text, now)} ago"
    return f"{found.astimezone():%Y-%m-%d %H:%M:%S %Z} ({how_far})"


def indented(value: Any, depth: int) -> list[str]:
    """A map or a list of others' as lines for a person, what is nested deeper in."""
    pad = "  " * depth
    pairs: list[tuple[str, Any]] = (
        [(f"{plain(key)}:", inner) for key, inner in value.items()]
        if isinstance(value, dict)
        else [("-", inner) for inner in value]
    )
    lines = []
    for label, inner in pairs:
        if isinstance(inner, dict | list) and inner:
            lines += [pad + label, *indented(inner, depth + 1)]
        else:
            lines.append(f"{pad}{label} {'—' if inner is None else plain(inner)}")
    return lines
