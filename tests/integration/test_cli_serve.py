"""`lakeshore serve` as a process: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError, NotLakeshore

PROGRAM = [sys.executable, str(Path(__file__).resolve().parents[2] / "lakeshore" / "__main__.py"), "serve"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_tells_its_address_as_json_and_ends_with_0_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    command = [*PROGRAM, "--port", "0", "--state-dir", str(tmp_path / "state"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        told = json.loads(text)
        with ApiClient(told["url"], namespace="default") as api:
            assert api.whoami()["authMode"] == "open"
        second = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        server.send_signal(number)
        _out, err = server.communicate(timeout=60)
    assert told["pid"] == server.pid
    assert server.returncode == 0
    assert f"listening on {told['url']}" in err
    assert second.returncode == 1
    assert "error: another lakeshore serve" in second.stderr
    assert "Traceback" not in second.stderr


def test_an_open_address_without_a_token_is_refused_with_what_to_do(tmp_path: Path) -> None:
    command = [*PROGRAM, "--host", "0.0.0.0", "--port", "0", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "LAKESHORE_ADMIN_TOKEN" in done.stderr


def test_a_taken_port_is_told_in_plain_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*PROGRAM, "--port", str(port), "--state-dir", str(tmp_path / "state")]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"error: 127.0.0.1 port {port} is taken by another program: stop it, or choose another port" in done.stderr


def test_a_port_variable_that_is_no_number_is_told(tmp_path: Path) -> None:
    command = [*PROGRAM, "--state-dir", str(tmp_path / "state")]
    environment = {**os.environ, "PORT": "many"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1
    assert "PORT='many'" in done.stderr


def test_a_refusal_is_an_error_with_the_servers_words(tmp_path: Path) -> None:
    command = [*PROGRAM, "--port", "0", "--state-dir", str(tmp_path / "state"), "--ready-file", str(tmp_path / "url")]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        url = (tmp_path / "url").read_text().strip()
        with ApiClient(url, namespace="nowhere") as api, pytest.raises(ApiError) as caught:
            api.invocation("01K")
        assert caught.value.status == 404
        assert not isinstance(caught.value, NotLakeshore)
        with ApiClient(url + "/elsewhere", namespace="default") as api, pytest.raises(ApiError):
            api.whoami()
        server.terminate()
