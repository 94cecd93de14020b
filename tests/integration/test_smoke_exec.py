"""`scripts/smoke-exec.sh`: ten checks against the one live daemon, and what it says where there is none or many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_shell import ROOT, Shell, box
from exec_peer import Peer
from served import JSON, Served, new_id

LONG_S = "1"  # forty, when people run it


def smoke(server: Served, ns: str, home: Path, **more: str) -> tuple[int, list[str]]:
    """Its exit status, and the lines that it printed."""
    env = {**Shell(server.url, home, ns).env, "LK": f"{sys.executable} -m lakeshore", "SMOKE_LONG_S": LONG_S, **more}
    script = ROOT / "scripts" / "smoke-exec.sh"
    done = subprocess.run([script], env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    return done.returncode, done.stdout.decode().splitlines()


@pytest.fixture
def ns(server: Served) -> str:
    return namespace(server)


def namespace(server: Served) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    return name


CHECKS = {
    "one live daemon": "C-842",
    "stdout comes back": "C-843",
    "stderr stays apart from stdout": "C-844",
    "the exit code is the command's": "C-845",
    "--env": "C-846",
    "--stdin -": "C-847",
    "a file is written and read there": "C-848",
    "--timeout": "C-849",
    "a command outlives the windows of the poll": "",  # shown where it sleeps for its forty seconds
    "python3 on the host": "C-851",
}


@pytest.fixture(scope="module")
def ran(server: Served, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    """The script against one real daemon, once."""
    ns, place = namespace(server), tmp_path_factory.mktemp("smoke")
    with box(server, place / "host", label="ge-debug-1", ns=ns):
        return smoke(server, ns, place)


@pytest.mark.parametrize(
    ("number", "label"),
    [
        pytest.param(number, label, marks=pytest.mark.inventory(row) if row else ())
        for number, (label, row) in enumerate(CHECKS.items())
    ],
)
def test_a_check_passes_against_a_real_daemon(ran: tuple[int, list[str]], number: int, label: str) -> None:
    assert ran[1][number].partition(" (")[0] == f"✓ {label}"


@pytest.mark.inventory("C-467", "C-1177", "C-058")
@pytest.mark.inventory("C-852")
def test_all_ten_pass_against_a_real_daemon(server: Served, ran: tuple[int, list[str]]) -> None:
    code, said = ran
    assert said[-1] == f"✓ all 10 checks passed against {server.url}"
    assert (code, [line[0] for line in said]) == (0, ["✓"] * 11)


@pytest.mark.inventory("C-468")
def test_it_refuses_to_guess_and_stops_at_the_first_that_fails(server: Served, ns: str, tmp_path: Path) -> None:
    code, said = smoke(server, ns, tmp_path)
    assert (code, said) == (1, ["✗ one live daemon: no live daemons registered"])
    for _ in range(2):
        Peer(server, ns=ns)
    code, said = smoke(server, ns, tmp_path)
    assert code == 1
    assert said == ["✗ one live daemon: 2 live daemons — refuse to guess (set LAKESHORE_DAEMON)"]
    code, said = smoke(server, ns, tmp_path, LAKESHORE_URL="http://127.0.0.1:1")
    assert code == 1
    assert said[0].startswith("✗ one live daemon: ")


def test_the_script_is_clean_for_shellcheck() -> None:
    try:
        done = subprocess.run(
            ["shellcheck", ROOT / "scripts" / "smoke-exec.sh"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("shellcheck is not installed")
    assert done.stdout == ""
