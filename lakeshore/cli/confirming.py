"""Asking before something is destroyed.

Rule: `--yes` answers; else a terminal is asked, on stderr; where there is none nothing is done.
"""

from __future__ import annotations

import sys

import click

from .exits import ExitCode
from .failures import Failure
from .output import plain


def somebody_is_there() -> bool:
    """Whether a question would be seen and answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, *, yes: bool, otherwise: str = "add --yes") -> bool:
    """Whether to go on. Failure (exit 2) where nobody can be asked; `otherwise` says what to do there."""
    if yes:
        return True
    if not somebody_is_there():
        raise Failure("nobody can be asked here", hint=otherwise, code=ExitCode.USAGE)
    return click.confirm(plain(question), err=True)
