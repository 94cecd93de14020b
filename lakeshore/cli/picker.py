"""Picking from a list on the terminal: drawn in place, below the prompt, and gone when something is picked.

    ↑ ↓ (or Ctrl-P, Ctrl-N)   move        typing     only what contains the words
    Enter                     pick        Backspace  a letter less
    Space (of several)        mark        Esc, Ctrl-C, Ctrl-D   pick nothing
    → ←                       unfold what else is known of a row, and fold it

Rules: it is drawn on stderr, so that stdout may be a pipe; the terminal is as it was however it ends; what others chose
(labels, tags) does not steer it; a tag has the colour of its text, here and in the next list. `Picking` is the state
and the lines, and touches no terminal. Not Textual: a list of ten lines is not worth its start, which is several times
that of the command.
Reference: cli/release-notes.md, 0.1.15; cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import tty
import zlib
from collections.abc import Iterator, Sequence

from .output import has_colours, plain

SHOWN = 10
"""Lines of the list at once."""
_KEYS = {
    code: name
    for name, codes in {
        "up": (b"\x1b[A", b"\x1bOA", b"\x10"),
        "down": (b"\x1b[B", b"\x1bOB", b"\x0e"),
        "right": (b"\x1b[C", b"\x1bOC"),
        "left": (b"\x1b[D", b"\x1bOD"),
        "page up": (b"\x1b[5~",),
        "page down": (b"\x1b[6~",),
        "first": (b"\x1b[H",),
        "last": (b"\x1b[F",),
        "enter": (b"\r", b"\n"),
        "back": (b"\x7f", b"\x08"),
        "clear": (b"\x15",),
        "leave": (b"\x1b", b"\x03", b"\x04"),
    }.items()
    for code in codes
}
_ESCAPE_S = 0.05
"""Within which the rest of a key's sequence has come; else it was Esc itself."""


_COLOURS = (31, 32, 33, 34, 35, 36)


