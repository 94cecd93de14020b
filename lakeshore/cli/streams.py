"""The standard streams as they are found: closed, full, or of an encoding that lacks what we print.

Rules: nothing that is printed fails for its characters: what an encoding lacks is written plainly (`…` as `...`) or as
`\\uXXXX`. A stream that was closed swallows what is written to it. A full disk under stdout is an error and says so.
Light, for `--help` loads it.
"""

from __future__ import annotations

import codecs
import errno
import os
import sys

PLAINLY = {"…": "...", "—": "-", "–": "-", "→": "->", "✓": "ok", "✗": "x", "·": "-", "’": "'", "×": "x"}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
PLAINLY_TOO = "lakeshore.plainly"
"""The name of the error handler that does that."""


def make_ready() -> None:
    """Set stdout and stderr up for all of the above."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (for as long as we live)
        elif stream.errors != PLAINLY_TOO and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAINLY_TOO)


def mute_stdout() -> None:
    """Python flushes stdout once more at exit; that must not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAINLY.get(character) or _escaped(character) for character in text), error.end


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


codecs.register_error(PLAINLY_TOO, _plainly)
