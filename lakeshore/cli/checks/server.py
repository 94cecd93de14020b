"""The control plane that commands and calls talk to: is it there, is it ours, is its clock right, who are we to it."""

from __future__ import annotations

import json
import re
import socket
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from lakeshore._version import __version__
from lakeshore.config.errors import ConfigError
from lakeshore.net import tls
from lakeshore.net.blocking import BlockingConnection
from lakeshore.net.errors import ConnectFailed, NetError, TlsError
from lakeshore.net.response import Response
from lakeshore.net.target import Target, parse_target
from lakeshore.server.here import default_directory, local_server

from ..choice import Choice, choose
from ..failures import Failure
from .finding import Asked, Finding, failure, ok, warning

ROUNDS = 5
SLOW_S = 0.25
SKEW_S = 5.0
"""From here on it is worth a word; a daemon's signature is refused from LARGEST_SKEW_S on."""
LARGEST_SKEW_S = 300.0
CERTIFICATE_DAYS = 14
_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
_METRIC = re.compile(r"^lakeshore_(\w+)(?:\{([^}]*)\})? ([0-9.e+]+)$", re.MULTILINE)


def check(asked: Asked) -> Iterator[Finding]:
    """From the name to the token, as far as one gets."""
    choice = _choose(asked)
    if isinstance(choice, Finding):
        yield choice
        return
    if choice.found is not None:
        yield choice.found
    try:
        target = parse_target(choice.choice.url)
    except ValueError as error:
        yield failure("server", str(error), "give --url http://host:port")
        return
    addresses = _resolve(target)
    if isinstance(addresses, Finding):
        yield addresses
        return
    limit = asked.limit_s / 2
    with BlockingConnection(target, connect_timeout=limit) as connection:
        yield from _talk(asked, choice.choice, target, connection, addresses, limit)


class _Chosen:
    def __init__(self, choice: Choice, found: Finding | None = None) -> None:
        self.choice, self.found = choice, found


def _choose(asked: Asked) -> _Chosen | Finding:
    try:
        given = {"url": asked.url, "namespace": asked.namespace, "token": asked.token}
        return _Chosen(choose(**given, environ=asked.environ, look_here=False))
    except (Failure, ConfigError):  # a login that cannot be used has a line of its own
        pass
    directory = asked.state_dir or default_directory(asked.environ)
    here = local_server(directory, asked.environ)
    if here is None:
        return ok("server", "none is named: calls go to this machine's own queues (LAKESHORE_URL names one)")
    note = warning(
        "server",
        f"one runs here, and nothing names it: calls go to this machine's own queues, not to {here.url}",
        f"export LAKESHORE_URL={here.url}",
    )
    return _Chosen(Choice(url=here.url, namespace=asked.namespace or "default", token=asked.token), note)


def _resolve(target: Target) -> list[str] | Finding:
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        seen = f"{target.url}: {target.host} does not resolve ({said})"
        return failure("server", seen, "check the name, the name server, or /etc/hosts")
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _talk(
    asked: Asked, choice: Choice, target: Target, connection: BlockingConnection, addresses: list[str], limit: float
) -> Iterator[Finding]:
    try:
        began, answer = time.time(), connection.request("GET", "/healthz", timeout=limit)
        ended = time.time()
    except TlsError as error:
        yield failure("server", str(error), "LAKESHORE_CA_FILE names other certificates; is the clock right?")
        return
    except ConnectFailed as error:
        yield failure("server", str(error), _unreachable(target, asked))
        return
    except NetError as error:
        yield failure(
            "server", str(error), "another program may listen on that port, or the server hangs: look at its log"
        )
        return
    body = _json(answer)
    if answer.status != 200 or body.get("ok") is not True:
        yield failure(
            "server",
            f"{target.url} answers {answer.status}, and not as a control plane does",
            "another program listens there, or a proxy answers for it: check the address and its path",
        )
        return
    yield ok("server", f"{target.url} ({', '.join(addresses)})")
    yield _version(body)
    try:
        yield _ready(connection.request("GET", "/readyz", timeout=limit))
        yield _latency(connection, limit)
        yield _clock(answer, began, ended)
        if target.tls:
            yield _certificate(target, limit)
        yield from _token(connection, choice, target, limit)
        yield from _workers(connection, choice, limit)
    except NetError as error:
        yield failure("server", str(error), "it stopped answering: look at its log")


def _unreachable(target: Target, asked: Asked) -> str:
    if target.is_loopback:
        return "start one: lakeshore serve; or unset LAKESHORE_URL to use this machine's own queues"
    proxy = any(asked.environ.get(name) for name in _PROXIES)
    return (
        f"is it running, on that port, and let through by the firewall? `ssh -L {target.port}:127.0.0.1:{target.port} "
        f"{target.host}` is a way around" + ("; proxies of the environment are not used" if proxy else "")
    )


def _version(body: dict[str, Any]) -> Finding:
    version = body.get("version")
    if version == __version__:
        return ok("version", f"{version}, as here")
    return warning("version", f"the server is {version}, this is {__version__}", "upgrade the older one")


