"""`lakeshore doctor`: looks at this machine and at the server it talks to, and says what to do about what it finds.

Rules: it changes nothing and shows no secret; a line says what was seen, and the next one what to do; what hangs costs
its time limit and becomes a line. Exit 0 with warnings, 1 with failures.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .exits import ExitCode
from .numbers import Seconds
from .output import plain, print_json, say
from .server import flags, server_options

if TYPE_CHECKING:
    from .checks.finding import Asked, Finding

MARKS = {"ok": "✓", "warning": "!", "failure": "✗"}
ASCII_MARKS = {"ok": "+", "warning": "!", "failure": "x"}
COLOURS = {"ok": "green", "warning": "yellow", "failure": "red"}
_INDENT = 16


@click.command()
@server_options
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    metavar="<dir>",
    help="A server's on this machine (LAKESHORE_STATE_DIR, else the default one).",
)
@click.option(
    "--timeout", type=Seconds(min=0.1), default=10.0, show_default=True, metavar="<s>", help="For each check."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(ctx: click.Context, state_dir: Path | None, timeout: float, as_json: bool) -> int:
    """Check the Python, the program, the disks, the server, the token and the clocks, and say what to do."""
    from .checks.finding import Asked  # wall: the checks load what they look at: the plane, the server's state, net

    said = flags(ctx)
    asked = Asked(
        environ=dict(os.environ),
        url=said.url,
        namespace=said.namespace,
        token=said.token,
        state_dir=state_dir,
        limit_s=timeout,
    )
    findings = []
    for finding in _findings(asked):
        findings.append(finding)
        if not as_json:
            _show(finding)
    failures, warnings = (sum(finding.status == status for finding in findings) for status in ("failure", "warning"))
    if as_json:
        print_json(
            {
                "ok": failures == 0,
                "failures": failures,
                "warnings": warnings,
                "findings": [_plainly(finding) for finding in findings],
            }
        )
    else:
        say(_summary(failures, warnings))
    return ExitCode.FAILED if failures else ExitCode.OK


def _findings(asked: Asked) -> Iterator[Finding]:
    from .checks import environment, interpreter, local, login, program, run, server, state  # wall: as above

    checks = {
        "python": interpreter.check,
        "program": program.check,
        "variables": environment.check,
        "login": login.check,
        "local queues": local.check,
        "state": state.check,
        "server": server.check,
    }
    return run.run(checks, asked)


def _plainly(finding: Finding) -> dict[str, str | None]:
    return {
        "status": finding.status,
        "subject": finding.subject,
        "seen": finding.seen,
        "advice": finding.advice or None,
    }


def _show(finding: Finding) -> None:
    terminal = sys.stdout.isatty()
    try:
        "✓✗→".encode(sys.stdout.encoding or "ascii")
        mark, arrow = MARKS[finding.status], "→"
    except UnicodeEncodeError:
        mark, arrow = ASCII_MARKS[finding.status], "->"
    head = f"{mark} {plain(finding.subject):<{_INDENT - 3}} "
    body = _wrapped(plain(finding.seen), terminal)
    if finding.advice:
        body += _wrapped(f"{arrow} {plain(finding.advice)}", terminal)
    if terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        head = click.style(head, fg=COLOURS[finding.status])
    text = f"\n{' ' * _INDENT}".join(body)
    sys.stdout.write(head + text + "\n")
    sys.stdout.flush()


def _wrapped(text: str, terminal: bool) -> list[str]:
    """Lines that fit the terminal beside the subjects; one line where there is none, for `grep`."""
    flat = " ".join(text.split())
    if not terminal:
        return [flat]
    width = max(shutil.get_terminal_size().columns - _INDENT - 1, 30)
    return textwrap.wrap(flat, width, break_long_words=False, break_on_hyphens=False, subsequent_indent="") or [""]


def _summary(failures: int, warnings: int) -> str:
    if not failures and not warnings:
        return "All is well."
    parts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((failures, "failure"), (warnings, "warning")) if n]
    return f"{' and '.join(parts)}: what to do is said beside each."
