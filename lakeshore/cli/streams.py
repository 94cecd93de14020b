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
_ASCII = "lakeshore_ascii"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
PLAINLY_TOO = "lakeshore.plainly"
"""The name of the error handler that does that."""


def make_ready() -> None:
    """Set stdout and stderr up for all of the above; a stdin that was closed is an empty one."""
    if sys.stdin is None:  # `<&-`
        sys.stdin = open(os.devnull)  # noqa: SIM115  (for as long as we live)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (for as long as we live)
        elif stream.errors != PLAINLY_TOO and hasattr(stream, "reconfigure"):
            ascii_too = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if ascii_too else stream.encoding, errors=PLAINLY_TOO)


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


def _ascii(name: str) -> codecs.CodecInfo | None:
    """ASCII by another name: under its own click takes it for a mistake, and writes UTF-8 past the stream."""
    if name != _ASCII:
        return None
    found = codecs.lookup("ascii")
    return codecs.CodecInfo(
        name=_ASCII,
        encode=found.encode,
        decode=found.decode,
        incrementalencoder=found.incrementalencoder,
        incrementaldecoder=found.incrementaldecoder,
    )


codecs.register(_ascii)
codecs.register_error(PLAINLY_TOO, _plainly)
