"""The project's own pages as programs: README.md and docs/**/*.md, block by block.

A page reads as its user reads it: top to bottom, in one directory. Python blocks share one interpreter, as in a
notebook; shell blocks share one bash. A Python block that begins with `# name.py` is that file. A `text` or `json`
block right after one that is run is what it prints. Comments tell the rest; no reader sees them:

    <!-- page: worker=cpu,gpu plane=http pickled bare fresh -->
                                what is there before the page: workers on queues, a control plane (default: the file
                                plane), functions by value allowed; bare: nothing is on PYTHONPATH; fresh: a new user's
                                machine, with the installer and a release in the directory, and no lakeshore
    <!-- run: <shell> -->       done before the next block, unseen
    <!-- stays: <text> -->      the next shell block has a terminal of its own and is left running once it says text
    <!-- fails: <text> -->      the next block must fail, with this as its last line
    <!-- needs: a host -->      the next block is run where there is a host that `ssh my-box` reaches
    <!-- unordered -->          the lines of the next output may come in any order
    <!-- excused: <reason> -->  the next block is not run

In outputs and failures <id> is an invocation id, <s> seconds, <more> anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .reference import ROOT

PYTHON, SHELL, OUTPUT = ("python", "py"), ("bash", "sh"), ("text", "json")
_FENCE = re.compile(r"^(?P<mark>```+|~~~+)(?P<info>[^`\n]*)\n(?P<code>.*?)^(?P=mark)[ \t]*$", re.M | re.S)
_COMMENT = re.compile(r"<!--\s*(?P<word>[a-z]+)(?::\s*(?P<said>.*?))?\s*-->", re.S)
_FILE = re.compile(r"# (?P<name>[\w/]+\.py)\n")
WORDS = {"page", "run", "stays", "fails", "unordered", "excused", "needs"}
HOST = "a host"
NEEDS = (HOST,)
KEPT = ("line", "language", "code", "before", "stays", "fails", "excused", "needs")
OTHERS = {"include", "about"}
"""Comments that are the site's."""


class Unclear(AssertionError):
    """The page does not say what to do with a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fence. `before` is run unseen; `expected` is the output block after it."""

    line: int
    language: str
    code: str
    before: tuple[str, ...] = ()
    stays: str | None = None
    fails: str | None = None
    excused: str | None = None
    expected: str | None = None
    unordered: bool = False
    needs: str | None = None

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        named = _FILE.match(self.code) if self.language in PYTHON else None
        return None if named is None else named["name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One page: what is there before it, and its blocks."""

    name: str
    blocks: tuple[Block, ...]
    workers: tuple[str, ...] = ()
    plane: str = "file"
    pickled: bool = False
    bare: bool = False
    fresh: bool = False

    @property
    def run(self) -> tuple[Block, ...]:
        """The blocks that are run, or written as files."""
        return tuple(block for block in self.blocks if block.excused is None)

    def run_with(self, *there: str) -> tuple[Block, ...]:
        """Those of them whose needs are met."""
        return tuple(block for block in self.run if block.needs is None or block.needs in there)


@dataclass(slots=True)
class _Told:
    """What comments said since the last block."""

    run: list[str] = field(default_factory=list)
    stays: str | None = None
    fails: str | None = None
    excused: str | None = None
    unordered: bool = False
    needs: str | None = None


def pages() -> list[Path]:
    """Every page of the project that has blocks for its users."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def documents() -> list[Document]:
    """All of them, those without any block left out."""
    return [page for path in pages() if (page := read(path)).blocks]


def read(path: Path) -> Document:
    """A page. Raises Unclear for a block that is neither run nor excused, and for a comment that says nothing here."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    text = path.read_text("utf-8")
    start: dict[str, object] = {}
    blocks: list[Block] = []
    told, at = _Told(), 0
    for fence in _FENCE.finditer(text):
        between = text[at : fence.start()]
        at = fence.end()
        line = text.count("\n", 0, fence.start()) + 1
        for word, said in _comments(between, f"{name}:{line}"):
            if word == "page":
                start.update(_page(said, name))
            elif word == "run":
                told.run.append(said)
            elif word == "unordered":
                told.unordered = True
            else:
                setattr(told, word, said)
        if told.needs not in (None, *NEEDS):
            raise Unclear(f"{name}:{line}: <!-- needs: {told.needs} --> means nothing; use {', '.join(NEEDS)}")
        language = fence["info"].strip().split(" ")[0]
        where = f"{name}:{line}"
        if language in OUTPUT and told.excused is None:
            if not blocks or blocks[-1].expected is not None or blocks[-1].language in OUTPUT:
                raise Unclear(f"{where}: an output that no block before it prints; say <!-- excused: why -->")
            if blocks[-1].excused is None:
                blocks[-1] = _printing(blocks[-1], fence["code"], told)
            told = _Told()
            continue
        if language not in (*PYTHON, *SHELL) and told.excused is None:
            raise Unclear(f"{where}: a block of {language or 'no language'} is not run; say <!-- excused: why -->")
        if told.excused == "":
            raise Unclear(f"{where}: excused, but for what reason?")
        blocks.append(
            Block(
                line=line,
                language=language,
                code=fence["code"],
                before=tuple(told.run),
                stays=told.stays,
                fails=told.fails,
                excused=told.excused,
                needs=told.needs,
            )
        )
        told = _Told()
    return Document(name=name, blocks=tuple(blocks), **start)  # type: ignore[arg-type]


def _printing(block: Block, expected: str, told: _Told) -> Block:
    return Block(
        **{name: getattr(block, name) for name in KEPT},
        expected=expected,
        unordered=told.unordered,
    )


def _comments(text: str, where: str) -> Iterator[tuple[str, str]]:
    for found in _COMMENT.finditer(text):
        word = found["word"]
        if word in OTHERS:
            continue
        if word not in WORDS:
            raise Unclear(f"{where}: <!-- {word} --> means nothing; use {', '.join(sorted(WORDS))}")
        yield word, found["said"] or ""


def _page(said: str, name: str) -> dict[str, object]:
    told: dict[str, object] = {}
    for part in said.split():
        word, _, value = part.partition("=")
        if word == "worker":
            told["workers"] = tuple(value.split(","))
        elif word == "plane" and value in ("file", "http"):
            told["plane"] = value
        elif word in ("pickled", "bare", "fresh") and not value:
            told[word] = True
        else:
            raise Unclear(f"{name}: <!-- page: {part} --> means nothing")
    return told
