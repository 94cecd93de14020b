"""`lakeshore secrets`, `providers` and `ssh upload`, against a real server and a real sshd."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from served import JSON, Served, new_id
from sshd import Sshd, running_sshd

from lakeshore.cli.main import main
from lakeshore.cli.values import fields_of, merged

Run = Callable[..., tuple[int, str, str]]
SECRET = "planted-5c1e"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        running.host("My_Box")
        text = running.config.read_text()
        running.config.write_text("Host same\n    User somebody\nHost same-again\n    User somebody\n" + text)
        yield running


@pytest.fixture
def namespace(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace of the test's own, which commands talk to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    ns = f"ns-{new_id()}"
    monkeypatch.setenv("LAKESHORE_NAMESPACE", ns)
    assert server.call("POST", "/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    return ns


@pytest.fixture
def lk(namespace: str, run: Run) -> Run:
    return run


def shown(lk: Run, *words: str) -> Any:
    code, out, err = lk(*words, "--json")
    assert code == 0, err
    return json.loads(out)


# --- secrets


@pytest.mark.inventory("C-128", "C-131", "C-132")
@pytest.mark.inventory("C-133", "C-134", "C-470")
def test_a_secret_is_added_from_a_file_listed_rotated_and_removed_without_being_shown(lk: Run, tmp_path: Path) -> None:
    file = tmp_path / "sa.json"
    file.write_text(SECRET)
    given = ("--kind", "gcp_sa_json", "--from-file", str(file), "--description", "a key")
    code, out, _ = lk("secrets", "add", "gcp-sa", *given)
    row = shown(lk, "secrets", "show", "gcp-sa")
    assert (code, out) == (0, f'ok  secret "gcp-sa" created  (gcp_sa_json)  {row["createdAt"]}\n')
    everything = out + lk("secrets", "list")[1] + lk("secrets", "show", "gcp-sa")[1] + json.dumps(row)
    assert [one["name"] for one in shown(lk, "secrets", "list")] == ["gcp-sa"]
    assert everything.count("gcp_sa_json") == 4
    assert SECRET not in everything
    code, out, _ = lk("secrets", "rotate", "gcp-sa", "--from-file", str(file))
    assert (code, out.startswith('ok  secret "gcp-sa" rotated  (gcp_sa_json)  ')) == (0, True)
    code, _, err = lk("secrets", "add", "gcp-sa", *given)
    assert (code, "secrets rotate gcp-sa" in err) == (1, True)
    assert lk("secrets", "remove", "gcp-sa")[:2] == (0, "gcp-sa removed\n")
    assert lk("secrets", "show", "gcp-sa")[0] == 1


@pytest.mark.inventory("C-129", "C-1441", "C-556")
@pytest.mark.inventory("C-136")
def test_a_value_is_piped_in_or_named_and_a_terminal_is_told_so(
    lk: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, more in enumerate(((), ("--from-file", "-"))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a:b")))
        assert lk("secrets", "add", f"keys-{number}", "--kind", "aws_keypair", *more)[0] == 0
    for data, said in ((b"", "is empty"), (b"\xff", "is no text"), (b"x" * 65537, "larger than 64 KiB")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code, _, err = lk("secrets", "add", "more", "--kind", "opaque")
        assert (code, said in err) == (2, True)
    terminal = io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    code, _, err = lk("secrets", "add", "more", "--kind", "opaque")
    assert (code, err) == (2, "error: use --from-file <path> or pipe plaintext via stdin\n")
    assert lk("secrets", "add", "more")[0] == 2  # no kind


# --- providers


@pytest.mark.parametrize(
    ("pairs", "tree"),
    [
        (["a.b=1", "a.c=x"], {"a": {"b": 1, "c": "x"}}),
        (["ssh_key.$secret=my-key"], {"ssh_key": {"$secret": "my-key"}}),
        (
            ["zip=007", "at=10.0.0.1", "on=true", "no=null", "is=a=b", "e="],
            {"zip": "007", "at": "10.0.0.1", "on": True, "no": None, "is": "a=b", "e": ""},
        ),
        (['l=[1, "x"]', 'm={"k": 2}'], {"l": [1, "x"], "m": {"k": 2}}),
    ],
)
@pytest.mark.inventory("C-088", "C-374")
def test_dots_nest_and_only_what_is_json_is_read_as_json(pairs: list[str], tree: dict[str, Any]) -> None:
    assert fields_of(pairs) == tree


@pytest.mark.inventory("C-097", "C-373")
def test_a_merge_goes_deep_and_null_takes_away() -> None:
    old = {"a": {"b": 1, "c": 2}, "key": {"$secret": "x"}, "z": 1}
    new = {"a": {"c": None, "d": {"e": 3}}, "key": {"$secret": "y"}, "z": None}
    assert merged(old, new) == {"a": {"b": 1, "d": {"e": 3}}, "key": {"$secret": "y"}}


@pytest.mark.inventory("C-086", "C-094", "C-096")
@pytest.mark.inventory("C-100", "C-095", "C-474")
@pytest.mark.inventory("S-133", "S-136", "C-098")
@pytest.mark.inventory("C-1407", "C-1468")
def test_a_provider_is_added_shown_updated_removed_and_restored(lk: Run, tmp_path: Path) -> None:
    pem = tmp_path / "key"
    pem.write_text(SECRET)
    lk("secrets", "add", "my-key", "--kind", "ssh_key", "--from-file", str(pem))
    by_hand = ("--kwarg", "ip=10.0.0.1", "--kwarg", "port=22", "--kwarg", "ssh_key.$secret=my-key")
    assert lk("providers", "add", "my-box", "--launcher", "SSH", *by_hand)[:2] == (0, "provider my-box added  (SSH)\n")
    code, out, _ = lk("providers", "show", "my-box")
    assert code == 0
    assert 'ssh_key: "<secret: my-key>"' in out
    assert "port: 22" in out
    assert shown(lk, "providers", "show", "my-box")["kwargs"]["ssh_key"] == {"$secret": "my-key"}
    assert (
        lk("providers", "update", "my-box", "--kwarg", "port=2222", "--kwarg", "ip=null", "--kwarg", "host=h")[0] == 0
    )
    kwargs = shown(lk, "providers", "show", "my-box")["kwargs"]
    assert kwargs == {"port": 2222, "host": "h", "ssh_key": {"$secret": "my-key"}}
    file = tmp_path / "kwargs.yaml"
    file.write_text("context: my-kube-context\nnested: {a: [1]}\n")
    assert lk("providers", "update", "my-box", "--kwargs-file", str(file))[0] == 0
    assert shown(lk, "providers", "show", "my-box")["kwargs"] == {"context": "my-kube-context", "nested": {"a": [1]}}
    assert lk("providers", "add", "my-kube", "--launcher", "Kube", "--kwargs-file", str(file))[0] == 0
    assert [row["name"] for row in shown(lk, "providers", "list")] == ["my-box", "my-kube"]
    code, _, err = lk("providers", "update", "my-box", "--launcher", "EC2")
    assert (code, "cannot be changed" in err, "providers remove my-box" in err) == (2, True, True)
    assert lk("providers", "remove", "my-box")[0] == 0
    assert [row["name"] for row in shown(lk, "providers", "list")] == ["my-kube"]
    assert "my-box [D 20" in lk("providers", "list", "--deleted")[1]
    assert lk("providers", "restore", "my-box")[0] == 0
    assert "my-box" in lk("providers", "list")[1]
    code, _, err = lk("providers", "add", "typo", "--launcher", "SSH", "--kwarg", "ssh_key.$secret=nope")
    assert (code, "unknown secret: nope" in err) == (1, True)
    for words in (("x", "--launcher", "ssh"), ("x",), ("x", "--launcher", "SSH", "--kwarg", "a"), ("--name", "x")):
        assert lk("providers", "add", *words)[0] == 2
    for words in (("a=1", "a.b=2"), ("a.b=1", "a=2"), ("a={",)):
        pairs = [word for pair in words for word in ("--kwarg", pair)]
        assert lk("providers", "add", "x", "--launcher", "SSH", *pairs)[0] == 2


@pytest.mark.inventory("C-092")
@pytest.mark.parametrize(
    ("launcher", "usual", "other"),
    [(launcher, "direct", "daemon") for launcher in ("SSH", "Kube", "SLURM")]
    + [(launcher, "daemon", "direct") for launcher in ("EC2", "GCE")],
)
def test_a_launcher_has_a_usual_way_which_the_flag_and_the_arguments_override(
    lk: Run, launcher: str, usual: str, other: str
) -> None:
    for name, more in {"usual": (), "flag": ("--dispatch", other), "kwarg": ("--kwarg", f"dispatch={other}")}.items():
        assert lk("providers", "add", name, "--launcher", launcher, *more)[0] == 0
    found = {row["name"]: row["dispatch"] for row in shown(lk, "providers", "list")}
    assert found == {"usual": usual, "flag": other, "kwarg": other}
    assert lk("providers", "add", "x", "--launcher", launcher, "--dispatch", "later")[0] == 2


@pytest.mark.inventory("C-089")
@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump], ids=["JSON", "YAML"])
def test_the_whole_of_a_file_is_the_arguments(lk: Run, tmp_path: Path, dump: Callable[[Any], str]) -> None:
    kwargs = {"ip": "10.0.0.1", "port": 22, "nested": {"list": [1, "007"], "on": True}}
    file = tmp_path / "kwargs"
    file.write_text(dump(kwargs))
    assert lk("providers", "add", "one", "--launcher", "SSH", "--kwargs-file", str(file))[0] == 0
    assert shown(lk, "providers", "show", "one")["kwargs"] == kwargs
    file.write_text(dump([kwargs]))
    assert lk("providers", "add", "two", "--launcher", "SSH", "--kwargs-file", str(file))[0] == 2


@pytest.mark.inventory("C-093")
@pytest.mark.parametrize("words", [("--name", "x"), ("--type", "aws"), ("x", "--type", "SSH")])
def test_a_provider_has_its_name_in_its_place_and_a_launcher_instead_of_a_type(lk: Run, words: tuple[str, ...]) -> None:
    code, _, err = lk("providers", "add", *words, "--launcher", "SSH")
    assert (code, err.startswith(f"error: no such option '{words[-2]}'")) == (2, True)
    assert "Usage: lakeshore providers add [OPTIONS] <name>" in err
    assert shown(lk, "providers", "list") == []


@pytest.mark.parametrize(
    ("launcher", "more", "code", "said"),
    [
        pytest.param("EC2", (), 1, "EC2 launch requires image_id", marks=pytest.mark.inventory("S-145", "C-104")),
        ("GCE", (), 1, "GCE launch requires service_account_json"),
        ("SLURM", ("--kwarg", "host=h", "--kwarg", "partition=a'b"), 1, "cannot be used"),
        ("Kube", ("--kwarg", "kubeconfig=/none"), 1, "kubectl"),
        ("SSH", ("--dispatch", "daemon"), 1, "its dispatch is daemon"),
        ("SSH", (), 1, "neither ip nor host"),
        ("SSH", ("--kwarg", "ip=-oProxyCommand=x"), 1, "no ssh alias"),
        ("SSH", ("--kwarg", "ip=h", "--kwarg", "username=a'b"), 1, "cannot be used"),
        ("SSH", ("--kwarg", "ip=h", "--kwarg", "ssh_key=text"), 1, "is no private key"),
        ("SSH", ("--kwarg", "ip=h", "--kwarg", "pem=/none"), 1, "not on this machine: /none"),
    ],
)
def test_what_cannot_be_tried_says_why(lk: Run, launcher: str, more: tuple[str, ...], code: int, said: str) -> None:
    assert lk("providers", "add", "one", "--launcher", launcher, *more)[0] == 0
    got, out, err = lk("providers", "test", "one")
    assert (got, out, said in err) == (code, "", True), err


# --- hosts


@pytest.mark.inventory("C-119", "C-124", "C-127")
@pytest.mark.inventory("C-120", "C-123", "C-1446")
def test_a_host_of_the_configuration_becomes_a_provider(lk: Run, sshd: Sshd, tmp_path: Path) -> None:
    where = ("--ssh-config", str(sshd.config))
    user = sshd.users[0].name
    assert lk("ssh", "upload", "My_Box", *where)[:2] == (
        0,
        f"✓ provider my-box added  ({user}@127.0.0.1:{sshd.port})\n",
    )
    place = {"ip": "127.0.0.1", "username": user, "port": sshd.port}
    assert shown(lk, "providers", "show", "my-box")["kwargs"] == {**place, "pem": f"{sshd.directory}/key"}
    code, out, _ = lk("ssh", "upload", "My_Box", "--with-key", *where)
    assert (code, out.splitlines()[1]) == (0, "  key: secret ssh-my-box")
    assert shown(lk, "providers", "show", "my-box")["kwargs"] == {**place, "ssh_key": {"$secret": "ssh-my-box"}}
    assert lk("ssh", "upload", "My_Box", "--with-key", *where)[0] == 0  # again: the key is rotated
    assert json.loads(lk("ssh", "discover", "--filter", "existing", "--json", *where)[1])[0]["alias"] == "My_Box"
    other = ("--host", "h", "--port", "7", "--user", "u", "--pem", str(sshd.directory / "key"), "--dispatch", "daemon")
    code, _, err = lk("ssh", "upload", "My_Box", *other, *where)
    assert (code, "leads elsewhere" in err) == (1, True)
    assert (
        lk("ssh", "upload", "My_Box", *other, "--name", "prod-box", "--with-key", "--key-secret", "k", *where)[0] == 0
    )
    row = shown(lk, "providers", "show", "prod-box")
    assert row["kwargs"] == {"ip": "h", "username": "u", "port": 7, "ssh_key": {"$secret": "k"}}
    assert row["dispatch"] == "daemon"
    uploaded = shown(lk, "ssh", "upload", "--all", *where)
    assert [(one["alias"], one["created"]) for one in uploaded] == [("same", True), ("My_Box", False)]
    code, _, err = lk("ssh", "upload", "nowhere", *where)
    assert (code, f"no host 'nowhere' in {sshd.config}" in err) == (1, True)
    code, _, err = lk("ssh", "upload", "My_Box", "--with-key", "--pem", str(sshd.directory / "key.pub"), *where)
    assert (code, "is no private key" in err) == (1, True)
    for words in (
        (),
        ("My_Box", "--interactive"),
        ("My_Box", "--dispatch", "later"),
        ("--all", "--name", "x"),
        ("--nope",),
    ):
        assert lk("ssh", "upload", *words, *where)[0] == 2


@pytest.mark.inventory("C-118")
def test_what_matters_on_this_machine_alone_is_not_uploaded_and_nothing_is_said_of_it(lk: Run, tmp_path: Path) -> None:
    config = tmp_path / "config-of-ssh"
    stripped = ("ForwardAgent yes", "ControlPath ~/.ssh/c-%h", "LocalForward 1 h:2", "UserKnownHostsFile /k")
    config.write_text("\n    ".join(("Host box", "HostName 10.0.0.1", "User root", *stripped)) + "\n")
    code, out, err = lk("ssh", "upload", "box", "--ssh-config", str(config))
    assert (code, out) == (0, "✓ provider box added  (root@10.0.0.1:22)\n")
    row = shown(lk, "providers", "show", "box")
    assert set(row["kwargs"]) <= {"ip", "username", "port", "pem"}
    assert not [line for line in stripped if line.split()[0].lower() in (err + json.dumps(row)).lower()]
    said = lk("ssh", "discover", "--show-stripped", "--ssh-config", str(config))[1]
    assert all(f"box: {line}" in said for line in stripped)


@pytest.mark.inventory("C-1385")
@pytest.mark.parametrize(("address", "login"), [("ip", "username"), ("host", "user")])
def test_an_address_and_a_login_have_two_spellings_each(lk: Run, sshd: Sshd, address: str, login: str) -> None:
    place = (f"{address}=127.0.0.1", f"{login}={sshd.users[0].name}", f"port={sshd.port}", f"pem={sshd.directory}/key")
    pairs = [word for pair in place for word in ("--kwarg", pair)]
    assert lk("providers", "add", "box", "--launcher", "SSH", *pairs)[0] == 0
    code, _, err = lk("providers", "test", "box", "--ssh-config", str(sshd.config))
    assert code == 0, err


@pytest.mark.inventory("C-855", "C-103", "C-466")
def test_a_script_runs_there_with_the_key_that_the_server_keeps(
    namespace: str, sshd: Sshd, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lk(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(words)
        said = capfd.readouterr()  # also of ssh
        return code, said.out, said.err

    where = ("--ssh-config", str(sshd.config))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lk("ssh", "upload", "My_Box", "--with-key", *where)[0] == 0
    away = tmp_path / "config-without-key"
    away.write_text(re.sub(".*IdentityFile.*", "", sshd.config.read_text()))
    known = ("providers", "test", "my-box", "--ssh-config", str(away))
    code, out, err = lk(*known)
    assert code == 0, err
    assert [line.split(":")[0] for line in out.splitlines()] == ["hostname", "python", "platform", "gpu", "ok"]
    script = tmp_path / "own"
    for text, code, wanted in (
        ("import os, sys\nprint(os.environ['USER'])\nsys.exit(3)", 1, sshd.users[0].name),
        ("#!/usr/bin/env bash\necho $0 ${BASH_VERSION:+bash}", 0, "bash bash"),
    ):
        script.write_text(text)
        got, out, err = lk(*known, "--script", str(script))
        assert (got, out.strip()) == (code, wanted), err
    script.write_text("import time\ntime.sleep(60)")
    got, _, err = lk(*known, "--script", str(script), "--timeout", "1")
    assert (got, "not done within 1 s" in err) == (1, True)
    assert not list(tmp_path.glob("lakeshore-key-*"))
    shutil.copy(sshd.directory / "hostkey", tmp_path / "wrong")
    assert lk("secrets", "rotate", "ssh-my-box", "--from-file", str(tmp_path / "wrong"))[0] == 0
    got, _, err = lk(*known)
    assert (got, "Permission denied (publickey" in err, "Traceback" in err) == (1, True, False)
