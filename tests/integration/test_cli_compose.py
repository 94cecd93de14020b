"""`lakeshore up`, `down`, `ps`, `status` and `logs`: a server, an emulated EC2, and machines that run its scripts."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import KEYS, Booted, Client, Ec2, emulated_ec2, push_program
from served import ADMIN, JSON, Served, new_id, running

Run = Callable[..., tuple[int, str, str]]
SMALL = """\
version: 1
project: {project}
provider: cloud
queues:
  work: {{kind: fifo, description: General work queue}}
daemons:
  worker: {{queues: [work], count: {count}, instance_type: t3.medium, keep_alive_s: -1{more}}}
"""
PAGE = """\
version: 1
project: 08-queues-tutorial
provider: cloud

queues:
  cpu-lane:
    kind: fifo
    description: "CPU pool — batch + smoke"
  gpu-t4:
    kind: priority
    description: "T4 GPUs (g4dn.xlarge)"

daemons:
  cpu:
    queues: [cpu-lane]
    count: 5
    instance_type: t3.medium
    keep_alive_s: 600
    setup:
      - "true"
  gpu:
    queues: [gpu-t4]
    count: 5
    instance_type: g4dn.xlarge
    image_id: {image}
    keep_alive_s: 1800
"""


@pytest.fixture(scope="module")
def ec2() -> Iterator[Ec2]:
    with emulated_ec2() as url:
        yield Ec2(url)


@pytest.fixture(scope="module")
def cloud_server(ec2: Ec2, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "AWS_ENDPOINT_URL_EC2": ec2.client.meta.endpoint_url}
    with running(tmp_path_factory.mktemp("cloud"), env=env, token=ADMIN) as served:
        yield served


class Power:
    """Boots each machine of a namespace once it is there, while `on`."""

    def __init__(self, ec2: Ec2, call: Client, root: Path) -> None:
        self._ec2, self._call, self._root = ec2, call, root
        self.booted: dict[str, Booted] = {}

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        done = threading.Event()

        def look() -> None:
            while not done.wait(0.1):
                self.boot()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def boot(self) -> None:
        for row in self._ec2.all():
            ours = self._ec2.tags(row).get("lakeshore-namespace") == self._call.ns
            if ours and row["InstanceId"] not in self.booted and row["State"]["Name"] in ("pending", "running"):
                script = self._ec2.userdata(row["InstanceId"])
                self.booted[row["InstanceId"]] = Booted(self._root / row["InstanceId"], script, "bash")

    def log(self) -> str:
        return "\n".join(machine.log() for machine in self.booted.values())

    def off(self) -> None:
        for machine in self.booted.values():
            machine.off()


@pytest.fixture
def call(cloud_server: Served, ec2: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Client:
    """A namespace with the provider `cloud`; the working directory is empty, and commands are for it."""
    name = f"ns-{new_id()}"
    assert cloud_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    push_program(cloud_server, name)
    client = Client(cloud_server, name)
    kwargs = {"region": "us-east-1", "image_id": ec2.image, "aws_credentials": KEYS}
    told = client("POST", "providers", {"name": "cloud", "launcher": "EC2", "kwargs": kwargs})
    assert told.status == 201, told.body
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKESHORE_URL", cloud_server.url)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", name)
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", ADMIN)
    return client


@pytest.fixture
def power(ec2: Ec2, call: Client, tmp_path: Path) -> Iterator[Power]:
    made = Power(ec2, call, tmp_path / "machines")
    try:
        yield made
    finally:
        made.off()


def declare(count: int = 2, more: str = "", project: str = "my-first-cluster") -> None:
    Path("lakeshore.yaml").write_text(SMALL.format(count=count, more=more, project=project))


def told(run: Run, *words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def labels(run: Run) -> dict[str, str]:
    return {row["label"]: row["id"] for row in told(run, "ps")}


def of_rows(text: str) -> str:
    """Ids as the page prints them."""
    return re.sub(r"\([0-9a-f]{24}\)", "(…)", text)


@pytest.mark.inventory("C-863", "C-355", "C-357")
def test_the_page_of_a_cluster_comes_true(call: Client, run: Run, power: Power, ec2: Ec2) -> None:
    Path("lakeshore.yaml").write_text(PAGE.format(image=ec2.image))
    code, out, err = run("up", "--plan")
    assert (code, out.splitlines()) == (
        0,
        [
            "Plan for project '08-queues-tutorial':",
            "  queue cpu-lane  (would create)",
            "  queue gpu-t4  (would create)",
            "  daemons cpu  0 → 5  (would launch: cpu-0, cpu-1, cpu-2, cpu-3, cpu-4)",
            "  daemons gpu  0 → 5  (would launch: gpu-0, gpu-1, gpu-2, gpu-3, gpu-4)",
        ],
    )
    assert call("GET", "workers").body["count"] == 0
    everybody = [f"{group}-{number}" for group in ("cpu", "gpu") for number in range(5)]
    with power.on():
        code, out, err = run("up", "--wait")
    assert code == 0, (out, err, power.log())
    assert of_rows(out).splitlines() == [
        "✓ project '08-queues-tutorial': 10 daemon(s) launched, 2 queue(s) created",
        "  + queue cpu-lane",
        "  + queue gpu-t4",
        *(f"  + daemon {label}  (…)" for label in everybody),
    ]
    assert {row["state"] for row in told(run, "ps")} == {"active"}
    code, out, err = run("up")
    assert (code, out.splitlines()) == (
        0,
        [
            "✓ project '08-queues-tutorial': 0 daemon(s) launched, 0 queue(s) created",
            "  queue cpu-lane  (already present)",
            "  queue gpu-t4  (already present)",
            "  daemons cpu  5 → 5  (no change)",
            "  daemons gpu  5 → 5  (no change)",
        ],
    )
    code, out, err = run("down", "--terminate")
    assert code == 0, err
    assert of_rows(out).splitlines()[0] == (
        "✓ project '08-queues-tutorial': 10 worker(s) deleted, 10 cloud instance(s) terminated"
    )
    assert sorted(of_rows(out).splitlines()[1:11]) == [f"  - {label} (…)" for label in everybody]
    assert "  queue cpu-lane  (kept: --prune-queues deletes it)" in out
    assert {ec2.states()[instance] for instance in power.booted} <= {"shutting-down", "terminated"}
