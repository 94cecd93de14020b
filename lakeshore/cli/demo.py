"""`lakeshore demo`: tells what `lakeshore.demo` does and found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from .exits import ExitCode
from .failures import Failure
from .interrupts import unwinding
from .numbers import Whole
from .output import print_json, print_table, say
from .progress import progress
from .started import started_as

if TYPE_CHECKING:
    from lakeshore.demo.driver import Outcome
    from lakeshore.demo.stage import Stage


@click.command()
@click.option("--workers", type=Whole(1, 64), default=2, show_default=True, metavar="<n>", help="Worker processes.")
@click.option("--keep", is_flag=True, help="Leave the server and a worker running.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def demo(workers: int, keep: bool, as_json: bool) -> int:
    """Start a server and workers, run a job over Python's own sources, check it, and clear up."""
    from lakeshore.demo.driver import perform  # wall: only the demo loads the SDK
    from lakeshore.demo.stage import Stage  # wall: as above
    from lakeshore.sdk.errors import DispatchError  # wall: as above
    from lakeshore.stack import StackError  # wall: as above

    with unwinding(), Stage() as stage:
        try:
            outcome = perform(stage, Teller(), workers=workers)
        except (DispatchError, TimeoutError) as error:
            raise Failure(str(error), hint="is the loopback interface up (ip link show lo)?") from error
        except StackError as error:
            raise Failure(str(error)) from error
        if as_json:
            print_json(_document(outcome, stage, keep))
        else:
            _tell(outcome)
        if keep:
            _tell_how_to_stop(stage)
    return ExitCode.OK if outcome.matches else ExitCode.FAILED


class Teller:
    """What the demo says while it goes on."""

    def say(self, text: str) -> None:
        """A line."""
        say(text)

    def progress(self, title: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """A bar, or lines; the value is called after each step."""
        return progress(title, total)


def _tell(outcome: Outcome) -> None:
    rows = [
        (
            package.name,
            f"{package.modules:,}",
            f"{package.lines:,}",
            f"{package.words:,}",
            f"{package.definitions:,}",
            ", ".join(name for name, _count in package.names.most_common(3)),
        )
        for package in outcome.packages[:10]
    ]
    click.echo()
    numbers = ("modules", "lines", "words", "definitions")
    print_table(("package", *numbers, "commonest"), rows, right=numbers, flexible="commonest")
    total = _totals(outcome)
    click.echo()
    click.echo(
        f"all {total['packages']:,} packages: {total['modules']:,} modules, {total['lines']:,} lines, "
        f"{total['words']:,} words,\n{total['definitions']:,} definitions"
    )
    if outcome.matches:
        click.echo("✓ the same as a direct computation in this process, module by module")
    else:
        click.echo("✗ NOT the same as a direct computation in this process: please report this")
    count = outcome.workers
    click.echo(f"time: {outcome.all_workers:.1f} s with {count} worker{'s' * (count > 1)}", nl=False)
    if outcome.one_worker is not None:
        click.echo(
            f", {outcome.one_worker:.1f} s with one ({outcome.one_worker / outcome.all_workers:.1f}×), "
            f"{outcome.here:.1f} s without Lakeshore",
            nl=False,
        )
    click.echo()


def _tell_how_to_stop(stage: Stage) -> None:
    program = started_as()
    stage.keep()
    say("")
    say("still running. Look at it:")
    say(f"  export LAKESHORE_URL={stage.url}")
    say(f"  {program} jobs list --limit 10")
    say(f"  {program} jobs list --json | jq -r '.[0].id'     # then: {program} jobs show <id>")
    say("and stop it (this ends the processes, waits for them, and removes what they wrote):")
    say(f"  {stage.stop}")


def _totals(outcome: Outcome) -> dict[str, int]:
    packages = outcome.packages
    return {
        "packages": len(packages),
        "modules": sum(package.modules for package in packages),
        "lines": sum(package.lines for package in packages),
        "words": sum(package.words for package in packages),
        "definitions": sum(package.definitions for package in packages),
    }


def _document(outcome: Outcome, stage: Stage, keep: bool) -> dict[str, Any]:
    names: Counter[str] = Counter()
    for package in outcome.packages:
        names.update(package.names)
    kept: dict[str, Any] | None = None
    if keep:
        children = [*stage.workers, *([stage.server] if stage.server is not None else [])]
        kept = {
            "directory": str(stage.directory),
            "pids": [child.pid for child in children],
            "owner": os.getuid(),
            "stop": stage.stop,
        }
    return {
        "source": str(outcome.corpus.root),
        "modules_found": outcome.corpus.found,
        "url": outcome.url,
        "workers": outcome.workers,
        "totals": _totals(outcome),
        "packages": [
            {
                "package": package.name,
                "modules": package.modules,
                "lines": package.lines,
                "words": package.words,
                "definitions": package.definitions,
                "commonest": package.names.most_common(3),
            }
            for package in outcome.packages[:10]
        ],
        "identifiers": names.most_common(10),
        "streamed": outcome.streamed,
        "matches_direct_computation": outcome.matches,
        "seconds": {
            "workers": round(outcome.all_workers, 3),
            "one_worker": None if outcome.one_worker is None else round(outcome.one_worker, 3),
            "direct": round(outcome.here, 3),
        },
        "kept": kept,
    }
