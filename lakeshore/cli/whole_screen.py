"""What a command needs that takes the whole terminal: a terminal, and Textual."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .exits import ExitCode
from .failures import Failure


def need_terminal(otherwise: str) -> None:
    """Failure (exit 2) where there is none; `otherwise` says which commands do without."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) or os.environ.get("TERM") == "dumb":
        raise Failure("this needs a terminal", hint=otherwise, code=ExitCode.USAGE)


@contextmanager
def textual() -> Iterator[None]:
    """What is imported within may import Textual. Failure where that is not installed."""
    from lakeshore import _screens  # wall: only a screen pays for Textual

    _screens.extend_path()
    try:
        yield
    except ModuleNotFoundError as missing:
        raise Failure(
            f"this needs the package {missing.name}", hint="`pip install 'lakeshore[tui]'`; the one file has it"
        ) from missing
    for name in ("COLUMNS", "LINES"):  # exported by a shell they win over the terminal's size, and stay when it changes
        os.environ.pop(name, None)
