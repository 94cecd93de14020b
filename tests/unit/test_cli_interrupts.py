"""What a signal does to a command that has something to clear up."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lakeshore.cli.interrupts import held, ignored, unwinding


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Each is at its default, and is again what it was."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in numbers[1:]:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_process_unwinds_it_first(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as ended, unwinding():
        signal.raise_signal(number)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_what_was_ignored_from_the_start_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with unwinding(), held("it waits"):
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
@pytest.mark.parametrize("fails", [False, True])
def test_what_is_held_comes_at_the_end_of_the_block_however_it_ended(
    number: signal.Signals, kind: type[BaseException], fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = False
    with pytest.raises(kind), unwinding(), held("it waits"):
        signal.raise_signal(number)
        signal.raise_signal(number)
        reached = True
        if fails:
            raise ValueError
    assert reached
    assert capsys.readouterr().err == "it waits\n"


def test_what_is_ignored_is_so_for_the_programs_that_are_started_too() -> None:
    program = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)"
    with unwinding(), ignored():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        assert subprocess.run([sys.executable, "-S", "-c", program], check=False).returncode == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
