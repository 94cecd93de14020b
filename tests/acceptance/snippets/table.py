"""The table of the reference's Python blocks: which page and lines, where it runs, what must come out.

The `*.yaml` files beside this one hold it: for each page a list of entries.

    lines       "46-54", the block with its fences                                     (required)
    rows        the inventory's rows that it shows                                     (required)
    planes      file: the local plane of a private home; http: a control plane; none: the block brings its own or needs
                none. Default [none]; each is a test of its own
    worker      a process that drains: {queue: name, count: 1, pickled: true for --allow-pickled over HTTP}
    by_hand     a queue that a hand-written loop drains: it answers {"answered": payload}
    setup       code before everything: imports and stand-ins that the page leaves to the reader
    after       earlier blocks of the page that this one continues
    given       code right before the block
    then        code after the block: what must be true
    stdout      what the block and `then` print; <id> is an invocation id, <s> seconds, <more> anything;
                `unordered: true` for any order of lines
    fails       the last line of the error with which the program must end
    waits       true: it waits for a timeout on purpose; these run side by side
    module      name of the importable file that holds the block; the program is then `then`
    files       {name: content} beside the program, such as a module whose functions travel by reference
    loop        true: top-level `await`, as in a notebook
    steps       several programs in turn, in one directory and on one plane: each has its own setup, given, then,
                stdout, fails, and `only: ["29-31"]`, the lines of the block that it runs
    shape       a name: the block is no program but shows a value. `then` finds it under this name, `…` read as `...`
    signature   ["module:name", ...]: the block shows signatures of these callables or of these classes' methods
    exception   why the block is neither run nor compared
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .reference import Lines

HERE = Path(__file__).parent
PLANES = ("none", "file", "http")
OF_A_STEP = {"setup", "given", "only", "then", "stdout", "fails", "unordered"}
OF_AN_ENTRY = OF_A_STEP | {
    *("lines", "rows", "planes", "worker", "by_hand", "after", "waits", "module", "files"),
    *("loop", "steps", "shape", "signature", "exception"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOf:
    """The processes that drain a queue."""

    queue: str
    count: int = 1
    pickled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One program."""

    setup: str = ""
    given: str = ""
    only: tuple[Lines, ...] = ()
    then: str = ""
    stdout: str = ""
    unordered: bool = False
    fails: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One block of the reference."""

    page: str
    lines: Lines
    rows: tuple[str, ...]
    planes: tuple[str, ...] = ("none",)
    worker: WorkerOf | None = None
    by_hand: str | None = None
    after: tuple[Lines, ...] = ()
    steps: tuple[Step, ...] = ()
    waits: bool = False
    module: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    loop: bool = False
    shape: str | None = None
    signatures: tuple[str, ...] = ()
    exception: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.lines[0]}-{self.lines[1]}"

    @property
    def is_run(self) -> bool:
        return self.exception is None and not self.signatures


def entries() -> list[Entry]:
    """The whole table."""
    return [
        _entry(page, fields)
        for path in sorted(HERE.glob("*.yaml"))
        for page, listed in yaml.safe_load(path.read_text("utf-8")).items()
        if not page.startswith("_")
        for fields in listed
    ]


def runs(table: list[Entry]) -> Iterator[tuple[Entry, str]]:
    """Each block that is run, once for each plane."""
    for entry in table:
        if entry.is_run:
            yield from ((entry, plane) for plane in entry.planes)


def _entry(page: str, fields: dict[str, Any]) -> Entry:
    where = f"{page}:{fields.get('lines')}"
    assert fields.keys() <= OF_AN_ENTRY, f"{where}: unknown {sorted(fields.keys() - OF_AN_ENTRY)}"
    own = {name: fields[name] for name in OF_A_STEP & fields.keys()}
    steps = fields.get("steps") or [own]
    assert not (own and "steps" in fields), f"{where}: {sorted(own)} belong into the steps"
    planes = tuple(fields.get("planes", ["none"]))
    assert set(planes) <= set(PLANES), f"{where}: a plane is one of {PLANES}"
    worker = fields.get("worker")
    return Entry(
        page=page,
        lines=_lines(fields["lines"]),
        rows=tuple(fields["rows"]),
        planes=planes,
        worker=None if worker is None else WorkerOf(**worker),
        by_hand=fields.get("by_hand"),
        after=tuple(_lines(text) for text in fields.get("after", ())),
        steps=tuple(_step(where, step) for step in steps),
        waits=fields.get("waits", False),
        module=fields.get("module"),
        files=fields.get("files", {}),
        loop=fields.get("loop", False),
        shape=fields.get("shape"),
        signatures=tuple(fields.get("signature", ())),
        exception=fields.get("exception"),
    )


def _step(where: str, fields: dict[str, Any]) -> Step:
    assert fields.keys() <= OF_A_STEP, f"{where}: unknown {sorted(fields.keys() - OF_A_STEP)}"
    only = tuple(_lines(text) for text in fields.get("only", ()))
    return Step(**{**fields, "only": only})


def _lines(text: str) -> Lines:
    first, last = text.split("-")
    return int(first), int(last)
