"""What a web page can do to an open server on the browser's own machine: nothing, and it reads nothing.

A real Chromium loads the same page (`attack.html`) from several origins: another site, another address of this machine,
and a name that was rebound to this machine, so that to the browser the page and the server are one origin. The page's
server is at the server's own port on another loopback address; what it does not know itself it passes on, as a rebound
name would. The same page from an origin that the server was told to trust can do it all: the page's tricks do work.
"""

from __future__ import annotations

import http.client
import json
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from served import Served, one, running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGE = Path(__file__).with_name("attack.html")
SECRET = "planted-secret"
PATIENCE_S = 90.0
HOPS = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install the Debian package chromium")


@dataclass
class Attack:
    """What the pages reported, by scenario, and the servers as they are afterwards."""

    victim: Served
    trusting: Served
    seen: dict[str, dict[str, str]] = field(default_factory=dict)


class PageServer(ThreadingHTTPServer):
    """The attacker's server. `reports` get what the pages say."""

    daemon_threads = True
    reports: queue.Queue[dict[str, Any]]
    victim: tuple[str, int]


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = urlsplit(self.path).path
        if path == "/attack.html":
            self._answer(200, [("Content-Type", "text/html")], PAGE.read_bytes())
        elif path == "/frames.html":
            self._answer(200, [("Content-Type", "text/html")], of_frames(self.path))
        elif path == "/report":
            self.server.reports.put(json.loads(body))
            self._answer(200, [], b"")
        else:
            self._pass_on(body)

    def _pass_on(self, body: bytes) -> None:
        upstream = http.client.HTTPConnection(*self.server.victim, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOPS]
            self._answer(answer.status, headers, answer.read())
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_OPTIONS = do_PUT = do_HEAD = _any

    def log_message(self, *_: object) -> None:
        """Nothing: a failing test shows what the pages saw."""


def of_frames(path: str) -> bytes:
    """A page of pages: each address after the `?` in a frame."""
    frames = "".join(f'<iframe src="{address}"></iframe>' for address in path.partition("?")[2].split("|"))
    return f"<!doctype html>{frames}".encode()


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    directory = tmp_path_factory.mktemp("browser")
    with running(directory / "victim") as victim:
        port = urlsplit(victim.url).port or 0
        trusted = f"http://good.test:{port}"
        with running(directory / "trusting", "--cors-origin", trusted) as trusting:
            for server in (victim, trusting):
                call = one(queue="guarded", invocation_id="known", run_config={"prefix": SECRET})
                assert server.post("/v1/producer/submit", call).status == 200
                said = {"bytes": b"\xa1x", "final": False}
                assert server.post("/v1/producer/queues/guarded/topics/t", said).status == 200
            found = Attack(victim, trusting)
            found.seen = browse(directory, port, scenarios(victim, trusting, port))
            yield found


def scenarios(victim: Served, trusting: Served, port: int) -> dict[str, str]:
    """The address of the page in each."""
    pages = {
        "another-site": (f"http://evil.test:{port}", victim.url),
        "another-address": (f"http://127.0.0.2:{port}", victim.url),
        "subdomain-of-localhost": (f"http://evil.localhost:{port}", victim.url),
        "rebound-name": (f"http://rebound.test:{port}", ""),
        "trusted-origin": (f"http://good.test:{port}", trusting.url),
    }
    return {
        name: f"{origin}/attack.html?name={quote(name)}&target={quote(target, safe='')}"
        for name, (origin, target) in pages.items()
    }


