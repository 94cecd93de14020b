"""The happy paths of hosts, as a user without rights, from the one file: the local stack and its ten checks; a host as
a provider, and a daemon put onto it, over a real sshd.

Reference: admin/happy-paths/03 and 08, cli/happy-paths/04 and 07.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from person import PYTHON, Person, served, short_place, somebody
from ports import free_port
from sshd import RemoteUser, running_sshd

LONG_S = os.environ.get("SMOKE_LONG_S", "2")
"""Seconds. Forty when people run it; above 25 it spans two windows of the long poll."""
COLUMNS = ["label", "state", "runners", "queues", "tags", "version", "seen", "machine_id"]


@pytest.fixture
def person(pyz: Path) -> Iterator[Person]:
    with somebody(pyz) as one:
        one.environ["PORT"] = str(free_port())
        yield one


# --- 03 and 04


@pytest.mark.inventory("C-838", "C-839", "C-840")
@pytest.mark.inventory("C-841", "C-850", "C-852")
def test_the_local_stack_comes_up_once_passes_its_ten_checks_and_goes_down(person: Person) -> None:
    logs = person.home / ".local/state/lakeshore/dev"
    first = person.does("./scripts/dev-up.sh")
    url = f"http://127.0.0.1:{person.environ['PORT']}"
    assert f"export LAKESHORE_URL={url}" in first
    assert str(logs / "serve.log") in first
    stack = {"LAKESHORE_URL": url}
    smoking = person.starts("./scripts/smoke-exec.sh 2>&1", **stack, SMOKE_LONG_S=LONG_S)
    pids = {name: (logs / f"{name}.pid").read_text() for name in ("serve", "nymph")}
    again = person.does("./scripts/dev-up.sh")
    assert again.count("up already") == 2
    assert {name: (logs / f"{name}.pid").read_text() for name in pids} == pids

    listed = person.shell("lakeshore daemon list", **stack)
    assert (listed.returncode, listed.stderr) == (0, "✓ 1 daemon in 'default':\n"), listed.stderr
    head, row = (re.split(r"  +", line) for line in listed.stdout.splitlines())
    assert head == COLUMNS
    assert row[:5] == [socket.gethostname(), "active", "process", "—", "host=local"]
    assert re.fullmatch(r"\d+(\.\d)?s", row[6])
    assert row[7] == socket.gethostname()

    nowhere = person.shell("lakeshore daemon list", LAKESHORE_STATE_DIR="/nowhere")  # none runs from there
    assert nowhere.returncode == 2
    assert nowhere.stderr.startswith("error: server not configured — run `lakeshore auth login")
    with served(person, LAKESHORE_ADMIN_TOKEN="operators") as enforced:
        refused = person.shell("lakeshore daemon list", LAKESHORE_URL=enforced)
        assert (refused.returncode, "401" in refused.stderr or "bearer" in refused.stderr) == (1, True), refused.stderr

    said = smoking.communicate(timeout=120)[0].splitlines()
    assert smoking.returncode == 0, said
    assert [line[0] for line in said] == ["✓"] * 11
    assert said[-1] == f"✓ all 10 checks passed against {url}"

    assert person.does("./scripts/dev-down.sh").count("stopped") == 2
    assert person.does("./scripts/dev-down.sh").count("down already") == 2
    assert not list(logs.glob("*.pid"))


# --- 07 and 08


@pytest.fixture
def box(person: Person) -> Iterator[RemoteUser]:
    with short_place() as place, running_sshd(place) as sshd:
        user = sshd.host("my-box")
        person.may_ssh(sshd, "my-box")
        assert person.does("ssh my-box true") == ""
        yield user


HELLO = r"hostname: .+\npython: 3\.\d+\.\d+\S*\nplatform: \S+\ngpu: .+\nok\n"
STEPS = r"""→ \[1/4\] minting per-daemon token from (?P<url>\S+)…
  ✓ token minted \(name 'daemon-my-box-(?P<id>\w{26})'\)
  launch ID: (?P=id)
  log: ~/\.local/share/nymph-(?P=id)\.log
→ \[2/4\] ssh my-box — bootstrapping \(binary \+ config \+ start\)…
  code: 1 file .*
  ✓ \[3/4\] daemon process started on my-box \(label 'my-box-(?P=id)'\)
