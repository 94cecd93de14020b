"""The socket on which tunnels from other machines end: reached by this user's ssh, and never open.

Reference: DESIGN, "Security".
"""

from __future__ import annotations

import http.client
import socket
import stat
from pathlib import Path

import pytest
from served import Served, running, start

WHOAMI = "/v1/namespaces/default/whoami"


class OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("127.0.0.1:1")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


def asked(served: Served, token: str | None = None) -> int:
    connection = OverSocket(served.state_dir / "tunnel.sock")
    try:
        connection.request("GET", WHOAMI, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose path leaves room for a socket's name."""
    place = tmp_path_factory.getbasetemp() / "t"
    if len(str(place)) > 80:
        pytest.skip(f"the path of pytest's temporary directory is too long for a socket: {place}")
    return tmp_path_factory.mktemp("t")


def test_what_comes_through_a_tunnel_needs_a_token_where_the_main_address_needs_none(short: Path) -> None:
    with running(short) as served:
        assert served.get(WHOAMI).status == 200
        assert asked(served) == 401
        assert asked(served, "nobody") == 401
        assert served.get(WHOAMI).status == 200
        assert asked(served, (served.state_dir / "admin.token").read_text().strip()) == 200
        minted = served.post("/v1/namespaces/default/tokens", {"name": "far-away", "scope": "daemon"}).body
        assert asked(served, minted["plaintext"]) == 200
        assert stat.S_IMODE((served.state_dir / "tunnel.sock").stat().st_mode) == 0o600


def test_the_socket_of_a_killed_server_is_taken_over_and_that_of_a_stopped_one_goes(short: Path) -> None:
    killed = start(short)
    killed.stop(9)
    assert (killed.state_dir / "tunnel.sock").exists()
    with running(short) as served:
        assert asked(served) == 401
        assert served.stop() == 0
        assert not (served.state_dir / "tunnel.sock").exists()


def test_a_state_directory_with_a_long_path_serves_without_the_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    with running(deep) as served:
        assert served.get(WHOAMI).status == 200
        assert not (served.state_dir / "tunnel.sock").exists()
