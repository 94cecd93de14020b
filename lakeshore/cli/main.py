"""`lakeshore`: from the arguments to an exit code.

Rules: data on stdout, talk on stderr; an error is one sentence that says what to do, never a traceback of an expected
failure; `lakeshore --help` and `--version` load no argument parser, so that they are instant.
Reference: cli.md; cli/examples.md, "Exit codes".
"""

from __future__ import annotations

import sys

from . import streams

TYPE_CHECKING = False  # `typing` costs more than what runs here
if TYPE_CHECKING:
    from collections.abc import Sequence

# Of `exits.ExitCode`, which is an enum: to make one costs as much as the overview.
_OK, _FAILED, _INTERRUPTED = 0, 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. `argv` is without the program's name (default: `sys.argv[1:]`)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    streams.make_ready()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        streams.mute_stdout()
        return _OK
    except OSError as error:
        if error.errno not in streams.FULL or error.filename is not None:
            raise
        streams.mute_stdout()
        sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        return _FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    return code


def _run(arguments: list[str]) -> int:
    if arguments in ([], ["--help"], ["-h"], ["help"]):
        from .table import overview  # wall: a command does not pay for the overview

        sys.stdout.write(overview() + "\n")
        return _OK
    if arguments == ["--version"]:
        from lakeshore._version import __version__  # wall: as above

        sys.stdout.write(f"lakeshore {__version__}\n")
        return _OK
    if arguments[:2] == ["completion", "__suggest"]:
        from .completing.suggest import main as suggest  # wall: a Tab waits for it

        return suggest(arguments[2:])
    from .loading import load  # wall: click costs more than all the rest

    code: int = load("lakeshore.cli.program").run(arguments)
    return code
