"""Tab in the real shells, over the program's own commands: the verbs of each group, and the names that a server and the
files of this machine know."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator

import pytest
from exec_peer import Peer
from served import JSON, Served
from shells import Shell, shell

NAMESPACE = f"names-{secrets.token_hex(4)}"
THERE = {  # of the namespace: the list, what is in it
    "secrets": {"name": "of-secrets", "kind": "opaque", "plaintext": "x"},
    "tunnels": {"name": "of-tunnels", "kind": "wireguard", "config": {"interface": {}, "peers": []}},
    "providers": {"name": "of-providers", "launcher": "SSH", "kwargs": {"ip": "10.0.0.1"}},
    "modes": {"name": "of-modes", "backend": "fabric"},
    "mounts": {"name": "of-mounts", "kind": "nfs", "config": {"server": "a", "path": "/b"}},
    "storages": {"name": "of-storages", "kind": "s3", "config": {"bucket": "b", "region": "r"}},
    "queues": {"name": "of-queues"},
}


@pytest.fixture(scope="module")
def there(server: Served) -> None:
    """One of each kind, in a namespace of its own."""
    assert server.call("POST", "/v1/admin/namespaces", {"name": NAMESPACE}, encoding=JSON).status == 201
    for kind, row in THERE.items():
        made = server.call("POST", f"/v1/namespaces/{NAMESPACE}/{kind}", row, encoding=JSON)
        assert made.status == 201, made.body
    order = {"worker_id": Peer(server, ns=NAMESPACE).id, "command": "true"}
    assert server.call("POST", f"/v1/namespaces/{NAMESPACE}/exec", order, encoding=JSON).status == 202


@pytest.fixture(scope="module", params=("bash", "zsh", "fish"))
def tab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: Served, there: None
) -> Iterator[Shell]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"no {name} on this machine (Debian: apt install {name})")
    home = tmp_path_factory.mktemp(f"home-{name}")
    for file, text in {
        ".aws/config": "[default]\n[profile eu]\n",
        ".ssh/config": "Host gpu1\n",
        ".config/gcloud/configurations/config_lab": "",
        "some file": "",
    }.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    with shell(name, home, LAKESHORE_URL=server.url, LAKESHORE_NAMESPACE=NAMESPACE) as started:
        yield started


def offered(tab: Shell, line: str) -> list[str]:
    """What Tab offers; a Tab gives the server half a second, which may be too short on a busy machine."""
    deadline = time.monotonic() + 30
    while not (found := tab.offered(f"lakeshore {line} ")) and time.monotonic() < deadline:
        continue
    return found


def case(row: str, line: str, names: str) -> object:
    return pytest.param(line, names.split(), id=line or "lakeshore", marks=pytest.mark.inventory(row))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        case(
            "C-273",
            "",
            "providers secrets modes auth config daemon worker jobs tunnels mounts ssh aws gcp slurm kube docker "
            "completion",
        ),
        case("C-274", "", "storage code queues exec run nymph admin tui"),
        case("C-275", "providers", "test instances add list show remove update terminate edit discover"),
        case("C-276", "secrets", "add list show rotate remove"),
        case("C-277", "modes", "add list show remove update"),
        case("C-278", "auth", "login status logout"),
        case("C-279", "config", "show refresh source"),
        case("C-282", "jobs", "list show kill bulk-cancel"),
        case("C-283", "tunnels", "add list show remove"),
        case("C-284", "mounts", "add list show remove update"),
        *(case("C-286", group, "discover") for group in ("aws", "gcp", "slurm", "kube", "docker")),
        case("C-045", "completion", "bash zsh fish"),
    ],
)
def test_the_verbs_of_a_group_complete(tab: Shell, line: str, names: list[str]) -> None:
    found = tab.offered(f"lakeshore {line} ".replace("  ", " "))
    assert set(names) <= set(found)
    assert "__suggest" not in found


@pytest.mark.parametrize(
    ("line", "names"),
    [
        case("C-288", "providers show", "of-providers"),
        case("C-289", "secrets rotate", "of-secrets"),
        case("C-290", "modes update", "of-modes"),
        case("C-291", "tunnels remove", "of-tunnels"),
        case("C-292", "mounts show", "of-mounts"),
        case("C-296", "providers add new --from-aws-profile", "default eu"),
        case("C-297", "providers add new --from-gcloud-config", "lab"),
        case("C-298", "providers update foo --tunnel", "of-tunnels"),
        pytest.param("storage show", ["of-storages"], id="storage show"),
        pytest.param("storage add new --creds", ["of-secrets"], id="storage add --creds"),
        pytest.param("queues show", ["default", "of-queues"], id="queues show"),
    ],
)
def test_what_is_there_completes_by_its_name(tab: Shell, line: str, names: list[str]) -> None:
    assert offered(tab, line) == names


def test_a_command_on_a_daemon_completes_by_its_id(tab: Shell, server: Served) -> None:
    listed = server.get(f"/v1/namespaces/{NAMESPACE}/exec").body["execs"]
    assert offered(tab, "daemon follow") == [row["exec_id"] for row in listed] != []


@pytest.mark.parametrize("group", ["modes", "mounts", "tunnels", "storage"])
def test_a_config_is_completed_as_a_file(tab: Shell, group: str) -> None:
    typed = tab.typed(f"lakeshore {group} add new --config-file some\\ f\t")
    assert typed == [group, "add", "new", "--config-file", "some file"]
