"""One entry of the table, run: the program is written beside nothing else, the workers are started, the outcome is
compared.

The block itself is taken from the page as it stands. What an entry adds is before or after it, never inside.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import reference
from .lines import matches
from .processes import Place, Served, clean, daemon, on_plane
from .table import HERE, Entry, Step

HERE_PROGRAMS = {name: str(HERE / f"{name}.py") for name in ("notebook", "by_hand")}
_MARK = "--- the block begins ---"


def check(entry: Entry, plane: str, directory: Path, served: Served | None) -> None:
    """Run an entry on a plane. Raises AssertionError with what the programs said."""
    variables = on_plane(plane, directory, served)
    Path(variables["HOME"]).mkdir()
    place = Place(directory=directory, env=clean(**variables))
    for name, content in entry.files.items():
        (directory / name).write_text(content, "utf-8")
    with _workers(entry, plane, place):
        for step in entry.steps:
            done = place.run(*_program(entry, step, directory))
            _compare(step, done)


@contextlib.contextmanager
def _workers(entry: Entry, plane: str, place: Place) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if entry.worker is not None:
            flags = ["--allow-pickled"] if entry.worker.pickled and plane == "http" else []
            command = daemon(place.python, entry.worker.queue, flags)
            for _ in range(entry.worker.count):
                stack.enter_context(place.working(*command))
        if entry.by_hand is not None:
            stack.enter_context(place.working(place.python, HERE_PROGRAMS["by_hand"], entry.by_hand))
        yield


def _program(entry: Entry, step: Step, directory: Path) -> list[str]:
    block = reference.code(entry.page, entry.lines, step.only)
    if entry.shape is not None:
        block = f"{entry.shape} = {block.replace('…', '...').strip()}\n"
    if entry.module is not None:
        (directory / f"{entry.module}.py").write_text(step.setup + block, "utf-8")
        parts = [f"print({_MARK!r})\n", step.then]
    else:
        earlier = [reference.code(entry.page, lines) for lines in entry.after]
        parts = [step.setup, *earlier, step.given, f"print({_MARK!r})\n", block, step.then]
    script = directory / _file_name(entry)
    script.write_text("\n".join(parts), "utf-8")
    return [HERE_PROGRAMS["notebook"], str(script)] if entry.loop else [str(script)]


def _file_name(entry: Entry) -> str:
    opening = reference.page(entry.page)[entry.lines[0] - 1]
    named = re.search(r'file="(\w+\.py)"', opening)
    return named[1] if named else "program.py"


def _compare(step: Step, done: subprocess.CompletedProcess[str]) -> None:
    said = f"\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"
    if step.fails is None:
        assert done.returncode == 0, f"exit code {done.returncode}{said}"
    else:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        assert done.returncode != 0 and matches(step.fails, last), f"expected {step.fails!r} at the end{said}"
    _, mark, printed = done.stdout.partition(f"{_MARK}\n")
    assert mark, f"the block was not reached{said}"
    wanted, got = step.stdout.splitlines(), printed.splitlines()
    if step.unordered:
        wanted, got = sorted(wanted), sorted(got)
    same = len(wanted) == len(got) and all(map(matches, wanted, got))
    assert same, f"expected\n{step.stdout}{said}"
