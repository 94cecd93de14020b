"""`daemon launch` and `daemon launch-log` as they are typed, against a real server and an emulated EC2."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_shell import Shell
from fronting import LOST, Told, front
from machines import KEYS, Booted, Ec2, emulated_ec2, push_program
from served import ADMIN, JSON, Served, new_id, running

from lakeshore.cli.daemon.launch import numbered

Run = Callable[..., tuple[int, str, str]]


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
def ns(cloud_server: Served, ec2: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A namespace with a provider my-ec2; commands run in an empty directory."""
    name = f"ns-{new_id()}"
    assert cloud_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    push_program(cloud_server, name)
    kwargs = {"region": "us-east-1", "image_id": ec2.image, "aws_credentials": KEYS}
    body = {"name": "my-ec2", "launcher": "EC2", "kwargs": kwargs}
    assert cloud_server.post(f"/v1/namespaces/{name}/providers", body, encoding=JSON).status == 201
    for variable, value in (
        ("XDG_CONFIG_HOME", str(tmp_path)),
        ("LAKESHORE_URL", cloud_server.url),
        ("LAKESHORE_NAMESPACE", name),
        ("LAKESHORE_CLIENT_TOKEN", ADMIN),
    ):
        monkeypatch.setenv(variable, value)
    place = tmp_path / "project"
    place.mkdir()
    (place / ".git").mkdir()
    monkeypatch.chdir(place)
    return name


def named(ec2: Ec2, worker: str) -> dict[str, Any]:
    """The machine of a worker, with its tags as a map."""
    (row,) = [row for row in ec2.all() if ec2.tags(row).get("lakeshore-worker") == worker]
    return {**row, "tags": ec2.tags(row)}


def workers(server: Served, ns: str) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for row in server.get(f"/v1/namespaces/{ns}/workers").body["workers"]}


@pytest.mark.inventory("C-199", "C-200", "C-204")
@pytest.mark.inventory("C-672", "C-909", "C-1333")
def test_one_daemon_is_called_as_it_is_told_or_after_its_provider(
    ns: str, cloud_server: Served, ec2: Ec2, run: Run
) -> None:
    code, out, err = run("daemon", "launch", "--provider", "my-ec2", "--name", "ge-debug-1")
    assert code == 0, err
    row = workers(cloud_server, ns)["ge-debug-1"]
    machine = named(ec2, row["id"])
    assert out == f"launched ge-debug-1 (worker {row['id']}, instance {machine['InstanceId']})\n"
    assert (row["state"], row["queues"], machine["tags"]["Name"]) == ("pending", [], "ge-debug-1")
    assert "`lakeshore daemon list`" in err
    code, out, err = run("daemon", "launch", "--provider", "my-ec2", "--json")
    (made,) = json.loads(out)
    assert made["label"].startswith("my-ec2-")
    assert run("daemon", "launch", "--provider", "my-ec2", "--label", "a label", "--json")[0] == 0
    assert "a label" in workers(cloud_server, ns)


