"""scripts/install.sh --service and --uninstall. The managers are stand-ins that write down what they are told."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from installing import PATH, install, installed, program, publish, small_file

BOTH = ["lakeshore", "nymph"]


@dataclass
class Machine:
    """A home and a service manager."""

    root: Path
    base: Path

    @property
    def home(self) -> Path:
        return self.root / "ho me"

    @property
    def dest(self) -> Path:
        return self.root / 'a "b" $c %d'

    @property
    def unit(self) -> Path:
        return self.home / ".config/systemd/user/lakeshore.service"

    @property
    def plist(self) -> Path:
        return self.home / "Library/LaunchAgents/ai.dreamlake.lakeshore.plist"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        tools = f"{self.root}/tools:{PATH}"
        done = install(
            self.base,
            self.dest,
            *arguments,
            HOME=str(self.home),
            PATH=tools,
            XDG_CONFIG_HOME="unset",
            XDG_CACHE_HOME="unset",
        )
        assert "syntax" not in done.stderr
        return done

    def told(self) -> list[str]:
        """What the manager was told since the last look."""
        log = self.root / "told"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("--user show-environment")]

    def has(self, name: str, answers: str = "") -> None:
        program(self.root / "tools" / name, f'#!/bin/sh\necho "$@" >> {self.root}/told\n{answers}\n')


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, publish(tmp_path / "base", "1.0.0", small_file("1.0.0")))
    made.home.mkdir()
    return made


def systemd(machine: Machine) -> None:
    active = machine.root / "active"
    machine.has("loginctl", "echo Linger=no")
    machine.has("systemctl", f'case "$*" in *restart*) touch {active} ;; *is-active*) test -e {active} ;; esac')


def launchd(machine: Machine) -> None:
    loaded = machine.root / "loaded"
    program(machine.root / "tools" / "uname", "#!/bin/sh\necho Darwin\n")
    machine.has("launchctl", f"case $1 in bootstrap) touch {loaded} ;; print) test -e {loaded} ;; esac")


@pytest.mark.inventory("C-1478")
def test_a_systemd_unit_is_written_enabled_and_started_once(machine: Machine) -> None:
    systemd(machine)
    done = machine.run("--service")
    assert done.returncode == 0, done.stderr
    assert machine.told()[:3] == [
        "--user daemon-reload",
        "--user enable lakeshore.service",
        "--user restart lakeshore.service",
    ]
    assert "loginctl enable-linger" in done.stderr
    written = machine.unit.read_text()
    python = f'"{getattr(sys, "_base_executable", sys.executable)}"'
    escaped = str(machine.dest).replace('"', '\\"').replace("$", "$$").replace("%", "%%")
    start = next(line for line in written.splitlines() if line.startswith("ExecStart="))
    assert start.endswith(f' "{escaped}/lakeshore" serve')
    assert start.startswith('ExecStart="/') or python in start
    again = machine.run("--service")
    assert "its service runs already" in again.stderr
    assert [line for line in machine.told() if "is-active" not in line] == []
    assert machine.unit.read_text() == written


def test_the_unit_is_one_that_systemd_reads(machine: Machine) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    systemd(machine)
    machine.run("--service")
    done = subprocess.run(
        [analyze, "verify", "--user", machine.unit],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(machine.root), "HOME": str(machine.home)},
    )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr}")
    assert "lakeshore.service" not in done.stderr, done.stderr


def test_an_upgrade_restarts_the_service(machine: Machine) -> None:
    systemd(machine)
    machine.run("--service")
    machine.told()
    publish(machine.base, "2.0.0", small_file("2.0.0"))
    assert machine.run("--service").returncode == 0
    assert "--user restart lakeshore.service" in machine.told()


def test_a_launchd_agent_is_written_and_started_once(machine: Machine) -> None:
    launchd(machine)
    done = machine.run("--service")
    assert done.returncode == 0, done.stderr
    domain = f"gui/{os.getuid()}"
    assert machine.told() == [f"bootout {domain}/ai.dreamlake.lakeshore", f"bootstrap {domain} {machine.plist}"]
    agent = plistlib.loads(machine.plist.read_bytes())
    assert agent["Label"] == "ai.dreamlake.lakeshore"
    assert agent["ProgramArguments"][1:] == [f"{machine.dest}/lakeshore", "serve"]
    assert agent["StandardErrorPath"] == f"{machine.home}/Library/Logs/lakeshore.log"
    assert (agent["RunAtLoad"], agent["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert "runs already" in machine.run("--service").stderr


def test_without_a_manager_the_unit_is_printed_and_nothing_is_written(machine: Machine) -> None:
    machine.has("systemctl", "exit 1")  # installed, but no manager of this user's runs
    done = machine.run("--service")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Written by Lakeshore's install.sh\n[Unit]\n")
    assert f"This is the unit, for {machine.unit}:" in done.stderr
    assert not machine.unit.exists()


@pytest.mark.inventory("N-306", "C-834", "N-405")
def test_without_the_option_nothing_but_the_program_is_installed_and_the_option_is_mentioned(machine: Machine) -> None:
    systemd(machine)
    done = machine.run()
    assert machine.told() == []
    assert installed(machine.dest) == BOTH
    assert not machine.unit.exists()
    assert "as a service: this installer with --service" in done.stderr
    elsewhere = machine.root / "prefix"
    os.environ["NYMPH_PREFIX"] = str(elsewhere)
    try:
        machine.run()
    finally:
        del os.environ["NYMPH_PREFIX"]
    assert not elsewhere.exists()


def test_a_unit_that_somebody_else_wrote_stays(machine: Machine) -> None:
    systemd(machine)
    machine.unit.parent.mkdir(parents=True)
    machine.unit.write_text("[Service]\nExecStart=/bin/true\n")
    done = machine.run("--service")
    assert done.returncode == 1
    assert "not ours" in done.stderr
    machine.run("--uninstall")
    assert machine.unit.read_text() == "[Service]\nExecStart=/bin/true\n"


@pytest.mark.parametrize("manager", [systemd, launchd])
def test_uninstalling_removes_program_and_service_and_says_what_it_keeps(machine: Machine, manager: object) -> None:
    assert callable(manager)
    manager(machine)
    done = machine.run("--service")
    assert "--uninstall --dest" in done.stderr
    machine.told()
    done = machine.run("--uninstall")
    assert done.returncode == 0, done.stderr
    assert installed(machine.dest) == []
    assert not machine.unit.exists()
    assert not machine.plist.exists()
    assert [line for line in machine.told() if "disable --now" in line or "bootout" in line]
    assert "Kept: " in done.stderr
    again = machine.run("--uninstall")
    assert again.returncode == 0
    assert "there is no" in again.stderr


def test_the_printed_uninstall_line_works_in_a_shell(machine: Machine) -> None:
    done = machine.run()
    line = done.stderr.splitlines()[-1].split(", or ", 1)[1]
    subprocess.run(["sh", "-c", line], check=True)
    assert installed(machine.dest) == []


def test_what_is_not_ours_is_not_uninstalled(machine: Machine) -> None:
    program(machine.dest / "lakeshore", "#!/bin/sh\n")
    assert machine.run("--uninstall").returncode == 1
    assert installed(machine.dest) == ["lakeshore"]
