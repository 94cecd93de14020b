"""The script of a new machine: what it holds of whoever asked for it, in which shells, and the unit that it writes."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from shutil import which

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.nymph import config as daemon_config
from lakeshore.server.bootstrap import config, script
from lakeshore.server.launchers.contract import Machine, Program

MACHINE = Machine(
    ns="default",
    worker="0123456789abcdef01234567",
    label="gpu",
    url="https://lakeshore.example",
    program=Program(path=Path("/none"), sha256="0" * 64, url="/v1/admin/nymph-releases/x"),
    token="dlk_planted",
    userdata="",
)
SHELLS = [one for one in ("dash", "bash", "sh") if which(one)]
HOSTILE = "'\"$(id)`id`\\ \n\t; rm -rf / # {}%s é"


def shell(name: str, text: str) -> str:
    done = subprocess.run([name], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@pytest.mark.parametrize("name", SHELLS)
def test_whatever_somebody_says_is_one_word(name: str) -> None:
    machine = replace(MACHINE, label=HOSTILE.replace("\n", ""), bootstrap_script=HOSTILE, tags=(HOSTILE,))
    given, _main = script.rendered(machine).rsplit("\nmain\n", 1)
    assert shell(name, f"{given}\nprintf '%s' \"$bootstrap\"") == HOSTILE
    told = tomllib.loads(shell(name, f"{given}\nprintf '%s' \"$config\""))
    assert told["daemon"] == {"label": machine.label, "tags": [HOSTILE]}


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=60))
def test_any_text_comes_through_a_shell(text: str) -> None:
    assert shell("sh", f"printf '%s' {script.quoted(text)}") == text


@given(st.lists(st.text(min_size=1, max_size=30).filter(str.isprintable), max_size=4))
@pytest.mark.inventory("S-163", "S-169")
def test_the_daemon_reads_the_configuration_as_it_was_meant(texts: list[str]) -> None:
    machine = replace(MACHINE, tags=tuple(texts), queues=("training", "eval-*"), runners=("docker", "process"))
    text = config.rendered(machine, token_file="token", workdir="/var/lib/dreamlake/udf")
    daemon_config.parse(text, "udf-daemon.toml")
    told = tomllib.loads(text)
    assert told["server"] == {"url": MACHINE.url, "token_file": "token", "namespace": "default"}
    assert told["daemon"] == {"label": "gpu", "tags": texts, "queues": ["training", "eval-*"]}
    assert (told["runtime"]["default_runner"], told["runtime"]["keep_alive_s"]) == ("docker", -1)


@pytest.mark.parametrize("keep_alive_s", [-1, 0])
@pytest.mark.inventory("S-164", "S-165", "N-367")
def test_the_unit_is_the_documented_one(keep_alive_s: int) -> None:
    text, _main = script.rendered(replace(MACHINE, keep_alive_s=keep_alive_s)).rsplit("\nmain\n", 1)
    unit = shell("sh", f"{text}\npython=/usr/bin/python3\nunit")
    for line in (
        'ExecStart="/usr/bin/python3" /opt/dreamlake/bin/nymph --config /etc/dreamlake/udf-daemon.toml',
        "Restart=always",
        "KillMode=mixed",
        "TimeoutStopSec=30",
        "StandardOutput=append:/var/log/dreamlake/nymph.log",
        "WantedBy=multi-user.target",
    ):
        assert f"\n{line}\n" in unit
    assert ("RestartPreventExitStatus=0" in unit) == (keep_alive_s >= 0)
    assert "\nservice=dreamlake-nymph.service\n" in text


def test_the_script_is_clean_by_shellcheck(tmp_path: Path) -> None:
    if which("shellcheck") is None:
        pytest.skip("there is no shellcheck")
    path = tmp_path / "userdata"
    path.write_text(script.rendered(replace(MACHINE, bootstrap_script="it's")))
    for dialect in ("sh", "dash", "bash"):
        done = subprocess.run(["shellcheck", "-s", dialect, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