@pytest.mark.inventory("C-201", "C-670", "C-671")
@pytest.mark.inventory("C-1334", "C-910", "C-875")
def test_a_fleet_is_numbered_and_so_many_are_launched_at_once(
    ns: str, cloud_server: Served, ec2: Ec2, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(cloud_server.url, lambda *_: None) as door:
        monkeypatch.setenv("LAKESHORE_URL", door.url)
        code, out, err = run(
            "daemon", "launch", "--provider", "my-ec2", "--name", "gpu", "--count", "4", "--concurrency", "2"
        )
    assert code == 0, err
    wanted = ["gpu-00", "gpu-01", "gpu-02", "gpu-03"]
    assert sorted(line.split()[1] for line in out.splitlines()) == wanted
    rows = workers(cloud_server, ns)
    assert sorted(rows) == wanted
    assert [named(ec2, rows[label]["id"])["tags"]["Name"] for label in wanted] == wanted
    assert 1 < door.most <= 2
    assert err.count("LAKESHORE_PUBLIC_URL") == 1  # four answers warned of it
    assert "launching through my-ec2: 1 of 4\n" in err
    assert "launching through my-ec2: 4 of 4\n" in err


@pytest.mark.inventory("C-202", "C-203", "C-205")
@pytest.mark.inventory("C-206", "C-207", "C-378")
@pytest.mark.inventory("C-673", "C-674", "C-675")
@pytest.mark.inventory("C-676", "C-677", "C-678")
@pytest.mark.inventory("C-679", "C-680", "C-681")
@pytest.mark.inventory("C-489", "C-898", "C-1389")
def test_flags_win_over_the_projects_files_lists_are_replaced_and_setup_scripts_are_added(
    ns: str, cloud_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("base.sh", "docker.sh", "more.sh"):
        Path(name).write_text(f"echo {name}\n")
    Path(".lakeshore").write_text(
        "daemon:\n  provider: my-ec2\n  runners: [docker, gvisor]\n  tags: [a:b]\n  queues: [training]\n"
        "  keep_alive_s: 1800\n  capacity: {instance_type: g5.2xlarge}\n  bootstrap_script: ./base.sh\n"
        "  setup_scripts: [./docker.sh]\n"
    )
    inner = Path("deep/down")
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    sent: list[dict[str, Any]] = []

    def note(method: str, path: str, body: bytes) -> Told:
        if method == "POST":
            assert path == f"/v1/namespaces/{ns}/daemons/launch"
            sent.append(json.loads(body))
        return None

    with front(cloud_server.url, note) as door:
        monkeypatch.setenv("LAKESHORE_URL", door.url)
        assert run("daemon", "launch", "--name", "a")[0] == 0
        flags = ("--tag", "x:y", "--queue", "q1", "--queue", "q2", "--runner", "process", "--keep-alive", "-1")
        flags += ("--capacity", '{"instance_type": "t3.micro"}', "--setup-script", "../../more.sh")
        assert run("daemon", "launch", "--name", "b", *flags)[0] == 0
        assert run("daemon", "launch", "--name", "c", "--no-setup", "--setup-script", "../../more.sh")[0] == 0
        assert run("daemon", "launch", "--name", "d", "--no-config", "--provider", "my-ec2")[0] == 0
    script = {"name": "docker.sh", "script": "echo docker.sh\n", "refresh_capabilities": True}
    more = {"name": "more.sh", "script": "echo more.sh\n", "refresh_capabilities": True}
    whole = {
        "provider": "my-ec2",
        "name": "a",
        "runners": ["docker", "gvisor"],
        "tags": ["a:b"],
        "queues": ["training"],
        "keep_alive_s": 1800,
        "capacity": {"instance_type": "g5.2xlarge"},
        "bootstrap_script": "echo base.sh\n",
        "setup_commands": [script],
    }
    lists = {"runners": ["process"], "tags": ["x:y"], "queues": ["q1", "q2"], "setup_commands": [script, more]}
    assert sent == [
        whole,
        {**whole, **lists, "name": "b", "keep_alive_s": -1, "capacity": {"instance_type": "t3.micro"}},
        {
            key: value
            for key, value in {**whole, "name": "c"}.items()
            if key not in ("bootstrap_script", "setup_commands")
        },
        {"provider": "my-ec2", "name": "d"},
    ]
    assert workers(cloud_server, ns)["a"]["state"] == "setting_up"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing says which provider"),
        (("--provider", "my-ec2", "--capacity", "x"), "is no JSON"),
        (("--provider", "my-ec2", "--capacity", "[1]"), "must be a JSON object"),
        (("--provider", "my-ec2", "--count", "0"), "--count"),
        (("--provider", "my-ec2", "--concurrency", "0"), "--concurrency"),
        (("--provider", "my-ec2", "--runner", "spark"), "spark"),
        (("--provider", "my-ec2", "--keep-alive", "-2"), "--keep-alive"),
        (("--provider", "my-ec2", "--bootstrap-script", "none.sh"), "none.sh"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    ns: str, run: Run, words: tuple[str, ...], said: str
) -> None:
    code, out, err = run("daemon", "launch", *words)
    assert (code, out, said in err) == (2, "", True), err


def test_a_runner_in_the_projects_file_that_is_none_is_told_with_its_file(ns: str, run: Run) -> None:
    Path(".lakeshore").write_text("daemon: {provider: my-ec2, runners: [spark]}\n")
    code, _, err = run("daemon", "launch")
    assert (code, ".lakeshore: daemon.runners: there is no runner 'spark'" in err) == (2, True), err


@pytest.mark.inventory("C-866")
def test_what_all_would_be_refused_is_said_once_and_no_more_are_sent(
    ns: str, cloud_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(cloud_server.url, lambda *_: None) as door:
        monkeypatch.setenv("LAKESHORE_URL", door.url)
        code, out, err = run(
            "daemon", "launch", "--provider", "none", "--name", "f", "--count", "20", "--concurrency", "2"
        )
    assert (code, out) == (1, "")
    assert err.count("there is no provider 'none'") == 1
    assert len(door.asked) <= 4
    body = {"name": "bare", "launcher": "EC2", "kwargs": {"region": "r", "aws_credentials": {"$secret": "keys"}}}
    cloud_server.post(
        f"/v1/namespaces/{ns}/secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": "a:b"}, encoding=JSON
    )
    assert cloud_server.post(f"/v1/namespaces/{ns}/providers", body, encoding=JSON).status == 201
    monkeypatch.setenv("LAKESHORE_URL", cloud_server.url)
    assert "EC2 launch requires image_id" in run("daemon", "launch", "--provider", "bare")[2]
    assert run("secrets", "remove", "keys")[0] == 0
    told = run("daemon", "launch", "--provider", "bare", "--capacity", '{"image_id": "ami-1"}')
    assert (told[0], f"secret 'keys' not found in namespace '{ns}'" in told[2]) == (1, True), told


def test_a_throttled_launch_is_sent_again_and_each_makes_one_machine(
    cloud_server: Served, ec2: Ec2, ns: str, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    throttled = [0]

    def slow_down(method: str, path: str, body: bytes) -> Told:
        if method == "POST" and path.endswith("/daemons/launch") and throttled[0] < 3:
            throttled[0] += 1
            told = {"error": "provider 'my-ec2': Request limit exceeded.", "awsCode": "RequestLimitExceeded"}
            return 502, json.dumps(told).encode()
        return None

    monkeypatch.setattr("lakeshore.cli.daemon.launch._FIRST_WAIT_S", 0.01)
    with front(cloud_server.url, slow_down) as door:
        monkeypatch.setenv("LAKESHORE_URL", door.url)
        code, out, err = run("daemon", "launch", "--provider", "my-ec2", "--name", "t", "--count", "3")
    assert (code, len(out.splitlines())) == (0, 3), err
    assert sorted(workers(cloud_server, ns)) == ["t-00", "t-01", "t-02"]


def test_a_launch_whose_answer_is_lost_is_not_sent_again_and_that_is_said(
    cloud_server: Served, ns: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(method: str, path: str, body: bytes) -> Told:
        return LOST if method == "POST" and any(name in body for name in (b'"l-00"', b'"l"')) else None

    with front(cloud_server.url, lose) as door:
        monkeypatch.setenv("LAKESHORE_URL", door.url)
        code, out, err = run("daemon", "launch", "--provider", "my-ec2", "--name", "l")
        assert (code, out) == (1, "")
        assert "it may have made a machine all the same" in err
        assert list(workers(cloud_server, ns)) == ["l"]
        code, out, err = run(
            "daemon", "launch", "--provider", "my-ec2", "--name", "l", "--count", "2", "--concurrency", "1"
        )
        assert code == 1
        assert "it may have made a machine all the same" in err
    assert sum(b'"name": "l-00"' in body for _, _, body in door.asked) == 1


@pytest.mark.inventory("C-682", "C-208", "C-965")
@pytest.mark.inventory("C-966", "C-925", "C-865")
def test_wait_tells_the_states_on_the_way_and_ends_when_the_daemon_is_there(
    ns: str, cloud_server: Served, ec2: Ec2, run: Run, tmp_path: Path
) -> None:
    known = {row["InstanceId"] for row in ec2.all()}
    booted: list[Booted] = []

    def boot() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for row in ec2.all():
                if row["InstanceId"] not in known and row["State"]["Name"] == "running":
                    booted.append(Booted(tmp_path / "machine", ec2.userdata(row["InstanceId"]), "sh"))
                    return
            time.sleep(0.1)

    thread = threading.Thread(target=boot)
    thread.start()
    try:
        code, out, err = run("daemon", "launch", "--provider", "my-ec2", "--name", "smoke", "--wait", "--json")
        assert code == 0, err
        (row,) = json.loads(out)
        assert (row["label"], row["registered"]) == ("smoke", True)
        assert "waiting (up to 600 s) for it to register" in err
        assert f"✓ smoke registered (worker {row['id']}, active)" in err or "joining" in err
    finally:
        thread.join(60)
        for machine in booted:
            machine.off()


def test_wait_ends_with_what_to_do_when_nobody_comes(ns: str, run: Run) -> None:
    words = ("--provider", "my-ec2", "--name", "never", "--count", "2", "--wait", "--wait-s", "1")
    code, out, err = run("daemon", "launch", *words)
    assert (code, len(out.splitlines())) == (1, 2)
    for label in ("never-00", "never-01"):
        assert f"error: {label} did not register within 1 s; it is pending, its machine starting" in err
    assert "`lakeshore daemon launch-log " in err
    assert "`lakeshore daemon kill " in err


def test_wait_says_it_when_a_daemon_is_killed_meanwhile(ns: str, cloud_server: Served, tmp_path: Path) -> None:
    shell = Shell(cloud_server.url, tmp_path, ns)
    shell.env |= {"LAKESHORE_CLIENT_TOKEN": ADMIN}
    words = ("daemon", "launch", "--no-config", "--provider", "my-ec2", "--name", "brief", "--wait")
    with shell.start(*words, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"pending" in line:
                break
        worker = workers(cloud_server, ns)["brief"]["id"]
        cloud_server.call("DELETE", f"/v1/namespaces/{ns}/workers/{worker}")
        said = process.stdout.read().decode()
        assert process.wait(60) == 1
    assert "error: brief was dropped while it was waited for" in said


def test_an_interrupt_sends_no_more_and_tells_what_was_launched(ns: str, cloud_server: Served, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(method: str, path: str, body: bytes) -> Told:
        if b'"name": "i-02"' in body or b'"name": "i-03"' in body:
            begun.set()
            assert go_on.wait(60)
        return None

    with front(cloud_server.url, hold) as door:
        shell = Shell(door.url, tmp_path, ns)
        shell.env |= {"LAKESHORE_CLIENT_TOKEN": ADMIN}
        words = ("--no-config", "--provider", "my-ec2", "--name", "i", "--count", "8", "--concurrency", "2")
        with shell.start("daemon", "launch", *words, stderr=subprocess.STDOUT) as process:
            assert begun.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            said = b""
            while b"interrupted" not in said:
                said += process.stdout.readline()
            go_on.set()
            said += process.stdout.read()
            assert process.wait(60) == 130
    rows = workers(cloud_server, ns)
    assert 2 <= len(rows) <= 4
    for row in rows.values():
        assert f"lakeshore daemon kill {row['id']}".encode() in said


@pytest.mark.inventory("C-225", "C-736", "C-737")
@pytest.mark.inventory("C-738", "C-739", "C-1451")
def test_the_log_of_a_launch_is_its_machines_console_and_another_providers_is_refused(
    ns: str, cloud_server: Served, ec2: Ec2, run: Run
) -> None:
    assert run("daemon", "launch", "--provider", "my-ec2", "--name", "seen")[0] == 0
    whole = run("daemon", "launch-log", "seen")
    assert whole[0] == 0, whole
    assert len(whole[1].splitlines()) > 1
    assert run("daemon", "launch-log", "seen", "--tail", "1")[1].splitlines() == whole[1].splitlines()[-1:]
    code, out, _ = run("daemon", "launch-log", "seen", "--no-latest", "--json")
    told = json.loads(out)
    assert (code, told["instanceId"]) == (0, named(ec2, told["id"])["InstanceId"])
    assert run("daemon", "launch-log", "nobody")[0] == 1
    assert run("daemon", "launch-log", "seen", "--tail", "0")[0] == 2


@pytest.mark.inventory("C-1483")
def test_a_dry_run_prints_what_a_machine_would_run_and_makes_nothing(
    ns: str, cloud_server: Served, ec2: Ec2, run: Run, tmp_path: Path
) -> None:
    before = len(ec2.all())
    Path("first.sh").write_text("echo 'it is first'\n")
    words = ("--provider", "my-ec2", "--name", "dry", "--count", "2", "--bootstrap-script", "first.sh", "--dry-run")
    code, out, err = run("daemon", "launch", *words)
    assert (code, err) == (0, "")
    assert out.startswith("#!/bin/sh\n")
    assert "it is first" in out
    assert "token='<the token of this worker>'" in out
    assert json.loads(run("daemon", "launch", *words, "--json")[1])["label"] == "dry-00"
    assert (workers(cloud_server, ns), len(ec2.all())) == ({}, before)
    tokens = cloud_server.get(f"/v1/namespaces/{ns}/tokens").body["tokens"]
    assert not [row for row in tokens if row["name"].startswith("launch-")]
    assert run("daemon", "launch", "--provider", "none", "--dry-run")[0] == 1
    assert subprocess.run(["sh", "-n"], input=out, text=True, check=False).returncode == 0


def test_a_fleet_of_hundreds_sorts_as_it_counts() -> None:
    assert numbered("f", 1) == ("f",)
    assert numbered(None, 2) == (None, None)
    assert numbered("f", 2) == ("f-00", "f-01")
    assert numbered("f", 101)[::50] == ("f-000", "f-050", "f-100")
