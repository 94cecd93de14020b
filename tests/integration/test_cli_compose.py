"""`lakeshore up`, `down`, `ps`, `status` and `logs`: a server, an emulated EC2, and machines that run its scripts."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_shell import ROOT, Shell
from daemons import until
from exec_peer import Peer
from fronting import LOST, front
from machines import KEYS, Booted, Client, Ec2, emulated_ec2, push_program
from served import ADMIN, JSON, Served, new_id, one, running

from lakeshore.cli.exits import ExitCode

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
def image(ec2: Ec2) -> str:
    return ec2.image


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
            if (
                ours(self._ec2, self._call, row)
                and row["InstanceId"] not in self.booted
                and row["State"]["Name"] in ("pending", "running")
            ):
                script = self._ec2.userdata(row["InstanceId"])
                self.booted[row["InstanceId"]] = Booted(self._root / row["InstanceId"], script, "bash")

    def log(self) -> str:
        return "\n".join(machine.log() for machine in self.booted.values())

    def off(self) -> None:
        for machine in self.booted.values():
            machine.off()


@pytest.fixture
def call(cloud_server: Served, image: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Client:
    """A namespace with the provider `cloud`; the working directory is empty, and commands are for it."""
    name = f"ns-{new_id()}"
    assert cloud_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    push_program(cloud_server, name)
    client = Client(cloud_server, name)
    kwargs = {"region": "us-east-1", "image_id": image, "aws_credentials": KEYS}
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
@pytest.mark.inventory("C-339")
def test_the_page_of_a_cluster_comes_true(call: Client, run: Run, power: Power, ec2: Ec2, image: str) -> None:
    Path("lakeshore.yaml").write_text(PAGE.format(image=image))
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


class ByHand(Peer):
    """A daemon that was launched, spoken by hand: it says hello with the token that its machine was given."""

    def __init__(self, ec2: Ec2, call: Client, label: str) -> None:
        self.label = label
        self.took: dict[str, Any] = {}
        found = (row for row in ec2.all() if ours(ec2, call, row) and ec2.tags(row)["Name"] == label)
        script = ec2.userdata(max(found, key=lambda row: row["LaunchTime"])["InstanceId"])
        token = re.search(r"dlk_[\w-]+", script)
        assert token is not None
        super().__init__(call.server, ns=call.ns, queue="work", token=token[0])

    def post(self, path: str, body: Any, **more: Any) -> Any:
        return super().post(path, body | ({"label": self.label} if path == "/v1/daemon/hello" else {}), **more)

    def runs(self) -> list[str]:
        """Ids of what a poll brings to run."""
        held = [[id_, body["claim"], True] for id_, body in self.took.items()]
        came = [command["body"] for command in self.poll(held=held) if command["kind"] == "run"]
        self.took.update((body["invocation_id"], body) for body in came)
        return [body["invocation_id"] for body in came]

    def ends(self, job: str) -> None:
        body = {"worker_id": self.id, "session": self.session, "invocation_id": job, "state": "succeeded"}
        assert self.post("/v1/daemon/ack", {**body, "claim": self.took.pop(job)["claim"]}).status == 200

    def leaving(self) -> dict[str, Any]:
        """The body of its last poll."""
        told = {"worker_id": self.id, "queue": "work", "timeout_s": 0, "capacity": 0, "draining": True}
        return {**told, "session": self.session, "n": next(self.numbers), "seen": self.seen}


def ours(ec2: Ec2, call: Client, row: dict[str, Any]) -> bool:
    return ec2.tags(row).get("lakeshore-namespace") == call.ns


def submit(call: Client) -> str:
    body = one(queue="work")
    assert call.server.post("/v1/producer/submit", body, X_LS_Namespace=call.ns).status in (200, 201, 202)
    return str(body["invocation_id"])


def shell(call: Client, tmp_path: Path) -> Shell:
    made = Shell(call.server.url, tmp_path, call.ns)
    made.env |= {"LAKESHORE_CLIENT_TOKEN": ADMIN, "PYTHONPATH": str(ROOT)}
    return made


# --- up


@pytest.mark.inventory("C-885", "C-886", "C-887")
@pytest.mark.inventory("C-340", "C-341", "C-1263")
def test_the_tutorials_cluster_comes_up_stays_and_grows(call: Client, run: Run, power: Power) -> None:
    declare(2)
    with power.on():
        code, out, err = run("up", "--wait")
        assert code == 0, (err, power.log())
        assert of_rows(out).splitlines() == [
            "✓ project 'my-first-cluster': 2 daemon(s) launched, 1 queue(s) created",
            *("  + queue work", "  + daemon worker-0  (…)", "  + daemon worker-1  (…)"),
        ]
        assert "all 2 daemon(s) are up" in err
        first = labels(run)
        assert run("up")[1].splitlines()[0].endswith("0 daemon(s) launched, 0 queue(s) created")
        declare(4)
        code, out, err = run("up", "worker", "--wait")
        assert code == 0, (err, power.log())
    assert "2 daemon(s) launched, 0 queue(s) created" in out
    assert labels(run) == {**first, **{label: labels(run)[label] for label in ("worker-2", "worker-3")}}
    assert {row["state"] for row in told(run, "ps")} == {"active"}
    row = call("GET", "queues/work").body
    assert (row["kind"], row["description"], row["memberCount"]) == ("fifo", "General work queue", 4)


@pytest.mark.inventory("C-336", "S-179", "S-157")
@pytest.mark.inventory("S-158", "S-178", "S-767")
@pytest.mark.inventory("N-386", "C-329", "C-330")
@pytest.mark.inventory("C-1394")
def test_a_daemon_has_its_project_its_queues_and_its_scripts_with_the_startup_last(call: Client, run: Run) -> None:
    declare(1, ', runner: docker, setup: [one, two], startup: "three\\nand four"')
    assert run("up")[0] == 0
    (row,) = call("GET", "workers?compose_project=my-first-cluster").body["workers"]
    assert (row["composeProject"], row["label"], row["queues"]) == ("my-first-cluster", "worker-0", ["work"])
    assert (row["runners"], row["providerName"]) == (["docker"], "cloud")
    waiting = call("GET", f"workers/{row['id']}").body["pendingSetupCommands"]
    assert [(one["name"], one["script"]) for one in waiting] == [
        ("setup 1 of 2", "one"),
        ("setup 2 of 2", "two"),
        ("startup", "three\nand four"),
    ]
    assert call("GET", "workers?compose_project=another").body["workers"] == []


def test_two_who_bring_up_one_project_at_the_same_time_make_nothing_twice(
    call: Client, run: Run, tmp_path: Path
) -> None:
    declare(6)
    line = shell(call, tmp_path)
    both = [line.start("up", "--json", cwd=Path.cwd()) for _ in range(2)]
    said = [json.loads(one.communicate(timeout=60)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    launched = [row["label"] for answer in said for row in answer["groups"][0]["launched"]]
    assert sorted(launched) == sorted(labels(run)) == [f"worker-{number}" for number in range(6)]
    assert all(len(answer["groups"][0]["present"]) + len(answer["groups"][0]["launched"]) == 6 for answer in said)


def test_whoever_is_interrupted_tells_what_is_made_and_goes_on_later(
    call: Client, run: Run, tmp_path: Path, ec2: Ec2
) -> None:
    declare(24)
    with shell(call, tmp_path).start("up", cwd=Path.cwd()) as process:
        until(lambda: call("GET", "workers").body["count"] > 0)
        process.send_signal(signal.SIGINT)
        out, err = (text.decode() for text in process.communicate(timeout=60))
    assert process.returncode == ExitCode.INTERRUPTED, err
    made = labels(run)
    assert 0 < len(made) < 24
    assert out.splitlines()[0].startswith(f"✗ project 'my-first-cluster': {len(made)} daemon(s) launched, 1 queue(s)")
    assert {line.split()[2] for line in out.splitlines() if line.startswith("  + daemon")} == set(made)
    assert "`lakeshore up` goes on" in err
    declare(len(made) + 1)
    code, out, _err = run("up")
    assert (code, "1 daemon(s) launched, 0 queue(s) created" in out) == (0, True)
    assert made.items() <= labels(run).items()
    assert sum(ours(ec2, call, row) for row in ec2.all()) == len(made) + 1


def test_where_the_count_went_down_the_highest_go_once_their_jobs_have_ended(
    call: Client, run: Run, ec2: Ec2, tmp_path: Path
) -> None:
    declare(3)
    assert run("up")[0] == 0
    hands = [ByHand(ec2, call, f"worker-{number}") for number in range(3)]
    job = submit(call)
    assert hands[2].runs() == [job]
    declare(1)
    with shell(call, tmp_path).start("up", cwd=Path.cwd()) as process:
        until(lambda: set(labels(run)) == {"worker-0", "worker-2"})
        submit(call)
        assert hands[2].runs() == []  # it gets no more
        assert process.poll() is None
        hands[2].ends(job)
        out, err = (text.decode() for text in process.communicate(timeout=60))
    assert process.returncode == 0, err
    assert of_rows(out).splitlines()[0].endswith("0 daemon(s) launched, 0 queue(s) created, 2 daemon(s) removed")
    assert "waiting for the jobs of worker-2 (1)" in err
    assert set(labels(run)) == {"worker-0"}
    left = [row["State"]["Name"] for row in ec2.all() if ours(ec2, call, row)]
    assert sorted(state in ("pending", "running") for state in left) == [False, False, True]


def test_one_whose_machine_is_no_more_is_launched_anew(call: Client, run: Run, ec2: Ec2) -> None:
    declare(2)
    assert run("up")[0] == 0
    before = labels(run)
    hand = ByHand(ec2, call, "worker-1")
    assert hand.post("/v1/daemon/poll", hand.leaving()).status == 200
    until(lambda: call("GET", f"workers/{hand.id}").body["state"] == "gone")
    assert "  daemons worker  1 of 2  (missing: worker-1; gone: worker-1; not up: worker-0 pending)" in run("status")[1]
    code, out, _err = run("up", "worker")
    assert (code, "1 daemon(s) launched" in out) == (0, True)
    assert labels(run)["worker-0"] == before["worker-0"]
    assert labels(run)["worker-1"] != before["worker-1"]
    assert len(told(run, "ps")) == 2


def test_what_a_provider_refuses_is_told_for_each_and_made_when_it_is_mended(call: Client, run: Run) -> None:
    declare(2, ", image_id: ami-00000000")
    code, out, _err = run("up")
    assert code == ExitCode.FAILED
    lines = out.splitlines()
    assert lines[0] == "✗ project 'my-first-cluster': 0 daemon(s) launched, 1 queue(s) created, 2 failed"
    assert [line.split(": provider 'cloud': ")[0] for line in lines[2:4]] == [
        *("  ! daemon worker-0", "  ! daemon worker-1"),
    ]
    assert "ami-00000000" in lines[2]
    assert labels(run) == {}
    code, out, _err = run("up", "--json")
    failed = json.loads(out)["groups"][0]["failed"]
    assert (code, [one["label"] for one in failed]) == (1, ["worker-0", "worker-1"])
    declare(2)
    assert run("up")[0] == 0
    assert set(labels(run)) == {"worker-0", "worker-1"}


def test_who_waits_waits_for_so_long_and_is_told_who_is_late(call: Client, run: Run) -> None:
    declare(1)
    code, out, err = run("up", "--wait", "--timeout", "1s")
    assert code == ExitCode.FAILED
    assert out.startswith("✓ project 'my-first-cluster': 1 daemon(s) launched")
    assert "error: not up within 1s: worker-0 (pending)" in err
    assert "lakeshore logs worker-0" in err


MISTAKES = [
    (("up", "tpu"), "lakeshore.yaml has no group 'tpu'\nhint: there are worker"),
    (("up", "-f", "other.yaml"), "there is no file other.yaml"),
    (("down", "--now", "--timeout", "3s"), "--now waits for nothing"),
    (("logs", "worker", "--poll-ms", "1"), "'--poll-ms'"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_a_mistake_of_the_line_is_told_and_nothing_is_done(
    call: Client, run: Run, words: tuple[str, ...], says: str
) -> None:
    declare()
    code, out, err = run(*words)
    assert (code, out, says in err) == (ExitCode.USAGE, "", True), err
    assert call("GET", "workers").body["count"] == 0


def test_a_provider_that_is_not_there_or_not_named_is_told_before_anything_is_made(call: Client, run: Run) -> None:
    declare(1, ", provider: elsewhere")
    code, _out, err = run("up")
    assert (code, "daemons.worker.provider — there is no provider 'elsewhere'" in err) == (ExitCode.FAILED, True)
    text = Path("lakeshore.yaml").read_text()
    Path("lakeshore.yaml").write_text(text.replace("provider: cloud\n", "").replace(", provider: elsewhere", ""))
    code, _out, err = run("up")
    assert (code, "daemons.worker.provider — required here, or `provider` at the top" in err) == (2, True)
    assert [row["name"] for row in call("GET", "queues").body["queues"]] == ["default"]


@pytest.mark.inventory("C-864", "C-359")
def test_a_group_without_a_count_is_refused_as_its_page_says(call: Client, run: Run) -> None:
    Path("lakeshore.yaml").write_text("version: 1\nproject: p\ndaemons:\n  gpu:\n    queues: [q]\n")
    for verb in ("up", "down", "ps", "status", "logs"):
        code, out, err = run(verb)
        assert (code, out) == (ExitCode.USAGE, "")
        assert err == ("error: lakeshore.yaml, line 5: daemons.gpu.count — required, positive integer (got null)\n")


def test_a_queue_that_the_server_refuses_is_told_with_its_key(call: Client, run: Run) -> None:
    declare()
    text = Path("lakeshore.yaml").read_text().replace("kind: fifo", "kind: fifo, admission: {max_depth: none}")
    Path("lakeshore.yaml").write_text(text)
    code, _out, err = run("up")
    assert (code, "queues.work.admission.max_depth — " in err) == (ExitCode.FAILED, True), err
    assert call("GET", "workers").body["count"] == 0


@pytest.mark.inventory("C-319", "C-1464", "C-036")
def test_the_file_names_the_namespace_unless_a_flag_does_and_compose_is_another_spelling(
    call: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "default")
    declare(1)
    text = Path("lakeshore.yaml").read_text()
    Path("lakeshore.yaml").rename("cluster.yaml")
    Path("cluster.yaml").write_text(f"namespace: {call.ns}\n{text}")
    code, _out, err = run("compose", "up", "-f", "cluster.yaml")
    assert code == 0, err
    assert call("GET", "workers").body["count"] == 1
    assert [row["label"] for row in told(run, "compose", "ps", "--file", "cluster.yaml")] == ["worker-0"]
    assert told(run, "ps", "-f", "cluster.yaml", "--namespace", "default") == []
    assert run("--help")[1].count("compose") == 0


# --- status


@pytest.mark.inventory("C-349", "C-348", "C-342")
def test_status_tells_what_differs_and_changes_nothing(call: Client, run: Run) -> None:
    declare(2)
    found = told(run, "status")
    assert (found["project"], found["namespace"], found["inSync"]) == ("my-first-cluster", call.ns, False)
    assert found["queues"] == [{"name": "work", "state": "missing", "differs": {}}]
    assert (found["groups"][0]["desired"], found["groups"][0]["missing"]) == (2, ["worker-0", "worker-1"])
    assert call("GET", "workers").body["count"] == 0
    assert run("up")[0] == 0
    assert told(run, "status")["inSync"] is True
    assert run("status")[2] == "all is as the file says\n"
    declare(2, ", image_id: ami-1")
    Path("lakeshore.yaml").write_text(
        Path("lakeshore.yaml").read_text().replace("worker:", "other:").replace("fifo", "filo")
        + "  worker: {queues: [work], count: 1, instance_type: t3.large, keep_alive_s: -1}\n"
    )
    found = told(run, "status")
    assert found["queues"][0]["differs"] == {"kind": {"declared": "filo", "actual": "fifo"}}
    by_name = {group["name"]: group for group in found["groups"]}
    assert by_name["worker"]["changed"] == {"worker-0": ["instance_type"]}
    assert [one["label"] for one in by_name["worker"]["surplus"]] == ["worker-1"]
    Path("lakeshore.yaml").write_text(Path("lakeshore.yaml").read_text().replace("worker:", "else:"))
    code, out, err = run("up", "--plan")
    assert (code, out.count("  ? daemon worker-")) == (0, 2)
    assert "lakeshore daemon kill worker-0" in err
    code, out, _err = run("ps")
    assert code == 0
    assert out.split()[:8] == ["LABEL", "STATE", "HOST", "JOBS", "QUEUES", "PROVIDER", "SEEN", "ID"]


def test_a_project_without_daemons_says_how_to_have_some(call: Client, run: Run) -> None:
    declare()
    code, out, err = run("ps")
    assert (code, out) == (0, "")
    assert err == f"project 'my-first-cluster' has no daemons in '{call.ns}'; `lakeshore up` makes them\n"
    assert told(run, "ps") == []
    code, _out, err = run("logs")
    assert (code, "has no daemon" in err) == (ExitCode.FAILED, True)
    assert run("down")[1].splitlines()[0] == "✓ project 'my-first-cluster': 0 worker(s) deleted"


# --- down


@pytest.mark.inventory("C-888", "C-343", "C-344")
@pytest.mark.inventory("C-1408", "S-180", "C-346")
def test_down_leaves_instances_unless_told_and_touches_nobody_elses_daemons(call: Client, run: Run, ec2: Ec2) -> None:
    assert call.launch(name="worker-9").status == 201
    declare(1, project="another")
    assert run("up")[0] == 0
    declare(2)
    assert run("up")[0] == 0
    code, out, _err = run("down", "--plan")
    assert (code, out.splitlines()[:2]) == (
        0,
        [
            "Plan for project 'my-first-cluster':",
            "  daemons worker  2 → 0  (would drain and delete: worker-0, worker-1)",
        ],
    )
    assert set(labels(run)) == {"worker-0", "worker-1"}
    code, out, _err = run("down")
    assert (code, of_rows(out).splitlines()) == (
        0,
        [
            "✓ project 'my-first-cluster': 2 worker(s) deleted",
            *("  - worker-0 (…)", "  - worker-1 (…)"),
            "  queue work  (kept: --prune-queues deletes it)",
        ],
    )
    states = [row["State"]["Name"] for row in ec2.all() if ours(ec2, call, row)]
    assert len(states) == 4 and set(states) <= {"pending", "running"}
    assert run("up")[0] == 0
    found = told(run, "down", "--terminate")
    assert [(one["label"], one["terminated"]) for one in found["deleted"]] == [("worker-0", True), ("worker-1", True)]
    left = call("GET", "workers").body["workers"]
    assert sorted((row["label"], row["composeProject"]) for row in left) == [
        ("worker-0", "another"),
        ("worker-9", None),
    ]


@pytest.mark.inventory("C-345", "C-358", "C-347")
def test_a_declared_queue_goes_when_nobody_pulls_from_it_and_else_stays_with_its_reason(call: Client, run: Run) -> None:
    declare(1)
    assert run("up")[0] == 0
    declare(1, project="another")
    assert run("up")[0] == 0
    code, out, _err = run("down", "--terminate", "--prune-queues")
    assert (code, out.splitlines()[-1]) == (0, "  queue work  (kept: it has 1 member(s))")
    declare(1)
    submit(call)
    found = told(run, "down", "--prune-queues", "--plan")
    assert (found["plan"], found["queues"]) == (True, {"deleted": [], "kept": {"work": "it has 1 call(s) that wait"}})
    assert call("POST", "invocations/bulk-cancel").status == 200
    assert "  queue work  (would delete)" in run("down", "--prune-queues", "--plan")[1]
    code, out, _err = run("down", "--prune-queues")
    assert (code, out.splitlines()[0]) == (
        *(0, "✓ project 'my-first-cluster': 1 worker(s) deleted, 1 queue(s) deleted"),
    )
    assert call("GET", "queues/work").status == 404
    assert run("down", "--prune-queues")[0] == 0


def test_down_waits_for_jobs_unless_told_and_up_lets_drained_ones_work_again(
    call: Client, run: Run, ec2: Ec2, tmp_path: Path
) -> None:
    declare(1)
    assert run("up")[0] == 0
    hand = ByHand(ec2, call, "worker-0")
    job = submit(call)
    assert hand.runs() == [job]
    code, out, err = run("down", "--timeout", "1s")
    assert code == ExitCode.FAILED
    assert of_rows(out).splitlines()[0] == "✗ project 'my-first-cluster': 0 worker(s) deleted, 1 still at work"
    assert "  … worker-0 (…)  has 1 job(s) in hand" in of_rows(out)
    assert told(run, "ps")[0]["state"] == "draining"
    with shell(call, tmp_path).start("down", cwd=Path.cwd()) as process:
        assert b"waiting for the jobs of worker-0 (1)" in process.stderr.readline()  # type: ignore[union-attr]  # a pipe
        process.send_signal(signal.SIGINT)
        out, err = (text.decode() for text in process.communicate(timeout=60))
    assert process.returncode == ExitCode.INTERRUPTED
    assert "worker-0: get no more work, and are still there" in err
    another = submit(call)
    assert hand.runs() == []
    assert run("up")[0] == 0
    assert hand.runs() == [another]
    code, out, _err = run("down", "--now")
    assert (code, of_rows(out).splitlines()[0]) == (0, "✓ project 'my-first-cluster': 1 worker(s) deleted")


# --- logs


@pytest.mark.inventory("C-350", "C-351", "C-352")
def test_logs_show_each_console_with_its_label(call: Client, run: Run, tmp_path: Path) -> None:
    declare(2)
    assert run("up")[0] == 0
    code, out, err = run("logs", "worker")
    assert code == 0, err
    assert {line.split(" | ")[0] for line in out.splitlines()} == {"worker-0", "worker-1"}
    code, one_of_them, _err = run("logs", "worker-1", "--tail", "1")
    assert (code, one_of_them.count("\n"), one_of_them.startswith("worker-1 | ")) == (0, 1, True)
    with shell(call, tmp_path).start("logs", "worker-0", "--follow", "--poll-ms", "100", cwd=Path.cwd()) as process:
        assert process.stdout is not None and process.stdout.readline().startswith(b"worker-0 | ")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    code, _out, err = run("logs", "tpu")
    assert (code, "no daemon 'tpu' and no group of that name; there are worker-0, worker-1" in err) == (1, True)
    assert "no such option" in run("logs", "--json")[2]


# --- labels


@pytest.mark.inventory("S-653")
def test_a_project_has_a_label_once_and_its_slug_is_one(call: Client) -> None:
    mine = {"name": "cpu-0", "compose_project": "p"}
    assert call.launch(**mine).status == 201
    told_ = call.launch(**mine)
    assert (told_.status, told_.body["field"]) == (409, "label")
    assert call.launch(name="cpu-0").status == 201  # nobody's
    assert call.launch(name="cpu-0", compose_project="q").status == 201
    assert call.launch(name="cpu", count=2, compose_project="p").status == 201  # cpu-00, cpu-01
    for slug in ("P", "-p", "p_q", ""):
        told_ = call.launch(name="x", compose_project=slug)
        assert (told_.status, told_.body["field"]) == (422, "compose_project"), slug
    (row,) = [row for row in call("GET", "workers?compose_project=p").body["workers"] if row["label"] == "cpu-0"]
    assert call("DELETE", f"workers/{row['id']}").status == 200
    assert call.launch(**mine).status == 201


def test_a_launch_whose_answer_was_lost_made_its_daemon_and_no_other(
    call: Client, run: Run, monkeypatch: pytest.MonkeyPatch, ec2: Ec2
) -> None:
    declare(2)
    cut: list[str] = []

    def once(method: str, path: str, body: bytes) -> Any:
        lost = method == "POST" and path.endswith("/daemons/launch") and b'"worker-1"' in body and not cut
        cut.extend(["worker-1"] if lost else [])
        return LOST if lost else None

    with front(call.server.url, once) as door:
        monkeypatch.setenv("LAKESHORE_URL", door.url)
        code, out, err = run("up")
    assert (code, cut) == (0, ["worker-1"]), (out, err)
    assert of_rows(out).splitlines()[-2:] == ["  + daemon worker-0  (…)", "  + daemon worker-1  (…)"]
    assert sum(ours(ec2, call, row) for row in ec2.all()) == 2


@pytest.mark.inventory("C-889")
def test_the_tutorials_two_tiers_are_two_queues_and_eight_daemons(call: Client, run: Run, image: str) -> None:
    tiers = PAGE.format(image=image).replace("count: 5\n    instance_type: g4", "count: 3\n    instance_type: g4")
    Path("lakeshore.yaml").write_text(tiers)
    code, out, _err = run("up")
    assert (code, out.splitlines()[0].split(": ")[1]) == (0, "8 daemon(s) launched, 2 queue(s) created")


def test_a_setup_that_fails_is_told_to_who_waits(call: Client, run: Run, power: Power) -> None:
    declare(1, ', setup: ["true", "echo no such package >&2; exit 3"], startup: "touch $HOME/started"')
    with power.on():
        code, out, err = run("up", "--wait", "--timeout", "60s")
    assert code == ExitCode.FAILED, power.log()
    assert out.startswith("✓ project 'my-first-cluster': 1 daemon(s) launched")
    assert "error: setup failed on worker-0: setup 2 of 2 (exit 3)\n" in err
    assert "lakeshore daemon show worker-0" in err
    (id_,) = labels(run).values()
    ended = call("GET", f"workers/{id_}").body["setups"]
    assert sorted((one["name"], one["state"]) for one in ended) == [
        *(("setup 1 of 2", "done"), ("setup 2 of 2", "failed"), ("startup", "done")),
    ]
