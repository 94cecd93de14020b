"""The exit codes, all of them. Reference: cli/examples.md, "Exit codes"."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees."""

    OK = 0
    FAILED = 1
    USAGE = 2
    """Bad usage, or no server is configured."""
    INTERRUPTED = 130
