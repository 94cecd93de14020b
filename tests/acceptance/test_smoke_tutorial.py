"""The end-to-end smoke tutorial, a section a test: its commands as the page prints them, typed by a user without rights
with the one file on PATH, and what each section expects of them.

One control plane for all; each section has a namespace of its own in it. `walk` runs a block of the page command by
command; what a page leaves to its reader (`<id>`) is filled in, and what wants a terminal is typed into one.
Not here: sections 5, 6, 10 and 15, and what a bucket would have to answer for in section 11.

Reference: get-started/tutorials/end-to-end.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cluster
import pytest
import served as http
from multiplexer import Session, needs_tmux
from person import PYTHON, Done, Person, served, short_place, somebody, until
from snippets import reference
from sshd import RemoteUser, running_sshd

ADMIN = "chosen-by-the-operator"
PAGE = "get-started/tutorials/end-to-end"
PLANTED = "wJalrPlanted/5c1e"
Row = dict[str, Any]
pytestmark = pytest.mark.skipif(not reference.available(), reason=reference.ABSENT)


def commands(lines: tuple[int, int], filled: dict[str, Sequence[str]] | None = None) -> list[str]:
    """The commands of a block of the page, a continued line as one. `filled`: what stands for each blank, in turn."""
    values = {blank: iter(given) for blank, given in (filled or {}).items()}
    text = re.sub(
        r"<[\w-]+>", lambda at: next(values[at[0]]) if at[0] in values else at[0], reference.code(PAGE, lines)
    )
    assert all(next(left, None) is None for left in values.values()), f"{filled} is not what the page leaves out"
    joined = text.replace("\\\n", "\\\0").splitlines()
    found = [line.replace("\\\0", "\\\n") for line in joined if line and not line.startswith("#")]
    assert not re.search(r"<[\w-]+>", "".join(re.sub(r"#.*", "", line) for line in found)), found
    return found


@dataclass(frozen=True, kw_only=True)
class Section:
    """A person at a terminal, logged in to a namespace of their own, and what the server tells without the program."""

    person: Person
    ns: str
    server: http.Served
    environ: dict[str, str]

    def does(self, line: str, **more: str) -> str:
        return self.person.does(line, **{**self.environ, **more})

    def shell(self, line: str, **more: str) -> Done:
        return self.person.shell(line, **{**self.environ, **more})

    def refused(self, line: str, *, code: int, **more: str) -> str:
        """What it says on stderr."""
        done = self.shell(line, **more)
        assert (done.returncode, done.stdout) == (code, ""), f"$ {line}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def walk(
        self, lines: tuple[int, int], filled: dict[str, Sequence[str]] | None = None, *, but: Sequence[str] = ()
    ) -> list[str]:
        """Run a block; each of its commands must succeed. Their stdout. `but` are those that are run elsewhere."""
        block = commands(lines, filled)
        for left_out in but:
            block.remove(next(line for line in block if line.partition("#")[0].strip() == left_out))
        return [self.does(line) for line in block]

    def get(self, path: str = "", **more: Any) -> Any:
        answer = self.server.get(f"/v1/namespaces/{self.ns}{path}", **more)
        assert answer.status == 200, answer.raw
        return answer.body

    def home(self, name: str, text: str, mode: int = 0o600) -> Path:
        """A file below their home; its folders are made."""
        path = self.person.home / name
        for parent in reversed(path.relative_to(self.person.home).parents[:-1]):
            (self.person.home / parent).mkdir(exist_ok=True)
            os.chown(self.person.home / parent, *self.person.ids)
        return self.person.write(path, text, mode)

    @contextmanager
    def terminal(self, shell: str = "PS1='ready> ' exec /bin/sh") -> Iterator[Session]:
        with short_place() as place:
            os.chown(place, *self.person.ids)
            environ = {**self.person.environ, **self.environ}
            opened = Session(place, environ, shell=f"cd {self.person.workspace}; {shell}", user=self.person.ids)
            try:
                yield opened
            finally:
                opened.close()


@dataclass(frozen=True, kw_only=True)
class Plane:
    person: Person
    server: http.Served

    def section(self, ns: str) -> Section:
        """A namespace, and a token of it in the environment."""
        assert self.server.post("/v1/admin/namespaces", {"name": ns}).status in (200, 201)
        minted = self.server.post(f"/v1/namespaces/{ns}/tokens", {"name": "smoke"}).body["plaintext"]
        environ = {
            "LAKESHORE_URL": self.server.url,
            "LAKESHORE_NAMESPACE": ns,
            "LAKESHORE_CLIENT_TOKEN": minted,
            "LAKESHORE_TOKEN": minted,  # curl's, on the page
            "NS": ns,
        }
        return Section(person=self.person, ns=ns, server=self.server, environ=environ)

    @contextmanager
    def daemons(self, section: Section, *labels: str) -> Iterator[list[Row]]:
        """Real ones, and the server's rows of them; killed at the end."""
        started = []
        section.home("token", section.environ["LAKESHORE_TOKEN"])
        try:
            for label in labels:
                place = section.home(
                    f"daemons/{section.ns}-{label}/udf-daemon.toml",
                    f'[server]\nurl = "{self.server.url}"\nnamespace = "{section.ns}"\n'
                    f'token_file = "{self.person.home}/token"\n[daemon]\nlabel = "{label}"\n'
                    f'machine_id = "machine-of-{label}"\n[runtime]\nworkdir = "udf"\nkeep_alive_s = -1\n',
                )
                line = f"cd {place.parent}; exec lakeshore nymph --config {place}"
                state = {"DREAMLAKE_STATE_DIR": str(place.parent / "state")}
                started.append(self.person.starts(line, log=place.parent / "log", **state))

            def active() -> list[Row]:
                rows = section.get("/workers")["workers"]
                return [row for label in labels for row in rows if (row["label"], row["state"]) == (label, "active")]

            until(lambda: len(active()) == len(labels), "daemons")
            yield active()
        finally:
            for process in started:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def plane(pyz: Path) -> Iterator[Plane]:
    with somebody(pyz) as person, served(person, LAKESHORE_ADMIN_TOKEN=ADMIN) as url:
        nobody: Any = None
        yield Plane(person=person, server=http.Served(nobody, url, person.home / "state", person.home / "log", ADMIN))