def browse(directory: Path, port: int, pages: dict[str, str]) -> dict[str, dict[str, str]]:
    """Load every page in one browser; what each of them reported."""
    with PageServer(("127.0.0.2", port), _Handler) as site:
        site.reports, site.victim = queue.Queue(), ("127.0.0.1", port)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        rules = ",".join(f"MAP {name} 127.0.0.2" for name in ("*.test", "*.localhost"))
        frames = "|".join(address.replace("&", "&amp;") for address in pages.values())
        first = f"http://evil.test:{port}/frames.html?{frames}"
        log = directory / "chromium.log"
        with log.open("wb") as out:
            browser = subprocess.Popen(
                [
                    *(str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
                    *(f"--user-data-dir={directory / 'profile'}", "--remote-debugging-port=0"),
                    *(f"--host-resolver-rules={rules}", "--no-proxy-server", first),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        seen: dict[str, dict[str, str]] = {}
        deadline = time.monotonic() + PATIENCE_S
        try:
            while len(seen) < len(pages):
                try:
                    report = site.reports.get(timeout=max(0.1, deadline - time.monotonic()))
                except queue.Empty:
                    said = log.read_text("utf-8", "replace")[-3000:]
                    raise AssertionError(f"no report of {set(pages) - set(seen)}:\n{said}") from None
                seen[report["name"]] = report["seen"]
        finally:
            end(browser)
            site.shutdown()
        return seen


def end(browser: subprocess.Popen[bytes]) -> None:
    """It and all of its helpers, which share its process group."""
    browser.terminate()
    try:
        browser.wait(60)
    except subprocess.TimeoutExpired:
        browser.kill()
        browser.wait()


ASKED = ("json submit", "msgpack submit", "submit elsewhere", "json poll", "list", "delete", "mint", "stream")
"""What needs the server's leave first: the browser itself gives the page an error when there is none."""
HOSTILE = ("another-site", "another-address", "subdomain-of-localhost", "rebound-name")


@pytest.mark.inventory("S-014")
@pytest.mark.parametrize("page", HOSTILE)
def test_a_page_sees_nothing_of_a_server_that_does_not_trust_it(attack: Attack, page: str) -> None:
    seen = attack.seen[page]
    print(json.dumps(seen, indent=1))
    for what, found in seen.items():
        assert SECRET not in found, (what, found)
        assert "known" not in found, (what, found)
        assert "namespace=" not in found, (what, found)
        if page == "rebound-name" and what not in ("image", "script", "event source", "web socket", "beacon"):
            assert "403" in found or "open mode answers only on loopback" in found, (what, found)
    assert seen["event source"].startswith("error"), seen
    assert seen["web socket"].startswith("error"), seen
    if page != "rebound-name":
        for what in (
            "json submit",
            "msgpack submit",
            "submit elsewhere",
            "json poll",
            "list",
            "delete",
            "mint",
            "stream",
        ):
            assert seen[what] == "error TypeError", (what, seen[what])


@pytest.mark.inventory("S-014")
def test_nothing_that_those_pages_asked_for_was_done(attack: Attack) -> None:
    server = attack.victim
    assert server.get("/v1/producer/queues/attack/count").body == {"count": 0}
    row = server.post("/v1/producer/await", {"invocation_id": "known", "get": True}).body["invocation"]
    assert (row["state"], row["claim"]) == ("queued", 0)
    listed = server.get("/v1/namespaces/default/invocations").body
    assert "attack" not in json.dumps(listed, default=str)
    tokens = server.get("/v1/namespaces/default/tokens").body
    assert "stolen" not in json.dumps(tokens, default=str)
    assert [row["name"] for row in namespaces(server)] == ["default"]


def test_a_page_of_a_trusted_origin_does_and_sees_what_it_asks_for(attack: Attack) -> None:
    """So the page works, and what kept the others out is the server."""
    seen = attack.seen["trusted-origin"]
    print(json.dumps(seen, indent=1))
    assert seen["json submit"].startswith("cors 200 "), seen
    assert seen["json poll"].startswith("cors 200 "), seen
    assert "known" in seen["list"], seen
    assert attack.trusting.get("/v1/producer/queues/attack/count").body["count"] >= 1


def namespaces(server: Served) -> list[dict[str, Any]]:
    body = server.get("/v1/admin/namespaces").body
    return list(body["namespaces"])
