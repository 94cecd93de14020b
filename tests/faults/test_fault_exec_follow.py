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
            line.down, line.most = 20_000, 3
            sh = Shell(line.url, tmp_path, "default")
            code, out, err = sh.run("daemon", "exec", far.label, "seq 1 4000; sleep 0.3; seq 4001 8000; exit 3")
            assert line.cuts == 3
    assert (code, out) == (3, b"".join(b"%d\n" % n for n in range(1, 8001)))
    assert err.startswith(b"the server is away, asking again: ")