→ \[4/4\] waiting \(up to 60s\) for registration ·+
  ✓ daemon registered \(worker (?P<worker>\S+), label 'my-box-(?P=id)'\)
"""
MODULE = """\
import getpass
import dreamlake.lakeshore as dls

@dls.udf(queue="there")
def who(greeting: str) -> str:
    return f"{greeting}, {getpass.getuser()}"
"""
BY_VALUE = """\
import warnings
warnings.simplefilter("ignore")
import dreamlake.lakeshore as dls

@dls.udf(queue="there")
def added(a: int, b: int) -> int:
    return a + b

print(added(2, 3))
"""


@pytest.mark.inventory("C-855", "C-856", "C-857")
@pytest.mark.inventory("C-858", "C-917", "C-466")
def test_a_host_is_tried_as_a_provider_and_a_daemon_on_it_runs_functions_of_modules_and_scripts(
    person: Person, box: RemoteUser
) -> None:
    with served(person) as url:
        person.environ["LAKESHORE_URL"] = url
        assert "my-box" in person.does("lakeshore ssh discover")
        assert "key: secret ssh-my-box" in person.does("lakeshore ssh upload my-box --with-key")
        person.does("lakeshore secrets add my-key --kind ssh_key --from-file ~/.ssh/id_ed25519")
        place = dict(re.findall(r"(HostName|Port|User) (\S+)", (person.home / ".ssh/config").read_text()))
        person.does(
            "lakeshore providers add by-hand --launcher SSH "
            f"--kwarg ip={place['HostName']} --kwarg username={place['User']} --kwarg port={place['Port']} "
            "--kwarg 'ssh_key.$secret=my-key'"
        )
        assert 'ssh_key: "<secret: ssh-my-box>"' in person.does("lakeshore providers show my-box")
        key = person.home / ".ssh/id_ed25519"
        key.rename(key.with_name("elsewhere"))  # what is used is what the server keeps
        for name in ("my-box", "by-hand"):
            assert re.fullmatch(HELLO, person.does(f"lakeshore providers test {name}"))
        key.with_name("elsewhere").rename(key)

        refused = person.shell("lakeshore daemon install my-box", LAKESHORE_STATE_DIR="/nowhere")
        assert (refused.returncode, "daemon install needs LAKESHORE_ADMIN_TOKEN" in refused.stderr) == (2, True)
        person.environ["LAKESHORE_ADMIN_TOKEN"] = (person.home / "state/admin.token").read_text().strip()
        person.write(person.workspace / "code/there.py", MODULE)
        person.write(person.workspace / "code/__pycache__/there.pyc", "")
        said = person.does(
            "lakeshore daemon install my-box --tag gpu --runner process --queue there --code code --allow-pickled"
        )
        found = re.fullmatch(STEPS, said)
        assert found is not None, said
        (row,) = json.loads(person.does("lakeshore daemon list --json"))
        assert (row["id"], row["state"], row["tags"]) == (found["worker"], "active", ["gpu", "host=local"])
        there = box.launches[0] / "code"
        assert sorted(path.name for path in there.rglob("*")) == ["there.py"]

        python = f"PYTHONPATH=$PWD/dist/lakeshore:$PWD/code {PYTHON}"
        call = f"{python} -c 'from there import who; print(who(\"hello\"))'"
        assert person.does(call) == f"hello, {box.name}\n"
        script = person.write(person.home / "by_value.py", BY_VALUE)
        assert person.does(f"{python} {script}") == "5\n"
        person.write(person.workspace / "more/missing.py", MODULE)
        lost = person.shell(call.replace("$PWD/code", "$PWD/more").replace("from there", "from missing"))
        assert lost.returncode == 1
        assert "daemon install --code <dir>" in lost.stderr
        assert "--allow-pickled" in lost.stderr
        assert person.does(f"lakeshore daemon exec {row['id']} whoami") == f"{box.name}\n"
        person.does("lakeshore daemon uninstall my-box")
        assert not box.launches
        assert not box.processes()
        assert json.loads(person.does("lakeshore daemon list --json")) == []
