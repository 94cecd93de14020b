"""Commands that ask a server again while it says that there is more: one that says so for ever is left alone."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakeshore.client import rounds

Run = Callable[..., tuple[int, str, str]]
Answers = Callable[[int], dict[str, Any]]


@contextlib.contextmanager
def saying(answer: Answers) -> Iterator[tuple[str, list[int]]]:
    """The URL of a server that answers its n-th request, from 0, with `answer(n)`; and how many there were."""
    asked = [0]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            words = json.dumps(answer(asked[0])).encode()
            asked[0] += 1
            self.send_response(202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

        do_DELETE = do_POST

        def log_message(self, *_: object) -> None:
            """Nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def resealing(left: Any, resealed: int = 0) -> dict[str, Any]:
    return {"key": "k", "total": 9, "resealed": resealed, "left": left, "failed": [], "done": not left}


REKEY = ("admin", "secrets", "rekey")
DELETE = ("admin", "namespace", "delete", "there", "--yes")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (REKEY, lambda n: resealing(5)),
        (REKEY, lambda n: resealing(5 + n, resealed=32)),
        (REKEY, lambda n: resealing(5 + n % 2, resealed=32)),
        (REKEY, lambda n: resealing("some")),
        (REKEY, lambda n: resealing(True)),
        (DELETE, lambda n: {"name": "there", "deleted": False, "forgotten": 0}),
    ],
    ids=["still", "more", "to and fro", "words", "truth", "namespace"],
)
def test_a_server_that_comes_no_nearer_is_not_asked_for_ever(
    command: tuple[str, ...], answer: Answers, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    with saying(answer) as (url, asked):
        code, out, err = run(*command, "--url", url)
    assert (code, out) == (1, "")
    assert f"does not end: {rounds.STILL} answers in a row came no nearer" in err
    assert asked[0] <= rounds.STILL + 2


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (REKEY, lambda n: resealing(10**15 - n, resealed=1)),
        (DELETE, lambda n: {"name": "there", "deleted": False, "forgotten": 1}),
    ],
    ids=["rekey", "namespace"],
)
def test_a_server_that_is_never_through_is_not_asked_for_ever(
    command: tuple[str, ...], answer: Answers, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    monkeypatch.setattr(rounds, "MOST", 30)
    with saying(answer) as (url, asked):
        code, _out, err = run(*command, "--url", url)
    assert code == 1
    assert "does not end: 30 answers were not all" in err
    assert asked[0] == 30


def test_a_server_that_is_held_up_for_a_while_is_asked_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    left = [9, 9, 9, 9, 5, 5, 5, 5, 3, 0]
    with saying(lambda n: resealing(left[n], resealed=1)) as (url, asked):
        code, out, _err = run(*REKEY, "--url", url)
    assert (code, asked[0]) == (0, len(left))
    assert out.startswith("10 of 9 secrets sealed anew")
