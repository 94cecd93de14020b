"""`lakeshore modes` and `lakeshore config`, and calls with `_mode=`, before a real server and a real daemon."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import daemons as d
import entry_bodies as bodies
import pytest
import yaml
from served import JSON, Served, new_id

import dreamlake.lakeshore as dls
from lakeshore import HttpDispatch
from lakeshore.config.errors import ConfigError
from lakeshore.sdk.default_plane import plane_at

Run = Callable[..., tuple[int, str, str]]
H100 = "provider: my-ec2\nresources:\n  gpus: 1\n  cpus: 8\n  memory_gb: 64\ntags:\n  - gpu:h100\n"


@pytest.fixture
def ns(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace of its own, and a home, a cache and a working directory without any file."""
    name = f"ns-{new_id()}"
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for variable, value in (
        ("HOME", tmp_path),
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("XDG_CACHE_HOME", tmp_path / "cache"),
        ("LAKESHORE_STATE_DIR", tmp_path / "state"),
        ("LAKESHORE_URL", server.url),
        ("LAKESHORE_NAMESPACE", name),
    ):
        monkeypatch.setenv(variable, str(value))
    monkeypatch.delenv("DREAMRC", raising=False)
    return name


def shown(run: Run, *words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return json.loads(out)


# -- modes


@pytest.mark.inventory("C-138", "C-140", "C-373")
@pytest.mark.inventory("C-139", "C-142", "C-376")
@pytest.mark.inventory("S-186")
@pytest.mark.inventory("C-1418")
def test_a_mode_is_added_merged_into_replaced_and_removed(run: Run, ns: str, tmp_path: Path) -> None:
    file = tmp_path / "h100.yaml"
    file.write_text(H100)
    assert run("modes", "add", "h100", "--config-file", str(file))[:2] == (0, "h100 added\n")
    row = shown(run, "modes", "show", "h100")
    assert (row["backend"], row["runner"], row["provider"], row["tags"]) == (
        "fabric",
        "process",
        "my-ec2",
        ["gpu:h100"],
    )
    fields = ("--field", "resources.gpus=2", "--field", "time_limit=02:00:00", "--kwarg", "timeout_s=7200")
    assert run("modes", "update", "h100", *fields)[:2] == (0, "h100 changed\n")
    row = shown(run, "modes", "show", "h100")
    assert row["resources"] == {"gpus": 2, "cpus": 8, "memory_gb": 64, "__extras": {"time_limit": "02:00:00"}}
    assert (row["timeout_s"], row["revision"]) == (7200, 2)
    assert run("modes", "update", "h100", "--field", "tags=null", "--field", "resources.cpus=null")[0] == 0
    row = shown(run, "modes", "show", "h100")
    assert (row["tags"], row["resources"]["gpus"], "cpus" in row["resources"]) == ([], 2, False)
    assert run("modes", "update", "h100", "--config-file", str(file))[0] == 0
    row = shown(run, "modes", "show", "h100")
    assert (row["timeout_s"], row["resources"]) == (None, {"gpus": 1, "cpus": 8, "memory_gb": 64})
    assert yaml.safe_load(run("modes", "show", "h100")[1]) == {
        "name": "h100",
        "backend": "fabric",
        "runner": "process",
        **yaml.safe_load(H100),
    }
    code, out, _ = run("modes", "list")
    assert (code, out.split()[:2], "gpus=1, cpus=8, memory_gb=64" in out) == (0, ["NAME", "BACKEND"], True)
    assert run("modes", "remove", "h100")[:2] == (0, "h100 removed\n")
    assert shown(run, "modes", "list") == []
    assert run("modes", "show", "h100")[0] == 1


@pytest.mark.inventory("C-943", "C-1443", "S-800")
def test_a_mode_says_at_once_what_is_probably_a_mistake(run: Run, ns: str) -> None:
    code, out, err = run("modes", "add", "typo", "--field", "runner=dokcer")
    assert (code, out) == (0, "typo added\n")
    assert err.startswith("warning: runner: 'dokcer' is none of process, docker")
    assert run("modes", "add", "typo")[0] == 1, "the name is taken"
    assert run("modes", "update", "typo")[0] == 2
    assert run("modes", "add", "x", "--config-file", "/nowhere")[0] == 2
    code, _, err = run("modes", "update", "typo", "--field", "tags=[1")
    assert (code, "begins as JSON" in err) == (2, True)


@pytest.mark.inventory("C-141", "S-120")
def test_a_secret_is_shown_by_its_name_only(run: Run, ns: str, server: Served) -> None:
    secret = {"name": "keys", "kind": "opaque", "plaintext": "planted"}
    assert server.post(f"/v1/namespaces/{ns}/secrets", secret, encoding=JSON).status == 201
    assert run("modes", "add", "m", "--field", "creds.$secret=keys")[0] == 0
    assert 'creds: "<secret: keys>"' in run("modes", "show", "m")[1]
    assert shown(run, "modes", "show", "m")["resources"]["__extras"] == {"creds": {"$secret": "keys"}}
    code, _, err = run("modes", "update", "m", "--field", "creds.$secret=none-such")
    assert (code, "unknown secret" in err) == (1, True)


def test_a_change_that_comes_in_between_is_not_lost(run: Run, ns: str, server: Served) -> None:
    from lakeshore.client.api import ApiClient
    from lakeshore.client.modes import Modes

    with ApiClient(server.url, namespace=ns) as api:
        modes = Modes(api)
        modes.add("m", {"timeout_s": 1})
        others = iter([{"tags": ["theirs"]}])

        def change(row: dict[str, Any]) -> dict[str, Any]:
            theirs = next(others, None)
            if theirs is not None:
                modes.change("m", lambda _row: theirs)
            return {"timeout_s": row["timeout_s"] + 1, "tags": [*row["tags"], "ours"]}

        row = modes.change("m", change)
    assert (row["timeout_s"], row["tags"], row["revision"]) == (2, ["theirs", "ours"], 3)


LINES = """
C-943 modes add aws-h100 --field backend=fabric --field provider=aws-prod --field runner=docker \
--field image=ghcr.io/example/torch:2.4 --field resources.gpu=1 --field timeout_s=7200
C-1117 modes add h100 --config-file h100.yaml
C-1118 modes add cpu-small --field provider=my-ec2 --field resources.cpus=2 --field resources.memory_gb=8
C-1119 modes list
C-1120 modes show h100
C-1121 modes update h100 --field resources.gpus=2
C-1122 modes update h100 --field tags=null
C-1123 modes update h100 --config-file h100.yaml
C-1124 modes remove h100
C-1134 config show
C-1135 config source
C-1136 config refresh
"""


@pytest.mark.inventory("C-564", "C-565", "C-566")
@pytest.mark.inventory("C-567", "C-568", "C-569")
@pytest.mark.inventory(*[line.partition(" ")[0] for line in LINES.strip().splitlines()][:3])
@pytest.mark.inventory(*[line.partition(" ")[0] for line in LINES.strip().splitlines()][3:6])
@pytest.mark.inventory(*[line.partition(" ")[0] for line in LINES.strip().splitlines()][6:9])
@pytest.mark.inventory(*[line.partition(" ")[0] for line in LINES.strip().splitlines()][9:])
@pytest.mark.inventory("C-570", "C-771", "C-375")
def test_every_documented_line_works_as_it_is_written(run: Run, ns: str) -> None:
    Path("h100.yaml").write_text(json.dumps(yaml.safe_load(H100)))
    for line in LINES.strip().splitlines():
        code, _, err = run(*shlex.split(line.partition(" ")[2]))
        assert code == 0, (line, err)
    assert [row["name"] for row in shown(run, "modes", "list")] == ["aws-h100", "cpu-small"]


# -- config


@pytest.mark.inventory("C-304", "C-307", "C-308")
@pytest.mark.inventory("C-309", "C-305", "C-1375")
def test_config_is_the_servers_and_its_copy_while_the_server_is_away(
    run: Run, ns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("modes", "add", "gpu", "--field", "runner=docker", "--field", "instance_type=p5")
    run("modes", "add", "default", "--field", "timeout_s=5")
    run("providers", "add", "lab", "--launcher", "SSH", "--kwarg", "host=box")
    assert run("config", "source") == (0, "server\n", "")
    code, out, err = run("config", "refresh")
    (copy,) = (tmp_path / "cache" / "lakeshore").glob(f"127.0.0.1-*/{ns}/dreamrc.yml")
    assert (code, out) == (0, f"{copy}\n")
    assert err.startswith("2 modes and 1 providers of http://127.0.0.1:")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    text = run("config", "show")[1]
    assert "lab: !providers.SSH\n    host: box\n" in text
    assert "timeout_s: 5" in text.partition("providers:")[0]
    (tmp_path / "again.yml").write_text(text)
    rc = dls.load_config(tmp_path / "again.yml")
    assert rc.modes["gpu"].extras == {"instance_type": "p5"}
    said = shown(run, "config", "show")
    assert (said["source"], said["providers"]) == ("server", {"lab": {"kind": "SSH", "kwargs": {"host": "box"}}})
    # Nobody listens there, and that server's copy counts.
    head, _, rest = copy.read_text().partition("\n")
    gone = copy.parents[1].with_name("127.0.0.1-1") / ns / "dreamrc.yml"
    gone.parent.mkdir(parents=True)
    gone.write_text(f"{head.replace(json.loads(head[13:])['server'], 'http://127.0.0.1:1')}\n{rest}")
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:1")
    code, out, err = run("config", "source")
    assert (code, out) == (0, "cache\n")
    assert err.startswith("⚠ server unreachable, using cached config from 20")
    assert run("config", "show")[1] == text
    assert run("config", "refresh")[0] == 1


@pytest.mark.inventory("C-791", "C-815", "C-055")
@pytest.mark.inventory("C-1395")
def test_a_file_counts_before_the_server_and_is_printed_as_yaml(
    run: Run, ns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).resolve().parents[3] / "shared" / "spec" / "api" / "configuration.md"
    if not page.is_file():
        pytest.skip(f"the reference's page is not at {page}")
    block = page.read_text().split('file=".dreamrc"\n')[1].split("```")[0]
    Path(".dreamrc").write_text(block)
    assert run("config", "source")[1] == "workspace\n"
    code, out, _ = run("config", "show")
    assert code == 0
    (tmp_path / "again.yml").write_text(out)
    again, first = dls.load_config(tmp_path / "again.yml"), dls.load_config(".dreamrc")
    assert (again.modes, again.providers, again.default_mode) == (first.modes, first.providers, first.default_mode)
    monkeypatch.setenv("DREAMRC", str(tmp_path / "again.yml"))
    assert run("config", "source")[1] == "env\n"
    for words in (("--dreamrc", ".dreamrc", "config", "source"), ("config", "source", "--dreamrc", ".dreamrc")):
        assert run(*words)[1] == "explicit\n"
    listed = shown(run, "config", "source", "--all")
    assert [(Path(one["path"]).name, one["counts"]) for one in listed] == [("again.yml", True), (".dreamrc", False)]


@pytest.mark.inventory("C-1467", "C-010", "C-310")
def test_dreamrc_is_taken_before_and_after_any_command_and_a_wrong_file_is_named_with_line_and_key(
    run: Run, ns: str, tmp_path: Path
) -> None:
    assert run("modes", "add", "a")[0] == 0
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("providers:\n  a: !providers.Fargate {}\n")
    code, out, err = run("config", "show", "--dreamrc", str(wrong))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {wrong}, line 2: providers.a — unknown tag !providers.Fargate; known are ")
    assert run("modes", "list", "--dreamrc", str(wrong))[0] == 0
    assert run("--dreamrc", str(wrong), "jobs", "list")[0] == 0
    assert "--dreamrc" not in run("modes", "list", "--help")[1]


@pytest.mark.inventory("C-304", "C-305")
def test_without_a_file_and_a_server_there_is_nothing_and_refresh_says_how_to_name_one(
    run: Run, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKESHORE_URL")
    assert run("config", "source") == (0, "none\n", "")
    assert yaml.safe_load(run("config", "show")[1])["modes"] == {"local": {"backend": "local", "runner": "docker"}}
    code, _, err = run("config", "refresh")
    assert (code, err.startswith("error: server not configured")) == (2, True)


# -- calls


@pytest.fixture(scope="module")
def daemon(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[d.Daemon]:
    if not sys.platform.startswith("linux"):
        pytest.skip("a keeper counts processes in /proc")
    sections = {"runtime": {"runners": ["process", "docker"]}}
    with d.daemon(server.url, tmp_path_factory.mktemp("modes") / "host", sections) as one:
        yield one.start().polls()


@pytest.fixture
def queue(server: Served, daemon: d.Daemon) -> Iterator[dls.SyncQueue]:
    """The daemon's queue, in the namespace that the daemon is in."""
    plane = HttpDispatch(server.url)
    yield dls.SyncQueue(daemon.queue, dispatch=plane)
    plane.close()


def submitted(queue: dls.SyncQueue, function: Any, *arguments: Any, **how: Any) -> str:
    return str(function.submit(*arguments, _dispatch=queue.plane, _queue=queue.name, **how))


@pytest.mark.inventory("C-783", "C-785", "C-787")
@pytest.mark.inventory("S-610", "C-786", "P-041")
def test_a_call_with_a_mode_of_the_server_runs_as_the_mode_says(
    run: Run, ns: str, queue: dls.SyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "default")
    name = f"m-{new_id()}"
    here = ("--field", f"python={sys.executable}", "--field", f"env.PYTHONPATH={d.HERE}")
    assert run("modes", "add", name, *here, "--field", "env.MODE_LEVEL=3", "--field", "env.MODE_WORD=mode")[0] == 0
    asked = {"env": {"MODE_WORD": "call"}}
    told = queue.result(
        submitted(queue, bodies.variables, "MODE_", _mode=name, _run_config=asked), timeout=d.PATIENCE_S
    )
    assert told == {"MODE_LEVEL": "3", "MODE_WORD": "call"}, "a call's own variable is over its mode's"

    short = f"m-{new_id()}"
    assert run("modes", "add", short, *here, "--field", "timeout_s=0.5")[0] == 0
    with pytest.raises(Exception, match=r"timed out after 0\.5 s"):
        queue.result(submitted(queue, bodies.slow_pair, 60.0, _mode=short), timeout=d.PATIENCE_S)

    boxed = f"m-{new_id()}"
    assert run("modes", "add", boxed, *here, "--field", "runner=docker")[0] == 0
    with pytest.raises(Exception, match=r"run_config\.image — required"):
        queue.result(submitted(queue, bodies.pair, 1, 2, _mode=boxed), timeout=d.PATIENCE_S)
    with pytest.raises(ConfigError, match=rf"there is no mode 'none-such'; there are local; on .*{boxed}"):
        submitted(queue, bodies.pair, 1, 2, _mode="none-such")


@pytest.mark.inventory("C-780", "C-784", "C-789")
def test_a_mode_of_the_file_counts_before_the_servers_and_local_names_no_runner(
    ns: str, server: Served, run: Run
) -> None:
    for name in ("gpu", "local", "default"):
        assert run("modes", "add", name, "--field", "runner=kube", "--field", "timeout_s=9")[0] == 0
    plane, jobs = HttpDispatch(server.url, namespace=ns), f"q-{new_id()}"

    def config(**how: Any) -> dict[str, Any]:
        id_ = bodies.pair.submit(1, 2, _dispatch=plane, _queue=jobs, **how)
        row = server.get(f"/v1/namespaces/{ns}/invocations/{id_}", X_LS_Namespace=ns).body
        told = row.get("invocation", row)["runConfig"]
        return {key: value for key, value in told.items() if key not in ("queue", "key", "priority")}

    assert config() == {}
    served = {"backend": "fabric", "runner": "kube", "timeout_s": 9}
    assert config(_mode="gpu") == {"mode": "gpu", **served}
    assert config(_mode="default") == {"mode": "default", **served}
    assert config(_mode="local") == {"mode": "local", "backend": "local"}, "this machine's, whatever a server says"
    Path(".dreamrc").write_text(
        "timeout_s: 7\nmodes:\n"
        "  gpu: {backend: fabric, tags: [a], resources: {gpu: 1}, slurm: {partition: p}, queue: x}\n"
    )
    assert config(_mode="gpu", _run_config={"resources": {"mem": "1Gi"}}) == {
        "mode": "gpu",
        "backend": "fabric",
        "runner": "docker",
        "tags": ["a"],
        "resources": {"gpu": 1, "mem": "1Gi"},
        "slurm": {"partition": "p"},
    }
    assert config(_mode="default")["timeout_s"] == 7
    Path(".dreamrc").write_text("modes: {gpu: {backend: local, runner: docker}}\n")
    assert config(_mode="gpu") == {"mode": "gpu", "backend": "local", "runner": "docker"}
    plane.close()


@pytest.mark.inventory("C-781", "S-109")
def test_a_mode_that_names_a_server_sends_its_calls_there_and_a_secret_reaches_no_job(
    ns: str, server: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:1")
    Path(".dreamrc").write_text(f"modes: {{there: {{server: '{server.url}'}}}}\n")
    queue = f"q-{new_id()}"
    id_ = bodies.pair.submit(1, 2, _queue=queue, _mode="there")
    plane_at(server.url).close()
    assert server.get(f"/v1/namespaces/{ns}/invocations/{id_}", X_LS_Namespace=ns).status == 200
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    secret = {"name": "keys", "kind": "opaque", "plaintext": "planted"}
    assert server.post(f"/v1/namespaces/{ns}/secrets", secret, encoding=JSON).status == 201
    assert run("modes", "add", "secretive", "--field", "env.TOKEN.$secret=keys")[0] == 0
    plane = HttpDispatch(server.url, namespace=ns)
    with pytest.raises(ConfigError, match=r"mode 'secretive': env\.TOKEN refers to the secret 'keys'"):
        bodies.pair.submit(1, 2, _queue=queue, _mode="secretive", _dispatch=plane)
    plane.close()
