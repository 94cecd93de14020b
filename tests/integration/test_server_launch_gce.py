"""Machines of Google's: what a launch asks for, by which bearer, and what becomes of lost answers and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from google_cloud import PROJECT, ZONE, Cloud, google_cloud, service_account
from machines import Client, push_program
from served import ADMIN, JSON, Served, new_id, running


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with google_cloud() as made:
        yield made


@pytest.fixture(scope="module")
def served(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{cloud.url}/compute/v1/"}
    with running(tmp_path_factory.mktemp("gce"), env=env, token=ADMIN) as server:
        yield server


@pytest.fixture
def call(served: Served, cloud: Cloud) -> Client:
    name = f"ns-{new_id()}"
    assert served.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    push_program(served, name)
    client = Client(served, name)
    secret = {"name": "sa", "kind": "gcp_sa_json", "plaintext": json.dumps(cloud.key)}
    assert client("POST", "secrets", secret).status == 201
    kwargs = {"zone": ZONE, "service_account_json": {"$secret": "sa"}}
    assert client("POST", "providers", {"name": "cloud", "launcher": "GCE", "kwargs": kwargs}).status == 201
    cloud.refuses, cloud.drop_answers = None, 0
    cloud.asked.clear()
    return client


@pytest.mark.inventory("S-153", "S-150")
def test_a_machine_of_google_is_made_listed_and_ended_by_the_bearer_of_its_key(call: Client, cloud: Cloud) -> None:
    told = call.launch(name="GPU rig É", capacity={"machine_type": "n2-standard-4"}, cloud_tags={"team": "a b"})
    assert told.status == 201, told.body
    (made,) = told.body["workers"]
    machine = cloud.machines[made["instanceId"]]
    assert made["instanceId"] == f"gpu-rig-{made['id']}"
    assert machine["machineType"] == f"zones/{ZONE}/machineTypes/n2-standard-4"
    assert machine["labels"] == {"lakeshore-worker": made["id"], "lakeshore-namespace": call.ns, "team": "a-b"}
    (script,) = machine["metadata"]["items"]
    assert (script["key"], script["value"].startswith("#!/bin/sh\n")) == ("startup-script", True)
    assert all(f"/projects/{PROJECT}/zones/{ZONE}" in one for one in cloud.asked)

    (listed,) = [
        one for one in call("GET", "providers/cloud/instances").body["instances"] if one["worker"] == made["id"]
    ]
    assert (listed["id"], listed["state"], listed["name"]) == (made["instanceId"], "running", "GPU rig É")
    answer = call("GET", f"workers/{made['id']}/launch-log")
    assert (answer.status, answer.body["error"]) == (422, "launch log not supported for GCE")
    assert call("DELETE", f"workers/{made['id']}").body["terminated"] is True
    assert made["instanceId"] not in cloud.machines
    assert call("DELETE", "providers/cloud/instances/long-gone").body == {"id": "long-gone", "terminated": True}
    said = call.server.said()
    assert "planted-bearer" not in said and "PRIVATE KEY" not in said


def test_an_answer_that_is_lost_makes_no_second_machine(call: Client, cloud: Cloud) -> None:
    cloud.drop_answers = 1
    before = set(cloud.machines)
    told = call.launch(name="once")
    assert (told.status, len(set(cloud.machines) - before)) == (201, 1), told.body
    assert told.body["workers"][0]["instanceId"] in cloud.machines


def test_what_google_refuses_is_told_and_leaves_nothing(call: Client, cloud: Cloud) -> None:
    cloud.refuses = {"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded."}
    told = call.launch(name="many", count=2)
    assert (told.status, told.body["code"]) == (502, "QUOTA_EXCEEDED"), told.body
    assert "Quota 'CPUS' exceeded." in told.body["error"]
    assert call("GET", "workers").body["workers"] == []


@pytest.mark.parametrize(
    ("key", "status", "said"),
    [
        ("no json", 422, "must be the JSON of a service account's key"),
        ('{"type": "service_account"}', 422, "token_uri is not Google's"),
        ('{"token_uri": "file:///etc/passwd"}', 422, "token_uri is not Google's"),
        ('{"token_uri": "http://169.254.169.254/token"}', 422, "token_uri is not Google's"),
        ('{"token_uri": "https://intranet.example/token"}', 422, "token_uri is not Google's"),
        ('{"token_uri": "https://oauth2.googleapis.com/token"}', 422, "no key of a service account"),
    ],
)
def test_a_key_that_is_none_is_said_before_anybody_is_asked(call: Client, key: str, status: int, said: str) -> None:
    assert call("PUT", "secrets/sa", {"plaintext": key}).status in (200, 201)
    told = call.launch()
    assert (told.status, said in told.body["error"]) == (status, True), told.body
    assert call("GET", "workers").body["workers"] == []


def test_a_key_that_google_does_not_know_is_googles_word(call: Client, cloud: Cloud) -> None:
    other, _certificate = service_account(f"{cloud.url}/token")
    assert call("PUT", "secrets/sa", {"plaintext": json.dumps(other)}).status in (200, 201)
    told = call.launch()
    assert (told.status, told.body["code"]) == (502, "invalid_grant"), told.body
    assert call("GET", "workers").body["workers"] == []


def test_a_provider_without_a_zone_is_told_which_argument_is_missing(call: Client) -> None:
    assert call("POST", "providers", {"name": "bare", "launcher": "GCE", "kwargs": {}}).status == 201
    told = call("POST", "daemons/launch", {"provider": "bare"})
    assert (told.status, told.body["error"]) == (422, "GCE launch requires service_account_json")
