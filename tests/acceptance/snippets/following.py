"""A page followed line by line, as its reader would: see `documents`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from one_file import ROOT, load_build
from ports import free_port

from .documents import HOST, PYTHON, Block, Document
from .lines import matches
from .processes import Place, Served, clean, daemon, on_plane
from .terminals import Bash, Interpreter

PORT = "8080"
"""The server's usual port, as pages print it. A page is followed on a free one."""


def follow(
    document: Document,
    directory: Path,
    pyz: Path,
    cache: Path,
    served: Served | None,
    took: Callable[[Block, float], None] | None = None,
    hosts: Path | None = None,
) -> int:
    """Run every block of a page; how many were. `hosts` is an ssh configuration that has my-box: without it, blocks
    that need a host are left out. `took` hears of the seconds of each. Raises AssertionError that names
    the line of the one that is wrong.
    """
    port = str(free_port())
    place = (
        _fresh(directory, pyz, port, hosts) if document.fresh else _place(document, directory, pyz, cache, served, port)
    )
    with contextlib.ExitStack() as stack:
        for queue in document.workers:
            flags = ["--allow-pickled"] if document.pickled and document.plane == "http" else []
            stack.enter_context(place.working(*daemon(place.python, queue, flags)))
        follower = _Follower(document, place, port, stack)
        blocks = document.run_with(*([] if hosts is None else [HOST]))
        for block in blocks:
            began = time.monotonic()
            follower.take(block)
            if took is not None:
                took(block, time.monotonic() - began)
    return len(blocks)


class _Follower:
    """The terminals of one page, opened when a block asks for them."""

    def __init__(self, document: Document, place: Place, port: str, stack: contextlib.ExitStack) -> None:
        self.document, self.place, self.port, self.stack = document, place, port, stack
        self.bash: Bash | None = None
        self.python: Interpreter | None = None
        self.stayed = 0

    def take(self, block: Block) -> None:
        where = f"{self.document.name}:{block.line}"
        for command in block.before:
            failed = self._bash().run(self._here(command))
            assert failed is None, f"{where}: {command!r}: {failed}\n{self._bash().everything()}"
            self._bash().said()
        if block.file is not None:
            path = self.place.directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(block.code), "utf-8")
            return
        if block.stays is not None:
            self.stayed += 1
            terminal = Bash(self.place.directory, self.place.env, f"terminal-{self.stayed}")
            self.stack.callback(terminal.close)
            terminal.leave(self._here(block.code), self._here(block.stays))
            return
        terminal = self._python() if block.language in PYTHON else self._bash()
        failed = terminal.run(self._here(block.code))
        out, err = (text.replace(self.port, PORT) for text in terminal.said())
        said = f"\n--- stdout\n{out}\n--- stderr\n{err}\n{failed or ''}"
        if block.fails is None:
            assert failed is None, f"{where}: it failed{said}"
        else:
            last = ((failed or "").strip() if block.language in PYTHON else err.strip()).splitlines() or [""]
            assert failed is not None and matches(block.fails, last[-1]), f"{where}: must fail with {block.fails}{said}"
            if block.language not in PYTHON:
                self.bash = None  # it ended with the failure: the next block has a new one
        if block.expected is not None:
            wanted, got = block.expected.splitlines(), out.splitlines()
            if block.unordered:
                wanted, got = sorted(wanted), sorted(got)
            same = len(wanted) == len(got) and all(map(matches, wanted, got))
            assert same, f"{where}: the page says\n{block.expected}\n{where}: it printed{said}"

    def _bash(self) -> Bash:
        if self.bash is None:
            self.bash = Bash(self.place.directory, self.place.env)
            self.stack.callback(self.bash.close)
        return self.bash

    def _python(self) -> Interpreter:
        if self.python is None:
            self.python = Interpreter(self.place.python, self.place.directory, self.place.env)
            self.stack.callback(self.python.close)
        return self.python

    def _here(self, code: str) -> str:
        return code.replace(PORT, self.port)


def _place(document: Document, directory: Path, pyz: Path, cache: Path, served: Served | None, port: str) -> Place:
    """A directory with the one file as `dist/lakeshore`, and an environment with it and a bare Python on PATH."""
    work, tools = directory / "work", directory / "bin"
    (work / "dist").mkdir(parents=True)
    tools.mkdir()
    python = _bare_python()
    for link, target in ((work / "dist" / "lakeshore", pyz), (tools / "lakeshore", pyz), (tools / "python3", python)):
        link.symlink_to(target)
    variables = on_plane(document.plane, directory, served)
    Path(variables["HOME"]).mkdir()
    env = clean(
        **variables,
        XDG_CACHE_HOME=str(cache),
        PATH=os.pathsep.join([str(tools), os.environ["PATH"]]),
        PORT=port,
    )
    del env["PYTHONPATH"]
    if not document.bare:
        env["PYTHONPATH"] = str(pyz)
    return Place(directory=work, env=env, python=python)


def _fresh(directory: Path, pyz: Path, port: str, hosts: Path | None) -> Place:
    """A new user's machine: an empty home, a short PATH with a Python, the installer and a release to install."""
    work, tools, home = (directory / name for name in ("work", "bin", "home"))
    for path in (work / "scripts", tools, home):
        path.mkdir(parents=True)
    python = _bare_python()
    (tools / "python3").symlink_to(python)
    if hosts is not None:  # ssh itself looks into the home that the system has for a user, never into $HOME
        (tools / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {hosts} "$@"\n')
        (tools / "ssh").chmod(0o755)
    shutil.copy(ROOT / "scripts" / "install.sh", work / "scripts")
    load_build().release(pyz, work / "dist" / "release")
    env = {"HOME": str(home), "PATH": f"{tools}:/usr/bin:/bin", "LANG": "C.UTF-8", "PORT": port}
    return Place(directory=work, env=env, python=python)


def _bare_python() -> str:
    """The Python of this run without what is installed beside it."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)
