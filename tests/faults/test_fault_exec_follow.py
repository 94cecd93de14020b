"""A command on a daemon is followed over a line that breaks: not a byte is lost, and none comes twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import Shell, box
from cutting import cutting
from served import running

from lakeshore.net.target import parse_target


@pytest.mark.inventory("S-325")
def test_a_line_that_breaks_while_a_command_is_followed_costs_no_byte(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server, box(server, tmp_path / "host", label="far") as far:
        target = parse_target(server.url)
        with cutting(target.host, target.port) as line:
            gate = tmp_path / "gate"
            command = f"seq 1 4000; until [ -e {gate} ]; do sleep 0.02; done; seq 4001 8000; exit 3"
            with Shell(line.url, tmp_path, "default").start("daemon", "exec", far.label, command) as process:
                assert process.stdout is not None
                begun = b"".join(process.stdout.readline() for _ in range(4000))
                line.down, line.most = 10_000, 3
                gate.touch()
                rest, err = process.communicate(timeout=60)
            assert line.cuts == 3
    out, code = begun + rest, process.returncode
    assert (code, out) == (3, b"".join(b"%d\n" % n for n in range(1, 8001)))
    assert err.startswith(b"the server is away, asking again: ")
