"""Providers of a server beyond what secrets need: pages, what each launcher takes, warnings, what waits for launchers;
and the list of what an elasticity controller decided.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio
from served import ADMIN, JSON, Answer, Served, new_id, running

from lakeshore.server.records import Records
from lakeshore.server.records.elasticity import ElasticityRow


class Client:
    def __init__(self, server: Served, ns: str) -> None:
        self.server, self.ns = server, ns

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        return self.server.call(method, f"/v1/namespaces/{self.ns}/{path}", body, encoding=JSON)

    def add(self, name: str, launcher: str, **kwargs: Any) -> Answer:
        return self("POST", "providers", {"name": name, "launcher": launcher, "kwargs": kwargs})


def namespace(server: Served, org: str | None = None) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    return name


@pytest.fixture
def call(secured_server: Served) -> Client:
    return Client(secured_server, namespace(secured_server))


AWS = {"accessKeyId": "AKIAEXAMPLE", "secretAccessKey": "s"}


@pytest.mark.parametrize(
    ("launcher", "kwargs", "field"),
    [
        ("SSH", {"ip": "10.0.0.1", "username": "u", "port": 22, "pem": "~/k", "more": {"x": [1]}}, None),
        ("SSH", {"host": "h", "user": "u", "port": "2222"}, None),
        ("SSH", {"port": 0}, "port"),
        ("SSH", {"port": "x"}, "port"),
        ("SSH", {"port": True}, "port"),
        ("SSH", {"ip": "a b"}, "ip"),
        ("SSH", {"username": 7}, "username"),
        ("SSH", {"ssh_key": 1}, "ssh_key"),
        ("SSH", {"dispatch": "later"}, "dispatch"),
        ("SLURM", {"host": "login", "user": "u", "partition": "gpu", "account": "a"}, None),
        ("SLURM", {"partition": ["gpu"]}, "partition"),
        ("EC2", {"region": "us-east-1", "instance_type": "t3.medium", "aws_credentials": AWS, "ami": "ami-1"}, None),
        ("EC2", {"root_volume_size_gb": 100}, None),
        ("EC2", {"root_volume_size_gb": "big"}, "root_volume_size_gb"),
        ("EC2", {"aws_credentials": "AKIA:s"}, "aws_credentials"),
        ("EC2", {"aws_credentials": {"accessKeyId": "A"}}, "aws_credentials.secretAccessKey"),
        ("EC2", {"security_group_ids": ["sg-1", 2]}, "security_group_ids[1]"),
        ("GCE", {"project_id": "p", "region": "r", "zone": "z", "service_account_json": {"type": "x"}}, None),
        ("GCE", {"project_id": ""}, "project_id"),
        ("GCE", {"service_account_json": 1}, "service_account_json"),
        ("Kube", {"context": "my context", "namespace": "jobs", "image": "ghcr.io/a/b:latest"}, None),
        ("Kube", {"image": "a b"}, "image"),
        ("Kube", {"context": {}}, "context"),
    ],
)
@pytest.mark.inventory("S-148", "S-149", "S-150")
@pytest.mark.inventory("S-151", "S-152", "S-138")
def test_each_launcher_takes_its_own_arguments_and_names_the_one_that_is_wrong(
    call: Client, launcher: str, kwargs: dict[str, Any], field: str | None
) -> None:
    made = call.add("box", launcher, **kwargs)
    if field is None:
        assert (made.status, made.body["kwargs"]) == (201, kwargs)
        assert call("PATCH", "providers/box", {"kwargs": {**kwargs, "dispatch": 1}}).status == 422
    else:
        assert (made.status, made.body["field"]) == (422, f"kwargs.{field}")
        assert call("GET", "providers/box").status == 404


@pytest.mark.inventory("S-104", "S-103", "S-107")
def test_a_plain_key_and_a_secret_of_another_kind_are_warned_of(call: Client) -> None:
    for name, kind in (("keys", "aws_keypair"), ("other", "opaque")):
        assert call("POST", "secrets", {"name": name, "kind": kind, "plaintext": "a:b"}).status == 201
    assert call.add("good", "EC2", aws_credentials={"$secret": "keys"}).body["warnings"] == []
    (plain,) = call.add("plain", "EC2", aws_credentials=AWS).body["warnings"]
    assert "kwargs.aws_credentials" in plain and "secrets add" in plain
    changed = call("PATCH", "providers/good", {"kwargs": {"aws_credentials": {"$secret": "other"}}})
    assert changed.body["warnings"] == [
        "kwargs.aws_credentials: secret 'other' is of kind opaque, and EC2 needs aws_keypair"
    ]
    assert call.add("key", "SSH", ip="h", ssh_key="PRIVATE KEY").body["warnings"][0].startswith("kwargs.ssh_key: ")


@pytest.mark.inventory("S-127", "S-128", "S-540")
def test_a_list_is_read_in_pages_over_the_namespaces_of_an_org_and_no_page_overlaps(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    here, there = (Client(secured_server, namespace(secured_server, org)) for _ in range(2))
    for number in range(5):
        (here, there)[number % 2].add(f"box-{number}", "SSH", ip="h")
    here.add("cloud", "EC2")
    there("DELETE", "providers/box-1")
    seen: list[tuple[str, str]] = []
    query = "all=true&limit=2"
    while True:
        page = here("GET", f"providers?{query}").body
        assert page["count"] == len(page["providers"]) <= 2
        seen += [(row["name"], row["namespace"]) for row in page["providers"]]
        if page["next"] is None:
            break
        cursor = page["next"].replace(" ", "%20").replace("[", "%5B").replace("]", "%5D")
        query = f"all=true&limit=2&cursor={cursor}"
    assert len(seen) == 6
    assert seen == sorted(set(seen))
    assert {ns for _name, ns in seen} == {here.ns, there.ns}
    assert [row["name"] for row in here("GET", "providers?launcher=EC2").body["providers"]] == ["cloud"]
    for wrong in ("limit=0", "limit=x", "cursor=none", "launcher=ec2", "hidden=maybe"):
        refused = here("GET", f"providers?{wrong}")
        assert (refused.status, refused.body["field"]) == (422, wrong.partition("=")[0])


@pytest.mark.inventory("S-144", "S-609", "S-131")
def test_a_tunnel_is_attached_and_detached_and_one_that_is_hidden_is_added_so(call: Client) -> None:
    call("POST", "tunnels", {"name": "wg", "kind": "wireguard", "config": {"endpoint": "e:1"}})
    made = call("POST", "providers", {"name": "box", "launcher": "SSH", "kwargs": {}, "hidden": True})
    assert (made.body["tunnel"], made.body["hidden"]) == (None, True)
    refused = call("PATCH", "providers/box", {"tunnel": "none"})
    assert (refused.status, refused.body["field"]) == (422, "tunnel")
    assert call("PATCH", "providers/box", {"tunnel": ""}).body["tunnel"] is None
    assert call("PATCH", "providers/box", {}).status == 422


@pytest.mark.inventory("S-637", "S-633", "S-126")
def test_a_name_is_in_use_once_in_the_file_too_and_many_removals_each_keep_their_own(tmp_path: Path) -> None:
    with running(tmp_path, env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as server:
        call = Client(server, "default")
        for number in range(4):
            assert call.add("box", "SSH", ip=f"h{number}").status == 201
            assert call("DELETE", "providers/box").status == 200
        names = [row["name"] for row in call("GET", "providers?deleted=true").body["providers"]]
        assert len(set(names)) == 4
        call.add("box", "SSH")
    with sqlite3.connect(tmp_path / "state" / "records.db") as conn:
        rows = conn.execute("SELECT count(*) FROM provider WHERE deleted_at IS NULL").fetchone()
        copied = (
            "INSERT INTO provider SELECT ns, name, launcher, kwargs, dispatch, hidden, created_at, updated_at, NULL"
        )
        assert rows == (1,)
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(f"{copied}, tunnel FROM provider WHERE name = 'box'")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "ec2/test", {}, 422, "EC2 launch requires image_id"),
        pytest.param("POST", "slurm/test", {}, 501, "not wired", marks=pytest.mark.inventory("S-794")),
        ("POST", "ssh/test", {}, 422, "from your machine"),
        ("POST", "ec2/test", {"timeout_s": 0}, 422, "timeout_s"),
        ("POST", "ec2/test", {"script": " "}, 422, "script"),
        ("POST", "none/test", {}, 404, "no provider"),
        ("GET", "ec2/instances", None, 422, "aws_keypair secret must be formatted as"),
        ("GET", "ec2/instances?timeout_s=x", None, 422, "timeout_s"),
        ("DELETE", "ec2/instances/i-1", None, 422, "aws_keypair secret must be formatted as"),
        pytest.param("DELETE", "kube/instances/i-1", None, 422, "EC2 and GCE", marks=pytest.mark.inventory("S-147")),
    ],
)
@pytest.mark.inventory("S-709")
def test_what_needs_a_launcher_is_looked_at_field_by_field_before_anybody_is_asked(
    call: Client, method: str, path: str, body: Any, status: int, said: str
) -> None:
    for launcher in ("EC2", "SLURM", "SSH", "Kube"):
        call.add(launcher.lower(), launcher)
    answer = call(method, f"providers/{path}", body)
    assert (answer.status, said in answer.body["error"]) == (status, True), answer.body


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"provider": "ssh"}, 422, "it has neither ip nor host"),
        ({"provider": "slurm"}, 403, "names no host"),
        pytest.param({"provider": "ec2"}, 422, "EC2 launch requires image_id", marks=pytest.mark.inventory("S-172")),
        ({"provider": "ec2", "capacity": {"image_id": "ami-1"}}, 422, "aws_keypair secret must be formatted as"),
        ({"provider": "ec2", "capacity": {"image_id": "ami-1", "aws_credentials": AWS}}, 422, "credentials are the"),
        ({"provider": "ec2", "capacity": {"image_id": {"$secret": "x"}}}, 422, "refers to no secret"),
        ({"provider": "ec2", "capacity": {"image_id": ["ami-1"]}}, 422, "capacity.image_id"),
        ({"provider": "ec2", "capacity": {"image_id": "a", "x": "y" * 20_000}}, 413, "capacity"),
        ({"provider": "kube", "cloud_tags": {"Name": "x"}}, 422, "cloud_tags"),
        ({"provider": "kube", "cloud_tags": {"a": 1}}, 422, "cloud_tags"),
        ({"provider": "kube", "name": "n", "count": 2, "tags": ["gpu:h100"], "queues": ["q"]}, 403, "no kubeconfig"),
        ({"provider": "kube", "count": 0}, 422, "count"),
        ({"provider": "kube", "queues": ["a b\n"]}, 422, "queues[0]"),
        ({"provider": "kube", "setup_commands": [{}]}, 422, "setup_commands[0].script"),
        ({"provider": "none"}, 422, "provider"),
        ({}, 422, "provider"),
    ],
)
def test_a_launch_is_checked_field_by_field_before_it_is_refused(
    call: Client, body: dict[str, Any], status: int, said: str
) -> None:
    for launcher in ("EC2", "SLURM", "SSH", "Kube"):
        call.add(launcher.lower(), launcher)
    answer = call("POST", "daemons/launch", body)
    assert (answer.status, said in answer.body["error"]) == (status, True), answer.body


# --- elasticity events


def decided(queue: str, action: str, at: float) -> ElasticityRow:
    return ElasticityRow(
        ns="default", queue=queue, action=action, reason=f"why {at}", before={"pending": 3}, after={"target": 1}, at=at
    )


@pytest.mark.inventory("S-620", "S-676", "S-677")
@pytest.mark.inventory("S-678", "S-762", "S-282")
def test_decisions_are_listed_newest_first_noops_only_when_asked_and_a_pools_with_its_members(tmp_path: Path) -> None:
    with running(tmp_path, env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as server:
        call = Client(server, "default")
        for name, more in (("q", {"pool": "gpu"}), ("alone", {})):
            body = {"name": name, "elasticity": {"kind": "max_count", **more}}
            assert call("POST", "queues", body).status == 201
    told = [
        decided("q", "scale_up", 4.1e9),
        decided("q", "tick_noop", 4.1e9 + 1),
        decided("pool:gpu", "scale_down", 4.1e9 + 2),
        decided("alone", "tick_noop", 4.1e9 + 3),
    ]

    async def write() -> None:
        records = Records(tmp_path / "state" / "records.db")
        await records.elasticity.put([(row, None) for row in told])
        assert await records.elasticity.forget_old(4.1e9 + 10) == 0
        records.close()

    trio.run(write)
    with running(tmp_path, env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as server:
        call = Client(server, "default")

        def actions(path: str) -> list[tuple[str, str]]:
            found = call("GET", path).body["events"]
            return [(row["queueName"], row["action"]) for row in found if row.get("action")]

        assert actions("elasticity-events") == [("pool:gpu", "scale_down"), ("q", "scale_up")]
        assert actions("elasticity-events?verbose=true")[0] == ("alone", "tick_noop")
        assert actions("elasticity-events?queue=alone&verbose=1") == [("alone", "tick_noop")]
        assert actions("elasticity-events?queue=pool:gpu") == [("pool:gpu", "scale_down")]
        assert actions("queues/q/events") == [("pool:gpu", "scale_down"), ("q", "scale_up")]
        assert len(actions("queues/q/events?verbose=true")) == 3
        page = call("GET", "elasticity-events?limit=1").body
        row = page["events"][0]
        assert (row["reason"], row["before"], row["after"]) == ("why 4100000002.0", {"pending": 3}, {"target": 1})
        assert actions(f"elasticity-events?limit=1&before={page['next']}") == [("q", "scale_up")]
        recent = call("GET", "queues/q/stats").body["recent_actions"]
        assert [one["action"] for one in recent] == ["scale_down", "scale_up"]
        assert call("GET", "elasticity-events?limit=201").status == 422


def test_decisions_that_changed_nothing_are_forgotten_after_a_day_and_the_others_after_a_month(tmp_path: Path) -> None:
    async def kept(now: float) -> list[str]:
        records = Records(tmp_path / "records.db")
        if now == 0:
            await records.elasticity.put(
                [(decided("q", "scale_up", 4.1e9), None), (decided("q", "tick_noop", 4.1e9), None)]
            )
        else:
            await records.elasticity.forget_old(now)
        found = await records.elasticity.page("default", noops=True, limit=9)
        records.close()
        return [row.action for row in found]

    assert trio.run(kept, 0) == ["tick_noop", "scale_up"]
    assert trio.run(kept, 4.1e9 + 2 * 86_400) == ["scale_up"]
    assert trio.run(kept, 4.1e9 + 31 * 86_400) == []
