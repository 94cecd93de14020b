"""Every documented command line about daemons, as it is printed: it is understood, and goes as far as the network."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from lakeshore.cli.daemon.install import install
from lakeshore.cli.main import main
from lakeshore.cli.program import program
from lakeshore.nymph.config import INSTALLED_KEYS, Config, RuntimeSection, render

NOWHERE = "http://127.0.0.1:1"
LINES = """
C-913 daemon exec ge-debug-1 nvidia-smi
C-915 daemon exec --env CUDA_VISIBLE_DEVICES=0 --env BATCH=64 --timeout 60 ge-debug-1 python train.py
C-917 daemon list
C-241 daemon exec --id --timeout 5 --env K=V --workdir /tmp --stdin - --wait 9 --json ID true
C-954 daemon list --json
C-976 daemon list --json
C-1345 daemon list
C-1351 daemon list
C-1133 nymph push ./nymph --json
C-1349 daemon setup ID --script docker.sh --sudo --refresh-capabilities
C-914 daemon exec --stdin - ge-debug-1 jq .results
C-929 daemon kill ID
C-930 daemon kill --prefix gpu- --yes
C-931 daemon kill ID --no-terminate
C-979 daemon show ID
C-980 daemon show ID --json
C-984 daemon setup ID --script post.sh --name post-install --refresh-capabilities
C-985 daemon setup ID --script apt-install.sh --sudo --name apt-htop
C-986 daemon hibernate ID --until +1h
C-987 daemon hibernate ID --until 2026-06-01T00:00:00Z
C-988 daemon reset ID
C-989 daemon update ID --version 0.1.4
C-990 daemon update --all --version 0.1.4 --yes
C-991 daemon update --prefix fleet- --version 0.1.4 --yes
C-992 nymph push ./nymph --json
C-994 daemon update train-01 --add-queue eval
C-995 daemon update train-01 --add-queue training-h100 --add-queue cpu-prep --remove-queue scratch
C-997 daemon set-target-version 0.1.4
C-998 daemon set-target-version --clear
C-999 daemon target-version --json
C-1001 daemon kill ID --no-terminate
C-1002 daemon kill --prefix fleet- --yes
C-1003 daemon cleanup --older-than 5m --dry-run
C-1004 daemon cleanup --older-than 5m --yes
C-1005 daemon cleanup --older-than 24h --yes --json
C-1020 exec --queue training-h100 nvidia-smi
C-1021 daemon exec ID nvidia-smi
C-1025 daemon exec --stdin input.json ID jq .results
C-1028 daemon exec --timeout 30 ID sleep 120
C-1029 daemon exec --wait 1800 --timeout 1500 ID python long_train.py
C-1030 daemon exec --json ID uname -a
C-1031 run hello.py --daemon ID
C-1033 run hello.py --daemon ID --env DEBUG=1 --timeout 60 --python /opt/conda/bin/python
C-1131 nymph push ./nymph
C-1132 nymph list --json
C-1233 daemon show scratch
C-1238 daemon update train-00 --add-queue eval
C-1239 daemon update train-00 --remove-queue eval
C-1280 daemon cleanup --older-than 2h --dry-run
C-1281 daemon cleanup --older-than 2h
C-1282 daemon cleanup --older-than 5d --yes
C-1283 daemon hibernate ID --until +30m
C-1294 daemon exec ID nvidia-smi
C-1295 daemon exec --timeout 30 --workdir /tmp ID ls -la
C-1296 exec --queue training 'python -c "print(1+1)"'
C-1297 run ./train.py --daemon ID --env SEED=1
C-1322 daemon update ID --add-queue fan-out-demo
C-1335 daemon list --json
C-1336 daemon show ID --json
C-1337 exec --queue training uname -a
C-1338 daemon setup ID --script docker.sh --sudo --refresh-capabilities --name docker
C-1339 daemon hibernate ID --until +2h
C-1340 daemon update ID --version 0.1.10
C-1341 daemon set-target-version 0.1.10
C-1343 daemon cleanup
C-1344 daemon cleanup --older-than 6h --json
C-1346 daemon cleanup --older-than 1d
C-231 daemon ota ID --version 0.1.4
"""
FILES = ("post.sh", "apt-install.sh", "docker.sh", "input.json", "hello.py", "train.py", "nymph")
FLAGS = """
C-695 daemon list --watch
C-697 daemon show --json
C-698 daemon show --watch
C-699 daemon setup id_
C-701 daemon setup --sudo
C-702 daemon setup --refresh-capabilities
C-704 daemon setup --json
C-705 daemon exec words
C-709 daemon exec --workdir
C-713 daemon kill id_
C-714 daemon kill --no-terminate
C-715 daemon kill --prefix
C-716 daemon kill --yes
C-717 daemon cleanup --older-than
C-718 daemon cleanup --dry-run
C-719 daemon cleanup --yes
C-720 daemon cleanup --json
C-721 daemon hibernate id_
C-723 daemon reset id_
C-724 daemon update id_
C-725 daemon update --version
C-726 daemon update --all
C-727 daemon update --prefix
C-728 daemon update --yes
C-729 daemon update --url
C-730 daemon update --sha256
C-731 daemon update --add-queue
C-732 daemon update --remove-queue
C-733 daemon target-version --json
C-734 daemon set-target-version version
C-735 daemon set-target-version --clear
C-743 exec words
C-746 run script
C-747 run --daemon
C-748 run --env
C-749 run --timeout
C-750 run --python
C-751 run --json
C-264 nymph push --target
C-267 nymph list --json
C-683 daemon install alias
C-684 daemon install --label
C-685 daemon install --tag
C-686 daemon install --runner
C-687 daemon install --keep-alive-s
C-691 daemon install --no-wait
C-764 nymph push file
C-765 nymph push --target
C-766 nymph push --name
C-767 nymph push --admin-token
C-768 nymph push --json
C-769 nymph list --json
C-770 nymph list --admin-token
"""
VERBS = {
    "daemon": "install list show setup exec kill cleanup hibernate reset update target-version set-target-version stop"
    " status ota launch launch-log",
    "nymph": "push list",
    "ssh": "discover upload probe status",
}


def rows(text: str) -> list[Any]:
    split = (line.partition(" ") for line in text.strip().splitlines())
    return [pytest.param(line, id=line, marks=pytest.mark.inventory(row)) for row, _, line in split]


@pytest.mark.parametrize("line", rows(LINES))
def test_a_documented_line_is_accepted_as_it_is_written(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", NOWHERE)
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "changeme")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_text("print()\n")
    assert main([word.replace("ID", "0" * 24) for word in shlex.split(line)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert f"{NOWHERE}/v1/" in said.err


MEANT: dict[str, tuple[str, dict[str, Any]]] = {
    "C-911": ("daemon install my-server", {"alias": "my-server", "label": None, "wait": True, "wait_s": 60.0}),
    "C-972": ("daemon install my-server --label ge-debug-1", {"label": "ge-debug-1"}),
    "C-973": (
        "daemon install my-server --tag gpu:a100 --runner docker --keep-alive-s 900",
        {"tags": ("gpu:a100",), "runners": ("docker",), "keep_alive_s": 900},
    ),
    "C-974": ("daemon install my-server --label ge-debug-1 --binary nymph", {"binary": Path("nymph")}),
    "C-975": (
        "daemon install login.cluster --slurm --slurm-partition gpu",
        {"slurm": True, "slurm_partition": "gpu", "slurm_requeue": False},
    ),
    "C-1274": ("daemon install my-dev-box --label dev", {"alias": "my-dev-box", "label": "dev"}),
    "C-1329": ("daemon install bos14", {"alias": "bos14", "keep_alive_s": -1, "runners": (), "service": False}),
    "C-1330": (
        "daemon install h100-rig --label gpu-rig --tag gpu:h100 --tag gpu-count:8 --runner docker --runner process"
        " --keep-alive-s 600",
        {"tags": ("gpu:h100", "gpu-count:8"), "runners": ("docker", "process"), "keep_alive_s": 600},
    ),
    "C-1331": ("daemon install bos14-login --slurm --slurm-partition xeon-g6-volta", {"slurm": True}),
    "C-977": ("daemon list --watch", {"watch": 2.0}),
    "C-978": ("daemon list --watch 5", {"watch": 5.0}),
    "C-981": ("daemon show ge-debug-1 --watch", {"watch": 2.0}),
}


@pytest.mark.parametrize(
    ("line", "meant"),
    [pytest.param(*case, id=case[0], marks=pytest.mark.inventory(row)) for row, case in MEANT.items()],
)
def test_a_documented_line_means_what_its_page_says(
    line: str, meant: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nymph").touch()
    name, verb, *words = line.split()
    with click.Context(program, **program.context_settings) as ctx:
        group = program.get_command(ctx, name)
    assert isinstance(group, click.Group)
    with click.Context(group, **program.context_settings) as ctx:
        command = group.get_command(ctx, verb)
        assert command is not None
        found = command.make_context(verb, words, parent=ctx).params
    assert {key: found[key] for key in meant} == meant


@pytest.mark.parametrize("line", rows(FLAGS))
def test_a_documented_flag_or_argument_is_taken_by_its_verb(line: str) -> None:
    *path, wanted = line.split()
    command: click.Command | None = program
    for name in path:
        assert isinstance(command, click.Group)
        with click.Context(command) as ctx:
            command = command.get_command(ctx, name)
    assert command is not None
    named = {spelling for one in command.params for spelling in (*one.opts, *one.secondary_opts, one.name)}
    assert wanted in named


@pytest.mark.parametrize(
    "group",
    [
        pytest.param("daemon", marks=pytest.mark.inventory("C-031")),
        pytest.param("nymph", marks=pytest.mark.inventory("C-042")),
        pytest.param("ssh", marks=pytest.mark.inventory("C-037")),
    ],
)
def test_the_documented_verbs_are_there(group: str) -> None:
    found = program.commands[group] if group in program.commands else program.get_command(click.Context(program), group)
    assert isinstance(found, click.Group)
    with click.Context(found) as ctx:
        assert not [verb for verb in VERBS[group].split() if found.get_command(ctx, verb) is None]


@pytest.mark.inventory("N-133", "N-400", "C-1428")
@pytest.mark.inventory("C-1402")
@pytest.mark.inventory("C-1427")
def test_an_installed_daemon_stays_unless_told_otherwise_and_wait_is_taken_though_it_is_the_default() -> None:
    params = {one.name: one for one in install.params}
    keep, wait = params["keep_alive_s"], params["wait"]
    assert (keep.default, keep.opts) == (-1, ["--keep-alive-s", "--keep-alive"])
    assert Config().runtime.keep_alive_s == 300
    assert (wait.default, wait.opts, wait.secondary_opts) == (True, ["--wait"], ["--no-wait"])
    written = render(Config(runtime=RuntimeSection(keep_alive_s=-1)), INSTALLED_KEYS)
    assert "keep_alive_s = -1" in written.splitlines()


@pytest.mark.inventory("C-1032", "C-912")
@pytest.mark.parametrize(
    ("line", "flags"),
    [("exec nvidia-smi", "--on <daemon> or --queue <name>"), ("run hello.py", "--daemon <d> or --queue <name>")],
)
def test_without_a_terminal_nothing_is_picked_and_the_flags_are_named(
    line: str, flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", NOWHERE)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.py").touch()
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"error: nobody can pick a daemon here\nhint: name where it is to run: {flags}\n",
    )
