"""`lakeshore ssh discover|probe|status` against a real sshd and a configuration of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sshd import Sshd, running_sshd

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.host("my-server", "ForwardAgent yes", "ProxyJump none")
        text = running.config.read_text()
        running.config.write_text("Host gone\n    Port 1\n    ProxyJump none\n" + text)
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.inventory("C-116", "C-1062", "C-1063")
def test_discover_lists_the_hosts_and_new_ones_are_those_that_the_server_does_not_know(sshd: Sshd, run: Run) -> None:
    code, out, err = run("ssh", "discover", "--ssh-config", str(sshd.config))
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["ALIAS", "USER", "HOST", "PORT", "VIA", "KEY", "SERVER"] or rows[0][0].lower() == "alias"
    assert [row[0] for row in rows[1:]] == ["gone", "my-server"]
    assert rows[2][2:5] == ["127.0.0.1", str(sshd.port), "—"]
    assert "existing: a provider there leads to the same" in err
    code, out, _ = run("ssh", "discover", "--json", "--ssh-config", str(sshd.config))
    assert [(row["alias"], row["state"]) for row in json.loads(out)] == [("gone", "new"), ("my-server", "new")]


@pytest.mark.inventory("C-538", "C-1064", "C-873")
def test_a_filter_asks_the_server_and_another_word_is_a_usage_mistake(sshd: Sshd, run: Run, server: object) -> None:
    where = ("--ssh-config", str(sshd.config), "--url", server.url)  # type: ignore[attr-defined]
    assert [row["alias"] for row in json.loads(run("ssh", "discover", "--filter", "new", "--json", *where)[1])] == [
        "gone",
        "my-server",
    ]
    assert json.loads(run("ssh", "discover", "--filter", "existing", "--json", *where)[1]) == []
    assert run("ssh", "discover", "--filter", "some", *where)[0] == 2
    code, _, err = run("ssh", "discover", "--filter", "existing", "--ssh-config", str(sshd.config))
    assert code == 2
    assert "server not configured" in err


@pytest.mark.inventory("C-1065", "C-539")
def test_show_stripped_tells_what_matters_here_alone(sshd: Sshd, run: Run) -> None:
    _, out, _ = run("ssh", "discover", "--show-stripped", "--ssh-config", str(sshd.config))
    assert "my-server: ForwardAgent yes\n" in out
    assert "my-server: StrictHostKeyChecking yes\n" in out


@pytest.mark.inventory("C-125", "C-1074", "C-365")
@pytest.mark.inventory("C-126", "C-1076", "C-1077")
@pytest.mark.inventory("C-1272", "C-1273")
def test_a_probe_tries_one_host_or_all_and_status_tells_the_last_ones(sshd: Sshd, run: Run, home: Path) -> None:
    where = ("--ssh-config", str(sshd.config))
    code, out, _ = run("ssh", "probe", "my-server", "--timeout", "15", *where)
    assert code == 0
    assert out.startswith("✓ my-server  ")
    code, out, _ = run("ssh", "probe", "--all", *where)
    assert code == 1
    gone, reached = out.splitlines()
    assert gone.startswith("✗ gone  ")
    assert "ssh gone exited with code 255: " in gone
    assert "Connection refused" in gone
    assert reached.startswith("✓ my-server  ")
    kept = json.loads((home / ".config/dreamlake/ssh-status.json").read_text())
    assert {alias: [row["ok"] for row in rows] for alias, rows in kept.items()} == {
        "my-server": [True, True],
        "gone": [False],
    }
    code, out, _ = run("ssh", "status", "--json", "--history", "1")
    assert [(row["alias"], row["ok"]) for row in json.loads(out)] == [("gone", False), ("my-server", True)]
    code, out, _ = run("ssh", "status", "--name", "my-server")
    assert len(out.splitlines()) == 3
    assert run("ssh", "status", "--name", "nobody")[0] == 1


@pytest.mark.inventory("C-127")
def test_an_alias_that_is_not_there_is_named(run: Run, home: Path) -> None:
    code, _, err = run("ssh", "probe", "nobody")
    assert code == 1
    assert err.startswith("error: no host 'nobody' in ~/.ssh/config\n")
    assert not (home / ".config/dreamlake").exists()
    assert run("ssh", "probe")[0] == 2
    assert run("ssh", "status")[0] == 0