class Picking:
    """What is on show, and what is picked. `rows` are cells; `result` is their numbers once it is over, else None.

    `tags` is the number of the column that has tags between commas; `more[n]` are the lines that row n unfolds to.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[Sequence[str]],
        *,
        several: bool = False,
        shown: int = SHOWN,
        tags: int | None = None,
        more: Sequence[Sequence[str]] = (),
    ) -> None:
        self._title, self._several, self._shown = title, several, shown
        self._more = [[plain(line).replace("\n", " ") for line in lines] for lines in more]
        self._open = False
        cells = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
        widths = [max(map(len, column), default=0) for column in zip(*cells, strict=True)] if cells else []
        self._lines = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        self._tags = [_spans(row[tags], sum(widths[:tags]) + 2 * tags) for row in cells] if tags is not None else []
        self._words = ""
        self._at = 0
        self._top = 0
        self._marked: set[int] = set()
        self.result: list[int] | None = None
        self.over = False

    def _matching(self) -> list[int]:
        words = self._words.lower().split()
        return [n for n, line in enumerate(self._lines) if all(word in line.lower() for word in words)]

    def key(self, key: str) -> None:
        """A key by its name, or the text that was typed."""
        matching = self._matching()
        self._open = key == "right" and bool(self._more)
        if key == "leave":
            self.over = True
        elif key in ("left", "right"):
            return
        elif key == "enter":
            if self._marked or (matching and not self._several):
                self.result, self.over = sorted(self._marked) or [matching[self._at]], True
            elif matching:
                self.result, self.over = [matching[self._at]], True
        elif key == " " and self._several:
            if matching:
                self._marked ^= {matching[self._at]}
                self._move(1, len(matching))
        elif key in (moves := {"up": -1, "down": 1, "page up": -self._shown, "page down": self._shown}):
            self._move(moves[key], len(matching))
        elif key in ("first", "last"):
            self._at = 0 if key == "first" else max(len(matching) - 1, 0)
        else:
            if key == "back":
                self._words = self._words[:-1]
            elif key == "clear":
                self._words = ""
            elif key.isprintable():
                self._words += key
            self._at = self._top = 0

    def _move(self, by: int, count: int) -> None:
        self._at = max(0, min(self._at + by, count - 1))

    def lines(self, width: int, height: int, *, colours: bool = False) -> list[str]:
        """What to draw, each line no wider than `width`, no more than `height` of them."""
        matching = self._matching()
        room = max(1, min(self._shown, height - 2))
        below = self._more[matching[self._at]][: height - 3] if self._open and matching else []
        room = max(1, min(room, height - 2 - len(below)))
        self._top = max(min(self._top, self._at), self._at - room + 1)
        shown = matching[self._top : self._top + room]
        drawn = [f"{self._title}: {self._words}"]
        for n in shown:
            mark = ("[x] " if n in self._marked else "[ ] ") if self._several else ""
            line = f"{'>' if n == matching[self._at] else ' '} {mark}{self._lines[n]}"[: max(width - 1, 1)]
            at = 2 + len(mark)
            drawn.append(_coloured(line, at, self._tags[n]) if colours and self._tags else line)
            if n == matching[self._at]:
                drawn += [f"      {line}"[: max(width - 1, 1)] for line in below]
        moves = "↑↓ move, → tells more" if self._more else "↑↓ move"
        keys = (
            f"{moves}, space marks, enter takes, esc leaves" if self._several else f"{moves}, enter picks, esc leaves"
        )
        many = f"{len(matching)} of {len(self._lines)}; " if len(matching) != len(shown) or self._words else ""
        drawn.append(f"  {many}{keys}" if matching else "  nothing matches")
        drawn[0], drawn[-1] = (drawn[end][: max(width - 1, 1)] for end in (0, -1))
        return drawn


def _spans(cell: str, at: int) -> list[tuple[int, int, int]]:
    """Where the tags of a cell begin and end in a line where the cell begins `at`, and the colour of each."""
    found = []
    for tag in cell.split(","):
        if tag:
            found.append((at, at + len(tag), _COLOURS[zlib.crc32(tag.encode()) % len(_COLOURS)]))
        at += len(tag) + 1
    return found


def _coloured(line: str, by: int, spans: list[tuple[int, int, int]]) -> str:
    """The line with its tags, `by` cells further on, in their colours."""
    for begin, end, colour in reversed(spans):
        begin, end = begin + by, min(end + by, len(line))
        if begin < end:
            line = f"{line[:begin]}\x1b[{colour}m{line[begin:end]}\x1b[39m{line[end:]}"
    return line


def pick(
    title: str, rows: Sequence[Sequence[str]], *, tags: int | None = None, more: Sequence[Sequence[str]] = ()
) -> int | None:
    """The number of the row that is picked on the terminal; None for none. `tags`, `more`: as `Picking` has them."""
    result = _picked(Picking(title, rows, tags=tags, more=more))
    return result[0] if result else None


def pick_several(title: str, rows: Sequence[Sequence[str]], *, shown: int = SHOWN) -> list[int]:
    """The numbers of the rows that are marked; the one under the cursor when none is; empty for none."""
    return _picked(Picking(title, rows, several=True, shown=shown)) or []


def _picked(picking: Picking) -> list[int] | None:
    """Run it on the terminal that stdin and stderr are."""
    fd, out = sys.stdin.fileno(), sys.stderr
    before = termios.tcgetattr(fd)
    drawn = 0
    try:
        tty.setraw(fd)
        drawn = _draw(picking, drawn)
        for key in _keys(fd):
            picking.key(key)
            if picking.over:
                break
            drawn = _draw(picking, drawn)
    finally:
        out.write(f"{_up(drawn)}\r\x1b[J")
        out.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
    return picking.result


def _draw(picking: Picking, before: int) -> int:
    size = shutil.get_terminal_size()
    lines = picking.lines(size.columns, size.lines, colours=has_colours(sys.stderr))
    sys.stderr.write(f"{_up(before)}\r\x1b[J" + "\r\n".join(lines))
    sys.stderr.flush()
    return len(lines)


def _up(lines: int) -> str:
    return f"\x1b[{lines - 1}A" if lines > 1 else ""


def _keys(fd: int) -> Iterator[str]:
    """Keys as they come: names, or what was typed; ends with the terminal."""
    rest = b""
    while True:
        data = os.read(fd, 1024)
        if not data:
            return
        rest += data
        while rest:
            taken = _one(fd, rest)
            if taken is None:
                break  # a letter of several bytes, of which some are missing
            key, rest = taken
            if key:
                yield key


def _one(fd: int, data: bytes) -> tuple[str, bytes] | None:
    """The first key of `data` and what is left; None when more is needed."""
    if data[:1] == b"\x1b" and len(data) == 1 and select.select([fd], [], [], _ESCAPE_S)[0]:
        data += os.read(fd, 1024)
    for size in (4, 3, 1):
        name = _KEYS.get(data[:size])
        if name is not None and not (name == "leave" and size == 1 and data[:2] in (b"\x1b[", b"\x1bO")):
            return name, data[size:]
    if data[:1] == b"\x1b":  # a key that means nothing here: to its last byte
        end = next((at for at, byte in enumerate(data[2:], 2) if 0x40 <= byte <= 0x7E), len(data) - 1)
        return "", data[end + 1 :]
    for size in range(1, 5):
        try:
            return data[:size].decode(), data[size:]
        except UnicodeDecodeError:
            if len(data) < size:
                return None
    return "", data[1:]
