"""What a host answers is kept in memory, and so has an end; so has the time that it takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lakeshore.remote.bounded import MOST, TooMuch, run
from lakeshore.remote.here import Here
from lakeshore.remote.launch import listed
from lakeshore.remote.scripts import compose


def test_what_is_said_and_what_is_given_comes_whole() -> None:
    words = [
        sys.executable,
        "-c",
        "import sys; t = sys.stdin.read(); print(t); print(len(t), file=sys.stderr); exit(3)",
    ]
    done = run(words, stdin=b"x" * 200_000, timeout_s=30)
    assert (done.code, len(done.out), done.err) == (3, 200_001, "200000\n")
    assert run(["cat"], stdin=None, timeout_s=30).out == ""


@pytest.mark.parametrize("where", ["", ">&2"])
def test_who_says_too_much_is_ended(where: str) -> None:
    with pytest.raises(TooMuch):
        run(["sh", "-c", f"yes {where}"], stdin=None, timeout_s=60)
    assert len(run(["head", "-c", str(MOST), "/dev/zero"], stdin=None, timeout_s=60).out) == MOST


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 & exit 0", "exec >&- 2>&-; sleep 60"])
def test_who_takes_too_long_is_ended_with_what_it_began(script: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sh", "-c", script], stdin=None, timeout_s=0.3)


@pytest.mark.parametrize("label", ["9" * 5000, "[" * 100_000, '"x', "1979-99-99", "[1]", ""])
def test_a_label_that_a_host_made_up_is_shown_as_it_is_written(monkeypatch: pytest.MonkeyPatch, label: str) -> None:
    def composed(name: str, values: dict[str, str]) -> tuple[str, str]:
        _text, nonce = compose(name, values)
        return f"cat <<'END'\n{nonce} launch {'0' * 24} running {label}\n{nonce} end ok\nEND\n", nonce

    monkeypatch.setattr("lakeshore.remote.ssh.compose", composed)
    (found,) = listed(Here())
    assert found.label == label
