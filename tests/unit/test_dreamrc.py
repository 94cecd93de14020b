"""`.dreamrc` from Python: which file is read, what it means, and what is refused with its line and key."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dreamlake.lakeshore as dls
from lakeshore.config.errors import ConfigError
from lakeshore.sdk.dispatch import Dispatch

WHOLE = """\
default_mode: gpu
server: https://lakeshore.example
providers:
  lab: !providers.SSH {host: box, dispatch: daemon}
  cluster: !providers.SLURM
    host: login.example
    partition: gpu
  clouds: !providers.EC2
    region: us-east-1
    aws_credentials: { $secret: keys }
  google: !providers.GCE {}
  pods: !providers.Kube
modes:
  gpu: &gpu
    backend: fabric
    provider: cluster
    runner: subprocess
    tags: [gpu:h100]
    resources: { cpu: 4, mem: 64Gi }
    env: { LEVEL: 3, WORD: "on", FLAG: true }
    timeout_s: 7200
    time_limit: "02:00:00"
    nested: { a: [1, 2.5, null] }
  big:
    <<: *gpu
    image: example/torch:2.4
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, far from the working directory."""
    made = tmp_path / "home"
    made.mkdir()
    work = tmp_path / "work" / "deep" / "deeper"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.delenv("DREAMRC", raising=False)
    monkeypatch.chdir(work)
    return made


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def load(tmp_path: Path, text: str) -> dls.DreamRc:
    return dls.load_config(write(tmp_path / "rc.yml", text))


# -- which file


@pytest.mark.inventory("P-384", "P-403", "P-711")
def test_the_nearest_of_four_places_is_read(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def which() -> tuple[str, str]:
        rc = dls.load_config()
        return rc.source, rc.default_mode

    def named(path: Path, name: str) -> Path:
        return write(path, f"default_mode: {name}\nmodes: {{{name}: {{}}}}\n")

    assert which() == ("none", "local")
    named(home / ".dreamrc", "at-home")
    assert which() == ("home", "at-home")
    named(tmp_path / "work" / ".dreamrc", "above")
    assert which() == ("workspace", "above")
    named(Path.cwd().parent / ".dreamrc", "nearer")
    assert which() == ("workspace", "nearer")
    monkeypatch.setenv("DREAMRC", str(named(tmp_path / "elsewhere.yml", "from-the-variable")))
    assert which() == ("env", "from-the-variable")
    explicit = dls.load_config(named(tmp_path / "explicit.yml", "named"))
    assert (explicit.source, explicit.default_mode, explicit.path) == ("explicit", "named", tmp_path / "explicit.yml")
    assert isinstance(explicit, dls.DreamRc)


def test_a_file_that_was_named_must_be_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/rc"):
        dls.load_config("/nowhere/rc")
    monkeypatch.setenv("DREAMRC", "/nowhere/rc")
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/rc"):
        dls.load_config()


@pytest.mark.inventory("P-385", "P-734")
def test_no_server_is_asked_whatever_the_environment_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("something was connected to"))
    assert dls.load_config().modes == {"local": dls.RunConfig()}


def test_names_resolve_without_yaml_until_a_file_is_read(home: Path) -> None:
    program = (
        "import dreamlake.lakeshore as dls, sys\n"
        "dls.DreamRc, dls.Provider, dls.RunConfig, dls.resolve\n"
        "assert dls.resolve('default', dls.DreamRc()) == dls.RunConfig()\n"
        "assert 'yaml' not in sys.modules\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, timeout=60)


# -- what it means


@pytest.mark.inventory("P-386", "P-388", "P-394")
@pytest.mark.inventory("C-777", "C-778")
def test_a_whole_file_is_modes_providers_and_a_root(tmp_path: Path) -> None:
    rc = load(tmp_path, WHOLE)
    assert sorted(rc.modes) == ["big", "gpu", "local"]
    assert rc.root == dls.RunConfig(server="https://lakeshore.example")
    assert {name: (one.kind, one.dispatch) for name, one in rc.providers.items()} == {
        "lab": ("SSH", "daemon"),
        "cluster": ("SLURM", "direct"),
        "clouds": ("EC2", "daemon"),
        "google": ("GCE", "daemon"),
        "pods": ("Kube", "direct"),
    }
    assert isinstance(rc.providers["clouds"], dls.Provider)
    assert rc.providers["clouds"].kwargs == {"region": "us-east-1", "aws_credentials": {"$secret": "keys"}}


@pytest.mark.inventory("P-391", "P-392")
@pytest.mark.inventory("C-788")
def test_a_mode_keeps_what_it_does_not_know_for_its_launcher(tmp_path: Path) -> None:
    rc = load(tmp_path, WHOLE)
    assert rc.modes["gpu"] == dls.RunConfig(
        backend="fabric",
        provider="cluster",
        runner="process",
        tags=["gpu:h100"],
        resources={"cpu": 4, "mem": "64Gi"},
        env={"LEVEL": "3", "WORD": "on", "FLAG": "true"},
        timeout_s=7200,
        extras={"time_limit": "02:00:00", "nested": {"a": [1, 2.5, None]}},
    )
    assert rc.modes["big"].image == "example/torch:2.4"
    assert rc.modes["big"].extras == rc.modes["gpu"].extras


@pytest.mark.inventory("P-387", "P-390")
@pytest.mark.parametrize("text", ["", "# nothing\n", "modes:\n", "default_mode: local\nmodes: {local: {}}"])
@pytest.mark.inventory("C-775", "C-779")
@pytest.mark.inventory("C-1396")
def test_a_file_that_says_nothing_has_a_local_mode_with_the_documented_defaults(tmp_path: Path, text: str) -> None:
    rc = load(tmp_path, text)
    assert rc.default_mode == "local"
    mode = rc.modes["local"]
    assert (mode.backend, mode.server, mode.tags, mode.runner) == ("local", None, [], "docker")
    assert (mode.resources, mode.image, mode.env, mode.timeout_s, mode.provider) == ({}, None, {}, None, None)


@pytest.mark.inventory("P-386")
@pytest.mark.inventory("C-776")
def test_mode_is_another_word_for_modes(tmp_path: Path) -> None:
    assert sorted(load(tmp_path, "mode:\n  a: {}\nmodes:\n  b: {}\n").modes) == ["a", "b", "local"]
    with pytest.raises(ConfigError, match=r"line 4: modes\.a — is declared twice"):
        load(tmp_path, "mode:\n  a: {}\nmodes:\n  a: {}\n")


@pytest.mark.inventory("P-392")
@pytest.mark.parametrize("runner", ["process", "docker", "gvisor", "slurm", "kube"])
def test_every_documented_runner_is_known(tmp_path: Path, runner: str) -> None:
    assert load(tmp_path, f"modes: {{m: {{runner: {runner}}}}}").modes["m"].runner == runner


@pytest.mark.inventory("P-395", "P-711")
def test_resolve_gives_a_mode_by_name_and_the_default_one_without(home: Path, tmp_path: Path) -> None:
    rc = load(tmp_path, WHOLE)
    assert dls.resolve(rc=rc) is rc.modes["gpu"]
    assert dls.resolve("big", rc) is rc.modes["big"]
    assert dls.resolve("default", rc) is rc.root
    assert dls.resolve() == dls.RunConfig()
    with pytest.raises(ConfigError, match=r"there is no mode 'huge'; there are big, gpu, local"):
        dls.resolve("huge", rc)
    with pytest.raises(ConfigError, match=r"no \.dreamrc was found: there is no mode 'huge'"):
        dls.resolve("huge")


@pytest.mark.inventory("P-393")
def test_a_mode_of_a_call_travels_as_its_run_config_under_what_the_call_says(home: Path) -> None:
    write(Path(".dreamrc"), "modes: {m: {backend: fabric, tags: [gpu], timeout_s: 60, partition: big}}\n")
    double = dls.udf(queue="jobs")(_double)
    plane = Dispatch(":memory:")
    inv = double.submit(2, _dispatch=plane, _mode="m", _run_config={"timeout_s": 5})
    claimed = plane.claim("jobs", "w")
    assert claimed is not None
    assert (claimed.id, claimed.timeout_s) == (inv, 5)
    with pytest.raises(ConfigError, match="there is no mode 'other'"):
        double.submit(2, _dispatch=plane, _mode="other")
    plane.close()
    assert dls.resolve("m").backend == "fabric"


def _double(n: int) -> int:
    return 2 * n


@pytest.mark.inventory("P-396")
def test_the_example_of_the_page_loads(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "shared" / "spec" / "api" / "configuration.md"
    if not page.is_file():
        pytest.skip(f"the reference's page is not at {page}")
    block = page.read_text().split('file=".dreamrc"\n')[1].split("```")[0]
    rc = load(tmp_path, block)
    assert {name: one.kind for name, one in rc.providers.items()} == {"bos14": "SLURM", "aws-prod": "EC2"}
    assert sorted(rc.modes) == ["aws-h100", "bos14-gpu", "local"]
    assert rc.modes["bos14-gpu"].extras == {"time_limit": "02:00:00"}
    assert (rc.modes["aws-h100"].tags, rc.modes["aws-h100"].timeout_s) == (["gpu:h100"], 7200)


# -- what is refused


REFUSED: list[Any] = [
    ("providers:\n  a: !providers.Fargate {}\n", r"line 2: providers\.a — unknown tag !providers\.Fargate; known are "),
    ("providers:\n  a: {type: SSH}\n", r"line 2: providers\.a — must be a mapping with a tag that says what it is: "),
    ("providers:\n  a: !providers.SSH [x]\n", r"line 2: providers\.a — !providers\.SSH takes a mapping"),
    ("providers: [a]\n", r"line 1: providers — must be a mapping"),
    ("providers:\n  a: !providers.SSH\n    dispatch: mail\n", r"providers\.a\.dispatch — must be direct or daemon"),
    ("- a\n", r"line 1: the file — must be a mapping"),
    ("modes: {a: []}\n", r"line 1: modes\.a — must be a mapping"),
    ("modes:\n  a:\n    runner: podman\n", r"line 3: modes\.a\.runner — must be one of process, docker, .*'podman'"),
    ("modes:\n  a:\n    backend: cloud\n", r"line 3: modes\.a\.backend — must be one of local, fabric, got 'cloud'"),
    ("runner: podman\n", r"line 1: runner — must be one of"),
    ("modes:\n  a:\n    tags: gpu\n", r"line 3: modes\.a\.tags — must be a list of strings, got 'gpu'"),
    ("modes:\n  a:\n    timeout_s: soon\n", r"line 3: modes\.a\.timeout_s — must be a number of seconds above 0"),
    ("modes:\n  a:\n    timeout_s: -1\n", r"modes\.a\.timeout_s — .*got -1"),
    ("modes:\n  a:\n    timeout_s: .inf\n", r"modes\.a\.timeout_s — "),
    ("modes:\n  a:\n    env: {A: [1]}\n", r"line 3: modes\.a\.env\.A — must be a string; quote it"),
    ("modes:\n  a:\n    env: {A: }\n", r"modes\.a\.env\.A — must be a string"),
    ("modes:\n  a:\n    resources: 4\n", r"modes\.a\.resources — must be a mapping"),
    ("modes:\n  a:\n    image: 4\n", r"modes\.a\.image — must be a string, got 4"),
    ("modes:\n  a:\n    cpu: !!python/object:os.system {}\n", r"line 3: modes\.a\.cpu — could not determine"),
    ("modes:\n  a: {}\n  a: {}\n", r"line 3: modes\.a — stands here twice"),
    ("default_mode: a\ndefault_mode: b\n", r"line 2: default_mode — stands here twice"),
    ("default_mode: a\n", r"line 1: default_mode — there is no mode 'a'; there are local"),
    ("default_mode: 3\n", r"line 1: default_mode — must be a string, got 3"),
    ("modes:\n  ? [a]\n  : {}\n", r"modes — has a key that is no text"),
    ("modes: {a: {\n", r"line 2: "),
    ("modes: *gone\n", r"line 1: found undefined alias"),
    ("a: 1\n---\nb: 2\n", r"line 2: "),
    ("\x00", "special characters|unacceptable character"),
    ("modes:\n  a:\n    until: 2026-02-31\n", r"line 3: modes\.a\.until — day"),
    ("a: " + "[" * 5000, "nests too deeply"),
    ("".join(f"x{k}: &x{k} [{', '.join([f'*x{k - 1}' if k else 'a'] * 9)}]\n" for k in range(9)), "aliases repeat"),
    ("tags: &a [*a]\n", "line 1: is a part of itself"),
    ("modes: &a\n  <<: *a\n", "is a part of itself"),
    ("tags: !!int ''\n", "line 1: tags — is not what its tag says"),
    ("tags: !!timestamp x\n", "tags — is not what its tag says"),
    ("tags: !!bool x\n", "tags — is not what its tag says"),
    (f"image: [{'a, ' * 1000}]\n", "must be a string, got .{100,210}$"),
]


@pytest.mark.inventory("P-389")
@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_file_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "rc.yml") in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rc").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot read"):
        dls.load_config(tmp_path / "rc")


@pytest.mark.parametrize(
    ("match", "key"),
    [
        ("[gpu]", "match"),
        ("{tag: [gpu]}", "match.tag"),
        ("{tags: gpu}", "match.tags"),
        ("{runners: [1]}", "match.runners"),
    ],
)
def test_a_match_that_makes_no_sense_is_refused_with_its_line(tmp_path: Path, match: str, key: str) -> None:
    path = tmp_path / ".dreamrc"
    path.write_text(f"modes:\n  gpu:\n    match: {match}\n")
    with pytest.raises(ConfigError, match=rf"{re.escape(str(path))}, line 3: modes\.gpu\.{re.escape(key)} — "):
        dls.load_config(path)
    path.write_text("modes:\n  gpu:\n    match: {tags: [gpu], runners: [kube]}\n")
    assert dls.load_config(path).modes["gpu"].extras == {"match": {"tags": ["gpu"], "runners": ["kube"]}}
