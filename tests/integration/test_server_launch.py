"""Daemons on new machines of an emulated EC2: what a launch makes, what the machine then does, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import until
from machines import KEYS, Booted, Client, Ec2, emulated_ec2, push_program
from served import ADMIN, JSON, Served, new_id, running

HOSTILE = 'it\'s "$(touch /tmp/pwned)" `id` \\ \u00e4 %s'


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with emulated_ec2() as url:
        yield Ec2(url)


@pytest.fixture(scope="module")
def cloud_server(ec2: Ec2, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "AWS_ENDPOINT_URL_EC2": ec2.client.meta.endpoint_url}
    with running(tmp_path_factory.mktemp("cloud"), env=env, token=ADMIN) as served:
        yield served


@pytest.fixture
def call(cloud_server: Served, ec2: Ec2) -> Client:
    name = f"ns-{new_id()}"
    assert cloud_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    push_program(cloud_server, name)
    client = Client(cloud_server, name)
    kwargs = {"region": "us-east-1", "image_id": ec2.image, "aws_credentials": KEYS}
    told = client("POST", "providers", {"name": "cloud", "launcher": "EC2", "kwargs": kwargs})
    assert told.status == 201, told.body
    return client


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.inventory("S-153", "S-162", "S-163")
@pytest.mark.inventory("S-160", "S-170", "S-171")
def test_what_a_launch_gives_a_machine_makes_it_the_daemon_whose_row_waits(
    call: Client, ec2: Ec2, tmp_path: Path, shell: str
) -> None:
    told = call.launch(
        name=HOSTILE,
        tags=[HOSTILE, "gpu:none"],
        queues=["training"],
        keep_alive_s=-1,
        capacity={"instance_type": "g5.2xlarge"},
        bootstrap_script="printf '%s\\n' \"it's ran as $(id -u)\" >> ran",
    )
    assert (told.status, told.body["count"], told.body["failed"]) == (201, 1, []), told.body
    (made,) = told.body["workers"]
    assert (made["label"], made["state"]) == (HOSTILE, "pending")
    (instance,) = [row for row in ec2.all() if row["InstanceId"] == made["instanceId"]]
    assert instance["InstanceType"] == "g5.2xlarge"
    assert {"Name": HOSTILE, "lakeshore-worker": made["id"]}.items() <= ec2.tags(instance).items()
    assert call.worker(made["id"])["providerName"] == "cloud"

    machine = Booted(tmp_path / "machine", ec2.userdata(made["instanceId"]), shell)
    try:
        until(lambda: call.worker(made["id"])["state"] == "active", machine.log)
        shown = call.worker(made["id"])
        assert (shown["label"], shown["queues"]) == (HOSTILE, ["training"])
        assert {HOSTILE, "gpu:none"} <= set(shown["tags"])
        assert [row["id"] for row in call("GET", "workers").body["workers"]] == [made["id"]]
        assert (machine.root / "var/lib/dreamlake/ran").read_text() == "it's ran as 0\n"
        assert (machine.root / "opt/dreamlake/bin/nymph").exists()
        assert (machine.root / "etc/dreamlake/token").stat().st_mode & 0o777 == 0o600
        token = (machine.root / "etc/dreamlake/token").read_text().strip()
        assert token not in call.server.said() + machine.log()
    finally:
        machine.off()

    killed = call("DELETE", f"workers/{made['id']}")
    assert (killed.status, killed.body["terminated"]) == (200, True), killed.body
    assert ec2.states()[made["instanceId"]] in ("shutting-down", "terminated")
    assert call.worker(made["id"]) is None
