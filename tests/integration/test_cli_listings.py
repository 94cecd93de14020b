"""What a plain listing costs before it does anything: which modules it loads, and what it asks the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from served import Served

ROOT = Path(__file__).resolve().parents[2]
LISTS = (
    *("jobs list", "queues ls", "daemon list", "modes list", "secrets list", "schedule list", "providers list"),
    *("tunnels list", "mounts list", "storage list", "admin namespace list", "admin tokens list"),
)
PROGRAM = """
import sys
from lakeshore.cli.main import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""
OTHERS = {
    *("asyncio", "ssl", "sqlite3", "subprocess", "http.client", "email", "logging", "random", "importlib.metadata"),
    *("h11", "httpx", "trio", "yaml", "cattrs", "rich", "textual", "platformdirs"),
}
OURS = {
    *("sdk", "plane", "nymph", "tui", "remote", "demo", "server.serve", "client.following", "client.watch"),
    *(
        "net.any_answer",
        "net.proxy",
        "net.tls",
        "config.modes",
        "config.resolving",
        "cli.daemon.named",
        "cli.jobs.logs",
    ),
}
NEEDED = {"daemon list": {"lakeshore.cli.daemon.named"}, "modes list": {"lakeshore.config.modes"}}


@pytest.mark.parametrize("command", LISTS)
def test_a_plain_listing_loads_nothing_that_it_does_not_need(command: str, server: Served, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LAKESHORE_")}
    environ |= {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "LAKESHORE_URL": server.url}
    environ |= {"LAKESHORE_STATE_DIR": str(server.state_dir), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}{PROGRAM}", *command.split()],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "lakeshore.cli.listing" in loaded
    unwanted = OTHERS | {f"lakeshore.{name}" for name in OURS}
    assert sorted(loaded & unwanted - NEEDED.get(command, set())) == []


def test_what_a_command_loads_is_out_of_the_collectors_sight_and_the_rest_is_collected() -> None:
    program = (
        "import gc; from lakeshore.cli.main import main; main(['jobs', '--help'])\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 10_000, gc.get_freeze_count()\n"
        "class Ring: pass\n"
        "ring = Ring(); ring.ring = ring; del ring\n"
        "assert gc.collect() >= 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, cwd=ROOT)