@pytest.fixture
def section(plane: Plane, request: pytest.FixtureRequest) -> Section:
    return plane.section(re.sub(r"\W|_", "-", request.node.name)[5:45].strip("-"))


def lines_of(table: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    return [re.split(r"  +", line.strip()) for line in table.splitlines()[1:]]


@pytest.mark.inventory("C-870")
def test_section_1_a_provider_is_added_shown_changed_and_removed(section: Section) -> None:
    added, listed, shown, changed, again, removed = section.walk((21, 29))
    assert added == "provider my-test added  (SSH)\n"
    assert [row[0] for row in lines_of(listed)] == ["my-test"]
    assert f"kwargs:\n  host: my-laptop.local\n  user: {section.person.name}\n" in shown
    assert changed == "provider my-test updated  (SSH)\n"
    assert again == shown + "  port: 2222\n"
    assert "restore my-test" in removed
    for line in ("--name x --launcher SSH", "x --type SSH", "x --launcher ssh"):
        section.refused(f"lakeshore providers add {line}", code=2)
    assert "cannot be changed" in section.refused("lakeshore providers update my-test --launcher EC2", code=2)


@needs_tmux
@pytest.mark.inventory("C-871")
def test_section_2_a_provider_is_removed_restored_and_hidden(section: Section) -> None:
    section.does(commands((21, 29))[0])
    edit = "lakeshore providers edit"
    removed, listed, deleted, everything, restored, hidden, listed_hidden = section.walk((40, 58), but=[edit])
    assert "restore my-test" in removed
    assert listed == ""
    (row,) = lines_of(deleted)
    assert re.fullmatch(r"my-test \[D \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\]", row[0])
    assert lines_of(everything)[0][0] == row[0]
    assert json.loads(restored)["deletedAt"] is None
    assert json.loads(hidden)["hidden"] is True
    assert lines_of(listed_hidden)[0][0] == "my-test (hidden)"
    assert section.does("lakeshore providers list") == ""
    assert "needs a terminal" in section.refused(edit, code=2)

    gone = section.server.call("DELETE", f"/v1/namespaces/{section.ns}/providers/my-test").body
    name = quote(f"my-test [deleted {gone['deletedAt']}]")
    assert section.server.post(f"/v1/namespaces/{section.ns}/providers/{name}/restore", None).status == 200

    def state() -> tuple[bool, bool]:
        (row,) = section.get("/providers?hidden=true&deleted=true")["providers"]
        return row["hidden"], row["deletedAt"] is not None

    with section.terminal() as at:
        at.type(edit)
        for shown, action, then in (
            ("hidden", "unhide", (False, False)),
            ("SSH", "delete", (False, True)),
            ("deleted", "restore", (False, False)),
        ):
            at.until("> my-test", shown)
            at.press("Enter")
            at.until(action, "> ")
            at.write(action)
            at.press("Enter")
            at.until(f"✓ {action}: my-test", "> my-test")
            assert state() == then
        at.press("Escape")
        until(lambda: at.text().rstrip().endswith("\nready>"), "the prompt")


@pytest.mark.inventory("C-872")
def test_section_3_what_this_machine_knows_of_clouds_is_listed_and_makes_providers(
    section: Section, tmp_path: Path
) -> None:
    section.home(".aws/config", "[profile sandbox]\nregion = us-west-2\n")
    section.home(
        ".aws/credentials", f"[sandbox]\naws_access_key_id = AKIAEXAMPLE1\naws_secret_access_key = {PLANTED}\n"
    )
    research = "[core]\nproject = lab-1\naccount = robot@lab.example\n[compute]\nzone = us-central1-a\n"
    section.home(".config/gcloud/configurations/config_research", research)
    section.home(".config/gcloud/active_config", "research")
    if (why := cluster.missing()) is not None:
        pytest.skip(why)
    asked = "lakeshore slurm discover"
    before = section.get("/providers?hidden=true")
    aws, as_json, gcp, kube, docker, dev, gce, shown = section.walk((70, 81), but=[asked])
    with cluster.slurm(tmp_path / "slurm") as environ:
        assert "debug" in section.does(asked, SLURM_CONF=environ["SLURM_CONF"])
    assert lines_of(aws)[0][:2] == ["sandbox", "us-west-2"]
    assert [row["name"] for row in json.loads(as_json)] == ["sandbox"]
    assert PLANTED not in aws + as_json
    assert lines_of(gcp)[0][:4] == ["research", "✓", "robot@lab.example", "lab-1"]
    assert (kube, "default" in docker or not docker) == ("", True)
    assert dev == "provider aws-dev added  (EC2)\n"
    assert gce == "provider gcp-dev added  (GCE)\n"
    assert "launcher: EC2\n" in shown
    assert "region: us-west-2\n" in shown
    made = [row["name"] for row in section.get("/providers")["providers"]]
    assert (before["providers"], made) == ([], ["aws-dev", "gcp-dev"])
    for tool in ("aws", "gcp", "slurm", "kube", "docker"):
        section.refused(f"lakeshore {tool} discover --region x", code=2)


@pytest.fixture
def box(plane: Plane) -> Iterator[RemoteUser]:
    with short_place() as place, running_sshd(place) as sshd:
        user = sshd.host("my-dev-box")
        plane.person.may_ssh(sshd, "my-dev-box")
        config = plane.person.home / ".ssh/config"
        more = "Host second\n    HostName 10.0.0.9\n    ForwardAgent yes\nHost third\n    HostName 10.0.0.10\n"
        plane.person.write(config, config.read_text() + more)
        yield user


@needs_tmux
@pytest.mark.inventory("C-873")
def test_section_4_hosts_are_listed_picked_uploaded_and_probed(section: Section, box: RemoteUser) -> None:
    picks = ["lakeshore ssh upload", "lakeshore ssh upload my-dev-box --interactive"]

    def known() -> list[str]:
        return [row["name"] for row in section.get("/providers")["providers"]]

    with section.terminal() as at:
        at.type(picks[0])
        at.until("> [ ] my-dev-box", "[ ] second", "[ ] third", "new")
        at.write("second")
        at.until("hosts to register: second")
        at.press("Enter")
        at.until("✓ provider second added")
        assert known() == ["second"]
        at.type(f"clear; {picks[1]}")
        at.until("> [ ] my-dev-box", "[ ] third", "[ ] second", "existing")
        order = re.findall(r"\[ \] (\S+) .*(new|existing)$", at.text(), re.MULTILINE)
        assert order == [("my-dev-box", "new"), ("third", "new"), ("second", "existing")]
        at.press("Enter")
        at.until("✓ provider my-dev-box added")
        assert known() == ["my-dev-box", "second"]
    table, new, stripped, uploaded, probed, status = section.walk((92, 101), but=picks)
    assert [(row[0], row[-1]) for row in lines_of(table)] == [
        ("my-dev-box", "existing"),
        ("second", "existing"),
        ("third", "new"),
    ]
    assert [row[0] for row in lines_of(new)] == ["third"]
    assert "second: ForwardAgent yes\n" in stripped
    assert "third" in uploaded
    assert known() == ["my-dev-box", "second", "third"]
    assert "forward" not in json.dumps(section.get("/providers")).lower()
    assert "my-dev-box" in probed
    assert lines_of(status)[0][:2] == ["my-dev-box", "ok"]
    assert "'all', 'new', 'existing'" in section.refused("lakeshore ssh discover --filter nearly", code=2)


@pytest.mark.inventory("C-876")
def test_section_7_daemons_are_killed_dropped_when_old_sent_to_rest_and_reset(plane: Plane, section: Section) -> None:
    with plane.daemons(section, "one", "two", "gpu-0") as rows:
        one, two, gpu = (row["id"] for row in rows)
        block = commands((146, 157), {"<id>": [one, two, two, two]})
        kills, cleanup, rest = block[:3], block[3:6], block[6:]
        past = section.refused(f"lakeshore daemon hibernate {two} --until 2020-01-01T00:00:00Z", code=1)
        assert "is in the past" in past
        rests, reset = (section.does(line) for line in rest)
        assert rests.startswith(f"{two} rests until ")
        assert reset.startswith(f"queued for {two}")
        assert section.get(f"/workers/{two}")["state"] == "hibernating"
        assert [section.does(line) for line in kills] == [
            f"killed one ({one})\n",
            f"killed two ({two})\n",
            f"killed gpu-0 ({gpu})\n",
        ]
        assert section.get("/workers")["workers"] == []
        for line in cleanup:
            assert section.does(line) == ""
        logs = [plane.person.home / f"daemons/{section.ns}-{label}/log" for label in ("one", "gpu-0")]
        until(lambda: all("was removed" in log.read_text() for log in logs), "the killed ones to leave")
    at = f"/v1/namespaces/{section.ns}/workers/cleanup"
    assert section.shell("lakeshore daemon cleanup --dry-run").stderr == "no daemon not seen for more than 24h\n"
    for hours in (0, 169):
        section.refused(f"lakeshore daemon cleanup --yes --older-than {hours}h", code=2)
        assert section.server.post(at, {"olderThanHours": hours}).status == 400


@pytest.mark.inventory("C-877")
def test_section_8_a_queue_lives_and_the_default_one_is_not_to_be_removed(section: Section) -> None:
    added, listed, shown, patched, stats, events, drained, back, removed = section.walk((168, 178))
    assert added == "queue smoke added\n"
    assert [row[0] for row in lines_of(listed)] == ["default", "smoke"]
    assert lines_of(listed)[1][:6] == ["smoke", "fifo", "active", "0", "—", "fixed"]
    assert re.search(r"^kind +fifo$", shown, re.MULTILINE)
    assert patched == "queue smoke changed\n"
    assert re.search(r"^daemon_count +0$", stats, re.MULTILINE)
    assert [row[1] for row in lines_of(events)] == ["queue.changed", "queue.created"]
    assert (drained, back, removed) == (
        "queue smoke is draining\n",
        "queue smoke is active\n",
        "queue smoke deleted\n",
    )
    for verb, says in (("archive", "archived"), ("rm", "deleted")):
        said = section.refused(f"lakeshore queues {verb} default", code=1)
        assert said == f"error: the default queue cannot be {says}\n"
    at = f"/v1/namespaces/{section.ns}/queues/default"
    assert [section.server.post(f"{at}/archive", None).status, section.server.call("DELETE", at).status] == [409, 409]


JOBS = """\
import time
import dreamlake.lakeshore as dls

@dls.udf(queue="smoke")
def waits(n):
    time.sleep(600)
"""


@pytest.mark.inventory("C-878")
def test_section_9_what_is_queued_is_killed_and_what_runs_names_its_worker(section: Section) -> None:
    section.home("lakeshore-workspace/jobs.py", JOBS)
    section.does("lakeshore queues add smoke")
    submit = "import jobs, sys; print(*(jobs.waits.submit(n) for n in range(int(sys.argv[1]))))"
    python = f"PYTHONPATH=dist/lakeshore {PYTHON} -c '{submit}'"
    running = section.does(f"{python} 1").strip()

    def state(invocation: str) -> str:
        return str(section.get(f"/invocations/{invocation}")["state"])

    worker = section.person.starts("exec lakeshore worker once --queue smoke", **section.environ)
    with worker:
        until(lambda: state(running) == "running", "a worker")
        first, *others = section.does(f"{python} 3").split()
        listed, queued, shown, killed, cancelled = section.walk((186, 192), {"<id>": [first, first]})
        assert [row[0] for row in lines_of(listed)] == [*reversed(others), first, running]
        assert queued == listed or [row[:2] for row in lines_of(queued)] == [row[:2] for row in lines_of(listed)]
        assert re.search(r"^state +queued$", shown, re.MULTILINE)
        assert killed == f"{first} killed\n"
        assert cancelled == "2 cancelled on queue smoke\n"
        assert [state(one) for one in (first, *others)] == ["killed"] * 3
        holder = section.get(f"/invocations/{running}")["workerId"]
        assert state(running) == "running"
        said = section.does(f"lakeshore jobs kill {running}")
        assert said.startswith(f"{running} stopping on worker {holder}; ")
        until(lambda: state(running) == "killed", "the running one is stopped")
        assert "already killed" in section.refused(f"lakeshore jobs kill {running}", code=1)
        worker.communicate(timeout=60)


@pytest.mark.inventory("C-880")
def test_section_11_a_secret_is_never_shown_and_storages_and_code_are_listed(section: Section, plane: Plane) -> None:
    pair = {"aws_access_key_id": "AKIAEXAMPLE1", "aws_secret_access_key": PLANTED}
    section.home(".aws/keypair.json", json.dumps(pair))
    section.home("lakeshore-workspace/new.json", json.dumps({**pair, "aws_secret_access_key": f"{PLANTED}-new"}))
    bucket = [
        "lakeshore storage presign smoke-bucket hello.txt --put",
        "lakeshore storage credentials smoke-bucket --env",
        "lakeshore code push --storage code-staging",
    ]
    said = section.walk((221, 235), but=bucket)
    added, listed, shown, rotated, storage, removed, code = said
    assert 'secret "aws-lab" created  (aws_keypair)' in added
    assert lines_of(listed)[0][:2] == ["aws-lab", "aws_keypair"]
    assert re.search(r"^kind: +aws_keypair$", shown, re.MULTILINE)
    assert 'secret "aws-lab" rotated' in rotated
    assert storage == "storage smoke-bucket added  (s3)\n"
    assert removed == "smoke-bucket removed\n"
    assert code == ""
    told = json.dumps([section.get("/secrets"), section.get("/secrets/aws-lab")])
    for place in (*said, told):
        assert PLANTED not in place
    kept = [path for path in plane.server.state_dir.rglob("*") if path.is_file()]
    assert any(b"aws-lab" in path.read_bytes() for path in kept)
    assert not [path for path in kept if PLANTED.encode() in path.read_bytes()]
    kinds = section.refused("lakeshore secrets add another </dev/null", code=2)
    assert all(kind in kinds for kind in ("ssh_key", "aws_keypair", "gcp_sa_json", "opaque"))


@pytest.fixture(scope="module")
def staffed(plane: Plane) -> Iterator[tuple[Section, Row]]:
    """A namespace with a daemon that runs."""
    section = plane.section("staffed")
    with plane.daemons(section, "idler") as (row,):
        yield section, row


@pytest.mark.inventory("C-881")
def test_section_12_tunnels_and_mounts_are_kept_and_daemons_do_not_notice(staffed: tuple[Section, Row]) -> None:
    section, daemon = staffed
    key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    section.home(
        "wg/ny-lab.conf",
        f"[Interface]\nPrivateKey = {key}\nAddress = 10.0.0.2/32\n\n"
        f"[Peer]\nPublicKey = {key}\nEndpoint = lab.example:51820\nAllowedIPs = 10.0.0.0/24\n",
    )
    section.does("lakeshore providers add bos14 --launcher SSH --kwarg ip=10.0.0.7")
    *_, line = block = commands((245, 256))
    assert line.endswith("mounts remove data")
    said = []
    tunnels = []
    for line in block:
        said.append(section.does(line))
        tunnels.append(section.get("/providers/bos14")["tunnel"])
    assert tunnels == [None, None, "ny-lab", *[None] * 6]
    added, listed, _to, _from, removed, mounted, mounts, changed, unmounted = said
    assert added == "tunnel ny-lab added  (wireguard)\n"
    assert lines_of(listed)[0][:3] == ["ny-lab", "wireguard", "lab.example:51820"]
    assert removed == "ny-lab removed\n"
    assert mounted == "mount data added  (nfs)\n"
    assert lines_of(mounts)[0][:3] == ["data", "nfs", "10.0.0.1:/data"]
    assert (changed, unmounted) == ("mount data changed\n", "data removed\n")
    now = section.get(f"/workers/{daemon['id']}")
    moves = ("lastSeenAt", "clockSkewS")
    assert {k: v for k, v in now.items() if k in daemon and k not in moves} == {
        k: v for k, v in daemon.items() if k not in moves
    }


@pytest.mark.inventory("C-882")
def test_section_13_tokens_and_namespaces_are_made_and_revoked_by_the_operator(section: Section) -> None:
    operator = {"LAKESHORE_ADMIN_TOKEN": ADMIN}
    block = commands((266, 274), {"<id>": ["$id"]})
    minted = section.does(block[0], **operator).splitlines()
    plaintext = minted[0]
    assert re.fullmatch(r"dlk_\w[\w-]{42}", plaintext)
    listed = section.does(block[1], **operator)
    (id_,) = [row[0] for row in lines_of(listed) if row[1] == "ci-runner"]
    asked = f"/v1/namespaces/{section.ns}/whoami"
    assert section.server.get(asked, token=plaintext).status == 200
    assert id_ in section.does(block[2], **operator, id=id_)
    refused = section.server.get(asked, token=plaintext)
    assert (refused.status, refused.body["error"]) == (403, "token revoked")
    after = section.does("lakeshore admin tokens list", **operator)
    assert [row[2] for row in lines_of(after) if row[0] == id_] == ["revoked"]
    assert plaintext not in listed + after
    for line, there in ((block[3], None), (block[4], True), (block[5], None), ("lakeshore admin namespace ls", False)):
        said = section.does(line, **operator)
        if there is not None:
            assert ("scratch" in [row[0] for row in lines_of(said)]) is there
    said = section.refused(block[1], code=1)
    assert said.startswith("error: LAKESHORE_ADMIN_TOKEN is required for admin commands.\n")


@needs_tmux
@pytest.mark.inventory("C-883")
def test_section_14_tab_offers_verbs_profiles_and_what_the_server_has(staffed: tuple[Section, Row]) -> None:
    section, daemon = staffed
    section.home(".aws/config", "[profile sandbox]\nregion = us-west-2\n")
    section.server.post(
        f"/v1/namespaces/{section.ns}/providers", {"name": "first-box", "launcher": "SSH", "kwargs": {"ip": "h"}}
    )
    install, again, *lines = (line.partition("#")[0].rstrip() for line in commands((283, 291)))
    with section.terminal("exec bash -i") as at:
        at.until("$")
        at.type(install)
        at.type(f"PS1= {again}")  # as it is typed: another bash, which reads what was written
        at.type("clear; complete -p lakeshore")
        at.until("complete -F _lakeshore lakeshore")
        for line, offered in zip(
            lines,
            (
                ["demo", "providers", "completion"],
                ["add", "discover", "restore"],
                ["sandbox"],
                [daemon["id"]],
                ["first-box"],
            ),
            strict=True,
        ):
            at.type("clear")
            at.write(f"{line} ")
            tabs(at, offered)
            at.press("C-c")
        kept = {path.name for path in (section.person.home / ".cache/lakeshore").glob("completion-*.txt")}
        assert kept >= {"completion-providers.txt"}, kept
    file = section.person.home / ".cache/lakeshore/completion-providers.txt"
    assert file.read_text().split() == sorted({"first-box", *file.read_text().split()})
    assert time.time() - file.stat().st_mtime < 60
    assert "'bash', 'zsh', 'fish'" in section.refused("lakeshore completion tcsh", code=2)


def tabs(at: Session, offered: list[str]) -> None:
    """Press Tab until all of it is to be seen: names of a server may come with the next one."""

    def there() -> bool:
        at.press("Tab")
        time.sleep(0.1)  # between two Tabs of a person
        return all(word in at.text() for word in offered)

    until(there, f"{offered} to be offered")