def _ready(answer: Response) -> Finding:
    body = _json(answer)
    if answer.status == 200:
        if body.get("full") is True:
            said = "its disk is full: what runs goes on, new calls are refused"
            return failure("ready", said, "free space under its state directory, or set a smaller --reserve-bytes")
        return ok("ready", "it takes work")
    said = body.get("error", f"status {answer.status}")
    return failure("ready", f"it takes no work: {said}", "it is going down: try again, then look at its log")


def _latency(connection: BlockingConnection, limit: float) -> Finding:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        connection.request("GET", "/healthz", timeout=limit)
        times.append(time.perf_counter() - began)
    middle = statistics.median(times)
    seen = f"{middle * 1000:.3g} ms a request (median of {ROUNDS})"
    if middle > SLOW_S:
        return warning("latency", seen, "a far or busy server: submit many calls at once, and keep workers near it")
    return ok("latency", seen)


def _clock(answer: Response, began: float, ended: float) -> Finding:
    try:
        said = parsedate_to_datetime(answer.headers["date"])
    except (KeyError, ValueError, TypeError):
        return warning("clocks", "the server's answers carry no usable Date", "a proxy in between removes it")
    there = (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()
    # It names the second that had begun: what lies between our two readings is no skew.
    skew = there + 1 - began if there + 1 < began else there - ended if there > ended else 0.0
    if abs(skew) < SKEW_S:
        return ok("clocks", "within a second of each other" if abs(skew) < 1 else f"{abs(skew):.0f} s apart")
    seen = f"the server's is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} ours"
    advice = "let the wrong one follow a time server (timedatectl set-ntp true)"
    if abs(skew) >= LARGEST_SKEW_S:
        return failure("clocks", seen, f"signed requests are refused from {LARGEST_SKEW_S:.0f} s on: {advice}")
    return warning("clocks", seen, advice)


def _certificate(target: Target, limit: float) -> Finding:
    with (
        socket.create_connection((target.host, target.port), timeout=limit) as sock,
        tls.wrap(sock, target) as wrapped,
    ):
        found: Any = wrapped.getpeercert() or {}
    ends = datetime.strptime(found["notAfter"], "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    days = (ends - datetime.now(UTC)).total_seconds() / 86400
    seen = f"valid until {ends:%Y-%m-%d} ({days:.0f} days)"
    if days < CERTIFICATE_DAYS:
        return warning("certificate", seen, "renew it, then restart the server with it")
    return ok("certificate", seen)


def _token(connection: BlockingConnection, choice: Choice, target: Target, limit: float) -> Iterator[Finding]:
    path = f"/v1/namespaces/{quote(choice.namespace, safe='')}/whoami"
    try:
        answer = connection.request("GET", path, headers=_headers(choice), timeout=limit)
    except ValueError:
        advice = "copy it again, without quotes and ends of lines"
        yield failure("token", "it holds a character that no header can carry", advice)
        return
    body = _json(answer)
    if answer.status == 200:
        yield ok("token", _who(body))
    else:
        said = str(body.get("error") or f"whoami answers {answer.status}")
        yield failure("token", said, _refused(choice, target, answer, body))
    if choice.token and not target.tls and not target.is_loopback:
        yield warning("token", f"it travels to {target.host} unencrypted", "serve with --tls-cert, or through `ssh -L`")


def _who(body: dict[str, Any]) -> str:
    mode, scope = body.get("authMode"), body.get("scope")
    seen = f"namespace {body.get('namespace')}, scope {scope}"
    if mode == "open":
        return f"{seen}; open mode: none is needed"
    return f"{seen}, {body.get('tokenName')}"


def _refused(choice: Choice, target: Target, answer: Response, body: dict[str, Any]) -> str:
    if answer.status == 401 and choice.token is None:
        return f"log in: lakeshore auth login --server {target.url}; or export LAKESHORE_CLIENT_TOKEN"
    if answer.status in (401, 403):
        hint = body.get("hint")
        return f"ask for another token for namespace {choice.namespace}" + (f" ({hint})" if hint else "")
    if answer.status == 404:
        return "is it the right namespace (--namespace, LAKESHORE_NAMESPACE)?"
    return "look at the server's log"


def _workers(connection: BlockingConnection, choice: Choice, limit: float) -> Iterator[Finding]:
    """Who takes work, where we may know: /metrics is the admin's."""
    answer = connection.request("GET", "/metrics", headers=_headers(choice), timeout=limit)
    if answer.status != 200:
        return
    counts = {"queued": 0.0, "parked_polls": 0.0, "leases": 0.0}
    for name, labels, value in _METRIC.findall(answer.body.decode("utf-8", "replace")):
        if name in counts:
            counts[name] += float(value)
        elif name == "invocations" and 'state="queued"' in labels:
            counts["queued"] += float(value)
    waiting, running, queued = counts["parked_polls"], counts["leases"], counts["queued"]
    seen = f"{waiting:.0f} wait for work, {running:.0f} jobs run, {queued:.0f} are queued"
    if queued and not waiting and not running:
        yield warning("workers", seen, "nobody takes them: lakeshore worker start --queue <name>")
    else:
        yield ok("workers", seen)


def _headers(choice: Choice) -> list[tuple[str, str]]:
    headers = [("accept", "application/json"), ("x-ls-namespace", choice.namespace)]
    return [*headers, ("authorization", f"Bearer {choice.token}")] if choice.token else headers


def _json(answer: Response) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
