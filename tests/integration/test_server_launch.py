"""Daemons on new machines of an emulated EC2: what a launch makes, what the machine then does, and how it ends."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aws_front import Front, front_of
from daemons import until
from machines import KEYS, Booted, Client, Ec2, emulated_ec2, push_program
from served import ADMIN, JSON, Served, new_id, running

HOSTILE = 'it\'s "$(touch /tmp/pwned)" `id` \\ \u00e4 %s'


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with emulated_ec2() as url:
        yield Ec2(url)


@pytest.fixture(scope="module")
def front(ec2: Ec2) -> Iterator[Front]:
    with front_of(ec2.client.meta.endpoint_url) as made:
        yield made


@pytest.fixture(scope="module")
def cloud_server(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "AWS_ENDPOINT_URL_EC2": front.url}
    with running(tmp_path_factory.mktemp("cloud"), env=env, token=ADMIN) as served:
        yield served


@pytest.fixture
def call(cloud_server: Served, front: Front, ec2: Ec2) -> Client:
    front.loses, front.refuses = 0, []
    return client_of(cloud_server, ec2)


def client_of(server: Served, ec2: Ec2, org: str | None = None) -> Client:
    """A namespace of its own with a provider."""
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    push_program(server, name)
    client = Client(server, name)
    kwargs = {"region": "us-east-1", "image_id": ec2.image, "aws_credentials": KEYS}
    told = client("POST", "providers", {"name": "cloud", "launcher": "EC2", "kwargs": kwargs})
    assert told.status == 201, told.body
    return client


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.inventory("S-153", "S-162", "S-163")
@pytest.mark.inventory("S-160", "S-170", "S-171")
@pytest.mark.inventory("S-159", "S-161")
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
        machine.off()
        before = call.worker(made["id"])["helloAt"]
        machine = Booted(tmp_path / "machine", ec2.userdata(made["instanceId"]), shell)  # the power is back
        until(lambda: call.worker(made["id"])["helloAt"] > before, machine.log)
        until(lambda: call.worker(made["id"])["state"] == "active", machine.log)
        assert [row["id"] for row in call("GET", "workers").body["workers"]] == [made["id"]]
        assert (machine.root / "var/lib/dreamlake/ran").read_text().count("ran") == 1
    finally:
        machine.off()

    killed = call("DELETE", f"workers/{made['id']}")
    assert (killed.status, killed.body["terminated"]) == (200, True), killed.body
    assert ec2.states()[made["instanceId"]] in ("shutting-down", "terminated")
    assert call.worker(made["id"]) is None


def test_an_answer_that_is_lost_makes_no_second_machine(call: Client, front: Front, ec2: Ec2) -> None:
    front.loses = 1
    before = set(ec2.states())
    told = call.launch(name="once")
    assert told.status == 201, told.body
    assert set(ec2.states()) - before == {told.body["workers"][0]["instanceId"]}


def test_a_machine_that_nobody_was_told_of_is_found_though_the_server_was_killed(
    front: Front, ec2: Ec2, tmp_path: Path
) -> None:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "AWS_ENDPOINT_URL_EC2": front.url, "LAKESHORE_MACHINES_LOOK_S": "0.2"}
    with running(tmp_path, env={**env, "LAKESHORE_MACHINES_LOOK_S": "600"}, token=ADMIN) as server:
        call = client_of(server, ec2)
        front.loses = 2
        before = set(ec2.states())
        told = call.launch(name="lost")
        assert (told.status, told.body["workers"][0]["instanceId"]) == (201, None), told.body
        assert "found out by itself" in told.body["workers"][0]["note"]
        server.stop(signal.SIGKILL)
    (worker,) = told.body["workers"]
    (instance,) = set(ec2.states()) - before
    with running(tmp_path, env=env, token=ADMIN) as server:
        call = Client(server, call.ns)
        until(lambda: call.worker(worker["id"])["hostStatus"] == "running")
        assert call("DELETE", f"workers/{worker['id']}").body["terminated"] is True
        assert ec2.states()[instance] in ("shutting-down", "terminated")


@pytest.mark.inventory("S-173")
def test_what_aws_refuses_is_a_502_with_its_code_and_leaves_nothing(call: Client, front: Front) -> None:
    front.refuses = ["UnauthorizedOperation"] * 3
    told = call.launch(count=3)
    assert (told.status, told.body["awsCode"]) == (502, "UnauthorizedOperation"), told.body
    assert told.body["hint"] and KEYS["secretAccessKey"] not in str(told.body)
    assert call("GET", "workers").body["workers"] == []
    assert [one for one in call("GET", "tokens").body["tokens"] if one.get("revokedAt") is None] == []

    front.refuses = ["InsufficientInstanceCapacity"]
    told = call.launch(name="some", count=2)
    assert (told.status, told.body["count"]) == (201, 1), told.body
    (failed,) = told.body["failed"]
    assert (failed["awsCode"], failed["label"][:5]) == ("InsufficientInstanceCapacity", "some-")
    assert [one["id"] for one in call("GET", "workers").body["workers"]] == [told.body["workers"][0]["id"]]


def test_a_throttle_is_waited_out(call: Client, front: Front) -> None:
    front.refuses = ["RequestLimitExceeded"] * 3
    assert call.launch(name="patient").status == 201


@pytest.mark.parametrize(
    "text",
    ["AKIAEXAMPLE:planted-secret-key", '{"accessKeyId": "AKIAEXAMPLE", "secretAccessKey": "planted-secret-key"}'],
)
@pytest.mark.inventory("S-122", "S-775")
def test_keys_may_be_a_secret_in_either_form_and_are_never_shown(call: Client, text: str) -> None:
    assert call("POST", "secrets", {"name": "aws", "kind": "aws_keypair", "plaintext": text}).status == 201
    provider = call("GET", "providers/cloud").body
    kwargs = {**provider["kwargs"], "aws_credentials": {"$secret": "aws"}}
    assert call("PATCH", "providers/cloud", {"kwargs": kwargs}).status == 200
    told = call.launch(name="keyed")
    assert told.status == 201, told.body
    shown = [told.body, call("GET", "providers/cloud").body, call.worker(told.body["workers"][0]["id"])]
    assert "planted-secret-key" not in str(shown) + call.server.said()


@pytest.mark.inventory("S-105")
def test_a_keypair_without_a_colon_is_said_in_the_documented_words(call: Client) -> None:
    assert call("POST", "secrets", {"name": "bad", "kind": "aws_keypair", "plaintext": "AKIA"}).status == 201
    provider = call("GET", "providers/cloud").body
    kwargs = {**provider["kwargs"], "aws_credentials": {"$secret": "bad"}}
    assert call("PATCH", "providers/cloud", {"kwargs": kwargs}).status == 200
    told = call.launch()
    said = "aws_keypair secret must be formatted as <access_key_id>:<secret_access_key>"
    assert (told.status, told.body["error"].startswith(said)) == (422, True), told.body


@pytest.mark.inventory("S-809")
def test_a_siblings_provider_is_used_with_its_own_secrets_and_the_error_names_where_they_are_looked_for(
    cloud_server: Served, ec2: Ec2
) -> None:
    org = f"org-{new_id()}"
    owner = client_of(cloud_server, ec2, org=org)
    name = f"ns-{new_id()}"
    assert cloud_server.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    push_program(cloud_server, name)
    guest = Client(cloud_server, name)
    assert owner("POST", "secrets", {"name": "aws", "kind": "aws_keypair", "plaintext": "A:b"}).status == 201
    kwargs = {**owner("GET", "providers/cloud").body["kwargs"], "aws_credentials": {"$secret": "aws"}}
    assert owner("PATCH", "providers/cloud", {"kwargs": kwargs}).status == 200
    assert guest.launch().status == 201
    assert owner("DELETE", "secrets/aws").status == 200
    told = guest.launch()
    assert (told.status, told.body["error"]) == (422, f"secret 'aws' not found in namespace {owner.ns!r}")


@pytest.mark.inventory("S-155", "S-156")
@pytest.mark.inventory("S-166", "S-167", "S-808")
@pytest.mark.inventory("S-157")
def test_scripts_run_in_their_order_before_and_after_the_daemon_is_there(
    call: Client, ec2: Ec2, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    told = call.launch(
        bootstrap_script=f"#!/bin/bash\n[[ $UID = 0 ]] && echo boot >> {trace}\n" + "# x\n" * 6000,
        setup_commands=[{"script": f"echo {place} | tee -a {trace}", "name": f"s{place}"} for place in range(3)],
        compose_project="demo",
    )
    assert told.status == 201, told.body
    (made,) = told.body["workers"]
    assert made["state"] == "setting_up"
    assert [one["name"] for one in call.worker(made["id"])["pendingSetupCommands"]] == ["s0", "s1", "s2"]
    machine = Booted(tmp_path / "machine", ec2.userdata(made["instanceId"]), "sh")
    try:
        until(lambda: call.worker(made["id"])["state"] == "active", machine.log)
        until(lambda: len(call.worker(made["id"])["setups"]) == 3 and trace.read_text().count("\n") == 4)
        assert trace.read_text().split() == ["boot", "0", "1", "2"]
        until(lambda: [one["state"] for one in call.worker(made["id"])["setups"]] == ["done"] * 3)
        assert sorted(one["stdout"] for one in call.worker(made["id"])["setups"]) == ["0\n", "1\n", "2\n"]
        listed = call("GET", "workers?compose_project=demo").body["workers"]
        assert [one["id"] for one in listed] == [made["id"]]
    finally:
        machine.off()


def test_a_machine_whose_bootstrap_script_fails_says_so_and_starts_no_daemon(
    call: Client, ec2: Ec2, tmp_path: Path
) -> None:
    (made,) = call.launch(bootstrap_script="exit 3").body["workers"]
    machine = Booted(tmp_path / "machine", ec2.userdata(made["instanceId"]), "dash")
    assert machine.process.wait(60) == 1
    assert "the bootstrap script ended with exit code 3" in machine.log()
    assert call.worker(made["id"])["state"] == "pending"


def test_a_program_that_is_not_what_was_said_is_not_run(call: Client, ec2: Ec2, tmp_path: Path) -> None:
    (made,) = call.launch().body["workers"]
    script = re.sub(r"^sha256='.*'$", "sha256='" + "0" * 64 + "'", ec2.userdata(made["instanceId"]), flags=re.M)
    machine = Booted(tmp_path / "machine", script.replace("range(30)", "range(1)"), "dash")
    assert machine.process.wait(60) == 1
    assert "is damaged: its sha256 is" in machine.log()
    assert not (machine.root / "opt/dreamlake/bin/nymph").exists()


def test_a_daemon_of_a_worker_that_was_killed_is_let_in_no_more(call: Client, ec2: Ec2, tmp_path: Path) -> None:
    (made,) = call.launch().body["workers"]
    killed = call("DELETE", f"workers/{made['id']}?keep_instance=true")
    assert (killed.status, killed.body["terminated"]) == (200, False)
    assert ec2.states()[made["instanceId"]] == "running"
    machine = Booted(tmp_path / "machine", ec2.userdata(made["instanceId"]), "dash")
    try:
        assert machine.process.wait(60) == 1
        assert "this worker was removed" in machine.log()
    finally:
        machine.off()
    assert call("GET", "workers").body["workers"] == []


@pytest.mark.inventory("S-175", "S-710", "S-795")
def test_the_console_of_a_machine_is_what_its_provider_kept(call: Client) -> None:
    (made,) = call.launch().body["workers"]
    shown = call("GET", f"workers/{made['id']}/launch-log?latest=false")
    assert (shown.status, shown.body["instanceId"]) == (200, made["instanceId"])
    lines = shown.body["output"].splitlines()
    tail = call("GET", f"workers/{made['id']}/launch-log?tail=2").body["output"].splitlines()
    assert (len(lines) > 2, tail) == (True, lines[-2:])
    assert call("GET", f"workers/{made['id']}/launch-log?tail=0").status == 422
    assert call("GET", "workers/none/launch-log").status == 404


@pytest.mark.inventory("S-146", "S-147")
def test_instances_are_listed_with_their_workers_and_ended_one_by_one(call: Client, ec2: Ec2) -> None:
    (made,) = call.launch(name="listed").body["workers"]
    rows = {one["id"]: one for one in call("GET", "providers/cloud/instances").body["instances"]}
    row = rows[made["instanceId"]]
    assert (row["name"], row["worker"], row["type"]) == ("listed", made["id"], "t3.medium")
    assert row["state"] in ("starting", "running")
    assert call("DELETE", f"providers/cloud/instances/{made['instanceId']}").body["terminated"] is True
    assert ec2.states()[made["instanceId"]] in ("shutting-down", "terminated")
    assert made["instanceId"] not in {one["id"] for one in call("GET", "providers/cloud/instances").body["instances"]}


def test_a_namespace_whose_machines_run_is_not_deleted(call: Client) -> None:
    (made,) = call.launch().body["workers"]
    path = f"/v1/admin/namespaces/{call.ns}"
    refused = call.server.call("DELETE", path, encoding=JSON)
    assert (refused.status, "daemon kill" in refused.body["hint"]) == (409, True), refused.body
    assert call("DELETE", f"workers/{made['id']}").status == 200


@pytest.mark.inventory("S-168", "S-696")
def test_machines_reach_the_server_as_it_was_told_and_a_url_that_only_this_machine_reaches_is_warned_of(
    front: Front, ec2: Ec2, tmp_path: Path
) -> None:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "AWS_ENDPOINT_URL_EC2": front.url}
    named = {
        "LAKESHORE_PUBLIC_URL": "https://public.example/",
        "LAKESHORE_SERVER_URL": "https://server.example",
        "LAKESHORE_URL": "https://url.example",
    }
    for name, url in (*named.items(), ("", "")):
        with running(tmp_path / (name or "none"), env={**env, **named}, token=ADMIN) as server:
            call = client_of(server, ec2)
            told = call.launch()
            script = ec2.userdata(told.body["workers"][0]["instanceId"])
            wanted = url.rstrip("/") or f"http://localhost:{server.url.rpartition(':')[2]}"
            assert f"\nurl='{wanted}'\n" in script and f'url = "{wanted}"' in script
            assert bool(told.body["warnings"]) == (not url)
        named.pop(name, None)


@pytest.mark.parametrize(
    ("script", "code", "out"),
    [
        (None, 0, "ok\n"),
        ("import sys; print('it\\'s python'); sys.exit(3)", 3, "it's python\n"),
        ("#!/bin/bash\n[[ 1 = 1 ]] && echo bash", 0, "bash\n"),
    ],
)
@pytest.mark.inventory("S-145")
def test_a_script_is_tried_on_a_machine_of_its_own_which_ends_with_it(
    call: Client, ec2: Ec2, tmp_path: Path, script: str | None, code: int, out: str
) -> None:
    before = set(ec2.states())
    body = {"timeout_s": 120} if script is None else {"timeout_s": 120, "script": script}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, "POST", "providers/cloud/test", body)
        until(lambda: set(ec2.states()) - before or asked.done())
        (instance,) = set(ec2.states()) - before
        machine = Booted(tmp_path / "machine", ec2.userdata(instance), "sh")
        try:
            told = asked.result(120)
        finally:
            machine.off()
    assert (told.status, told.body["exitCode"], told.body["instanceId"]) == (200, code, instance), told.body
    assert told.body["stdout"].endswith(out)
    assert ec2.states()[instance] in ("shutting-down", "terminated")
    assert call("GET", "workers").body["workers"] == []


def test_a_script_that_takes_too_long_is_said_with_the_console_and_its_machine_ends(call: Client, ec2: Ec2) -> None:
    before = set(ec2.states())
    told = call("POST", "providers/cloud/test", {"timeout_s": 1})
    assert (told.status, bool(told.body["console"])) == (502, True), told.body
    (instance,) = set(ec2.states()) - before
    assert ec2.states()[instance] in ("shutting-down", "terminated")
    assert call("GET", "workers").body["workers"] == []
