"""Every route of the table against every kind of credential, and two namespaces that know nothing of each other.

What each route asks is stated here once more, by hand: a route that is added, or that asks for less, fails until
somebody has written down who may call it.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from served import ADMIN, JSON, Served, new_id, one

from lakeshore.server.routes.table import TABLE, Row

STATED = {
    "anyone": "GET /healthz; GET /readyz; GET /v1/openapi.json",
    "its signature": "PUT /v1/blobs/{key...}; GET /v1/blobs/{key...}",
    "the operator": """
        GET /metrics
        GET /v1/admin/namespaces; POST /v1/admin/namespaces
        GET /v1/admin/namespaces/{slug}; PATCH /v1/admin/namespaces/{slug}; DELETE /v1/admin/namespaces/{slug}
        GET /v1/admin/invocations; GET /v1/admin/invocations/{id}; POST /v1/admin/secrets/rekey
        GET /v1/admin/changes
        POST /v1/namespaces/{ns}/tokens
        POST /v1/namespaces/{ns}/enroll-tokens; DELETE /v1/namespaces/{ns}/enroll-tokens/{id}
        GET /v1/admin/nymph-releases; POST /v1/admin/nymph-releases
    """,
    "a daemon's signature": "POST /v1/daemon/keys",
    "full": """
        GET /v1/namespaces/{ns}/invocations; GET /v1/namespaces/{ns}/invocations/{id}
        GET /v1/namespaces/{ns}/invocations/{id}/logs; GET /v1/namespaces/{ns}/invocations/counts
        GET /v1/namespaces/{ns}/changes
        DELETE /v1/namespaces/{ns}/invocations/{id}; POST /v1/namespaces/{ns}/invocations/{id}/retry
        POST /v1/namespaces/{ns}/invocations/bulk-cancel; POST /v1/namespaces/{ns}/invocations/prune
        GET /v1/namespaces/{ns}/tokens; DELETE /v1/namespaces/{ns}/tokens/{id}
        GET /v1/namespaces/{ns}/workers; POST /v1/namespaces/{ns}/workers/cleanup; GET /v1/namespaces/{ns}/events
        GET /v1/namespaces/{ns}/workers/{id}; DELETE /v1/namespaces/{ns}/workers/{id}
        GET /v1/namespaces/{ns}/workers/{id}/launch-log
        POST /v1/namespaces/{ns}/workers/{id}/setup; POST /v1/namespaces/{ns}/workers/{id}/hibernate
        POST /v1/namespaces/{ns}/workers/{id}/reset; POST /v1/namespaces/{ns}/workers/{id}/queues
        POST /v1/namespaces/{ns}/workers/{id}/drain
        GET /v1/namespaces/{ns}/schedules; POST /v1/namespaces/{ns}/schedules
        GET /v1/namespaces/{ns}/schedules/{name}; PATCH /v1/namespaces/{ns}/schedules/{name}
        DELETE /v1/namespaces/{ns}/schedules/{name}
        GET /v1/namespaces/{ns}/queues; POST /v1/namespaces/{ns}/queues
        GET /v1/namespaces/{ns}/queues/{name}; PATCH /v1/namespaces/{ns}/queues/{name}
        DELETE /v1/namespaces/{ns}/queues/{name}
        POST /v1/namespaces/{ns}/queues/{name}/archive; POST /v1/namespaces/{ns}/queues/{name}/unarchive
        POST /v1/namespaces/{ns}/queues/{name}/drain
        GET /v1/namespaces/{ns}/queues/{name}/stats; GET /v1/namespaces/{ns}/queues/{name}/events
        GET /v1/namespaces/{ns}/enroll-tokens
        GET /v1/namespaces/{ns}/secrets; POST /v1/namespaces/{ns}/secrets; GET /v1/namespaces/{ns}/secrets/{name}
        PUT /v1/namespaces/{ns}/secrets/{name}; DELETE /v1/namespaces/{ns}/secrets/{name}
        GET /v1/namespaces/{ns}/providers; POST /v1/namespaces/{ns}/providers; GET /v1/namespaces/{ns}/providers/{name}
        PATCH /v1/namespaces/{ns}/providers/{name}; DELETE /v1/namespaces/{ns}/providers/{name}
        POST /v1/namespaces/{ns}/providers/{name}/restore; POST /v1/namespaces/{ns}/providers/{name}/resolve
        POST /v1/namespaces/{ns}/providers/{name}/test; GET /v1/namespaces/{ns}/providers/{name}/instances
        DELETE /v1/namespaces/{ns}/providers/{name}/instances/{id}; POST /v1/namespaces/{ns}/daemons/launch
        GET /v1/namespaces/{ns}/elasticity-events
        POST /v1/namespaces/{ns}/modes; PATCH /v1/namespaces/{ns}/modes/{name}
        DELETE /v1/namespaces/{ns}/modes/{name}
        GET /v1/namespaces/{ns}/tunnels; POST /v1/namespaces/{ns}/tunnels; GET /v1/namespaces/{ns}/tunnels/{name}
        PATCH /v1/namespaces/{ns}/tunnels/{name}; DELETE /v1/namespaces/{ns}/tunnels/{name}
        GET /v1/namespaces/{ns}/mounts; POST /v1/namespaces/{ns}/mounts; GET /v1/namespaces/{ns}/mounts/{name}
        PATCH /v1/namespaces/{ns}/mounts/{name}; DELETE /v1/namespaces/{ns}/mounts/{name}
        GET /v1/namespaces/{ns}/storages; POST /v1/namespaces/{ns}/storages; GET /v1/namespaces/{ns}/storages/{name}
        PATCH /v1/namespaces/{ns}/storages/{name}; DELETE /v1/namespaces/{ns}/storages/{name}
        POST /v1/namespaces/{ns}/storages/{name}/credentials
        GET /v1/namespaces/{ns}/workers/{id}/keys; POST /v1/namespaces/{ns}/workers/{id}/keys/{key_id}/revoke
        POST /v1/namespaces/{ns}/workers/{id}/update
        GET /v1/namespaces/{ns}/nymph-target; PUT /v1/namespaces/{ns}/nymph-target
        DELETE /v1/namespaces/{ns}/nymph-target
        POST /v1/namespaces/{ns}/exec; GET /v1/namespaces/{ns}/exec; GET /v1/namespaces/{ns}/exec/{id}
        POST /v1/namespaces/{ns}/exec/{id}/cancel; POST /v1/namespaces/{ns}/workers/{id}/exec
        GET /v1/namespaces/{ns}/exec/{id}/log; GET /v1/namespaces/{ns}/exec/{id}/log/stream
        GET /v1/namespaces/{ns}/jobs/{id}/result
        DELETE /v1/namespaces/{ns}/code-repos/{id}
    """,
    "producers": """
        GET /v1/namespaces/{ns}/modes; GET /v1/namespaces/{ns}/modes/{name}
        GET /v1/namespaces/{ns}/code-repos; POST /v1/namespaces/{ns}/code-repos
        POST /v1/namespaces/{ns}/code-archives
        POST /v1/producer/submit; POST /v1/producer/submit/delayed; POST /v1/producer/await
        GET /v1/producer/invocations/{id}/result/stream
        POST /v1/producer/invocations/{id}/cancel; POST /v1/producer/invocations/{id}/trim
        GET /v1/producer/queues; GET /v1/producer/queues/{name}/count
        POST /v1/producer/queues/{queue}/topics/{name}; GET /v1/producer/queues/{queue}/topics/{name}/stream
    """,
    "workers": """
        POST /v1/daemon/hello; POST /v1/daemon/poll; POST /v1/daemon/ack; POST /v1/daemon/result-chunk
        POST /v1/daemon/log-chunk; POST /v1/daemon/event
        POST /v1/daemon/exec/{id}/result; POST /v1/daemon/exec/{id}/chunk; POST /v1/daemon/exec/results
        POST /v1/namespaces/{ns}/workers/{worker}/exec/{id}/result; POST /v1/namespaces/{ns}/jobs/{id}/result
        GET /v1/namespaces/{ns}/code-archives/{key...}
    """,
    "every token": """
        GET /v1/namespaces/{ns}/whoami; POST /v1/namespaces/{ns}/payloads/presign; POST /v1/namespaces/{ns}/payloads
        GET /v1/admin/nymph-releases/{ref}; POST /v1/namespaces/{ns}/storages/{name}/presign
    """,
}
WHO: dict[str, str] = {
    route.strip(): who for who, routes in STATED.items() for line in routes.splitlines() for route in line.split(";")
}
WHO.pop("", None)
MAY = {
    "the operator": {"admin"},
    "full": {"admin", "full", "full of a sibling"},
    "producers": {"admin", "full", "submit", "full of a sibling", "submit of a sibling"},
    "workers": {"admin", "full", "worker", "daemon", "full of a sibling"},
    "every token": {"admin", "full", "submit", "worker", "daemon", "full of a sibling", "submit of a sibling"},
}
IDENTITIES = (
    *("nobody", "unknown", "no bearer at all", "admin", "full", "submit", "worker", "daemon"),
    *("revoked", "of a deleted namespace", "full of a stranger"),
    *("full of a sibling", "submit of a sibling", "worker of a sibling", "daemon of a sibling"),
)
UNKNOWN = {"unknown", "of a deleted namespace"}


def named(row: Row) -> str:
    return f"{row.method} {row.pattern}"


def namespace(server: Served, org: str | None = None) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    return name


def minted(server: Served, ns: str, scope: str = "full") -> dict[str, Any]:
    body = {"name": f"t-{new_id()}", "scope": scope}
    row: dict[str, Any] = server.post(f"/v1/namespaces/{ns}/tokens", body, encoding=JSON).body
    return row


@pytest.fixture(scope="session")
def identities(secured_server: Served) -> tuple[str, dict[str, str]]:
    """A namespace, and an Authorization header of each kind of caller of it."""
    server, org = secured_server, f"org-{new_id()}"
    ns, sibling, stranger, gone = namespace(server, org), namespace(server, org), namespace(server), namespace(server)
    tokens = {scope: minted(server, ns, scope)["plaintext"] for scope in ("full", "submit", "worker", "daemon")}
    tokens |= {
        f"{scope} of a sibling": minted(server, sibling, scope)["plaintext"]
        for scope in ("full", "submit", "worker", "daemon")
    }
    tokens |= {
        "admin": ADMIN,
        "unknown": "dlk_" + "x" * 43,
        "full of a stranger": minted(server, stranger)["plaintext"],
    }
    tokens["of a deleted namespace"] = minted(server, gone)["plaintext"]
    assert server.call("DELETE", f"/v1/admin/namespaces/{gone}").status == 200
    revoked = minted(server, ns)
    tokens["revoked"] = revoked["plaintext"]
    assert server.call("DELETE", f"/v1/namespaces/{ns}/tokens/{revoked['id']}").status == 200
    headers = {who: f"Bearer {token}" for who, token in tokens.items()}
    return ns, headers | {"nobody": "", "no bearer at all": "Basic b3BlbjpzZXNhbWU="}


def status(server: Served, row: Row, ns: str, authorization: str) -> tuple[int, bytes]:
    """Call a route about nothing that exists, in the namespace; the status and, of a refusal, the body."""
    path = row.pattern.replace("{key...}", "payloads/none")
    for name, value in (
        ("ns", ns),
        ("slug", "none-such"),
        ("id", "none"),
        ("queue", "q"),
        ("name", "q"),
        ("key_id", "k"),
        ("ref", "r"),
    ):
        path = path.replace(f"{{{name}}}", value)
    headers = {"X-LS-Namespace": ns, "Accept": JSON}
    if authorization:
        headers["Authorization"] = authorization
    body = None
    if row.method in ("POST", "PATCH", "PUT"):
        headers["Content-Type"], body = JSON, b"{}"
    with contextlib.closing(server.connection()) as connection:
        connection.request(row.method, f"{path}?timeout_s=0", body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read() if answer.status >= 400 else b""  # a stream has no end


def test_every_route_of_the_table_is_stated_here() -> None:
    assert sorted(WHO) == sorted(map(named, TABLE))


@pytest.mark.inventory("S-026", "S-028", "S-041")
@pytest.mark.parametrize("who", IDENTITIES)
@pytest.mark.parametrize("row", TABLE, ids=named)
@pytest.mark.inventory("S-029", "S-030", "S-271")
@pytest.mark.inventory("S-756")
def test_who_may_call_a_route(
    secured_server: Served, identities: tuple[str, dict[str, str]], row: Row, who: str
) -> None:
    ns, headers = identities
    asks = WHO[named(row)]
    asks_the_operator = asks == "the operator" and row.pattern.startswith("/v1/admin/")
    got, body = status(secured_server, row, ns, headers[who])
    if asks == "anyone":
        expected: int | str = 200
    elif asks == "its signature":
        expected = 403
    elif asks == "a daemon's signature":
        expected = 401
    elif who in MAY[asks]:
        expected = "allowed"
    elif who in ("nobody", "no bearer at all"):
        expected = 403 if who != "nobody" and asks_the_operator else 401
    elif who in UNKNOWN:
        expected = 403 if asks_the_operator else 401
    else:
        expected = 403
    if expected == "allowed":
        assert got not in (401, 403), body
        assert got < 500
    else:
        assert got == expected, body
        assert asks in ("anyone", "its signature") or (b'"hint"' in body and b'"error"' in body), body


# --- two namespaces


class Tenant:
    """One namespace with a token, and what it has: a queued, a running and an ended job, a topic, a payload."""

    def __init__(self, server: Served) -> None:
        self.server, self.ns = server, namespace(server)
        self.row = minted(server, self.ns)
        self.token = self.row["plaintext"]
        self.queue = f"q-{new_id()}"
        self.ended, self.claimed, self.queued = (self._submit() for _ in range(3))
        self.claim = self._take(self.ended)
        assert self.ack(self.ended, self.claim).body["result"] == "ok"
        self.claim = self._take(self.claimed)
        news = f"/v1/producer/queues/{self.queue}/topics/news"
        self.call("POST", news, {"bytes": b"\xa6theirs", "final": False})
        self.call("POST", news, {"bytes": b"", "final": True})
        put = {"op": "put", "size": 9, "jobId": self.queued, "kind": "args"}
        put = self.call("POST", f"/v1/namespaces/{self.ns}/payloads/presign", put).body
        assert server.raw("PUT", put["url"].removeprefix(server.url), b"123456789").status == 201
        self.key = put["key"]

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self.server.call(method, path, body, token=self.token, **more)

    def ack(self, id_: str, claim: int) -> Any:
        body = {"invocation_id": id_, "claim": claim, "state": "succeeded", "result_blob": b"\xa6secret"}
        return self.call("POST", "/v1/daemon/ack", body)

    def own(self, path: str) -> str:
        return f"/v1/namespaces/{self.ns}/{path}"

    def states(self) -> dict[str, str]:
        rows = self.call("GET", self.own("invocations")).body["invocations"]
        return {row["id"]: row["state"] for row in rows}

    def _submit(self) -> str:
        call = one(queue=self.queue)
        assert self.call("POST", "/v1/producer/submit", call).status == 200
        return str(call["invocation_id"])

    def _take(self, id_: str) -> int:
        self.worker = f"w-{new_id()}"
        body = {"worker_id": self.worker, "queue": self.queue, "session": new_id(), "n": 1, "timeout_s": 0}
        (command,) = self.call("POST", "/v1/daemon/poll", body).body["commands"]
        assert command["body"]["invocation_id"] == id_
        return int(command["body"]["claim"])


@pytest.fixture
def tenants(secured_server: Served) -> tuple[Tenant, Tenant]:
    return Tenant(secured_server), Tenant(secured_server)


def not_found(answer: Any) -> bool:
    return bool(answer.status == 404)


def unknown_await(answer: Any) -> bool:
    return bool(answer.status == 404 or (answer.status == 200 and answer.body.get("state") == "unknown"))


ATTEMPTS: dict[str, tuple[Callable[[Tenant, Tenant], Any], Callable[[Any], bool]]] = {
    "see a row": (lambda me, it: me.call("GET", me.own(f"invocations/{it.ended}")), not_found),
    "kill a queued one": (lambda me, it: me.call("DELETE", me.own(f"invocations/{it.queued}")), not_found),
    "kill a running one": (lambda me, it: me.call("DELETE", me.own(f"invocations/{it.claimed}")), not_found),
    "retry": (lambda me, it: me.call("POST", me.own(f"invocations/{it.ended}/retry"), {}), not_found),
    "kill everything": (
        lambda me, it: me.call("POST", me.own(f"invocations/bulk-cancel?queue={it.queue}"), {}),
        lambda answer: answer.body == {"cancelled": 0},
    ),
    "forget everything": (
        lambda me, it: me.call("POST", me.own("invocations/prune"), {"olderThanHours": 0, "queue": it.queue}),
        lambda answer: answer.body["count"] == 0,
    ),
    "list a queue": (
        lambda me, it: me.call("GET", me.own(f"invocations?queue={it.queue}")),
        lambda answer: answer.body["count"] == 0,
    ),
    "list a worker": (
        lambda me, it: me.call("GET", me.own(f"invocations?worker={it.worker}")),
        lambda answer: answer.body["count"] == 0,
    ),
    "list tokens": (
        lambda me, it: me.call("GET", me.own("tokens")),
        lambda answer: [row["prefix"] for row in answer.body["tokens"]] and answer.status == 200,
    ),
    "revoke a token": (lambda me, it: me.call("DELETE", me.own(f"tokens/{it.row['id']}")), not_found),
    "name the other namespace": (lambda me, it: me.call("GET", it.own("whoami")), lambda answer: answer.status == 403),
    "name one that does not exist": (
        lambda me, it: me.call("GET", "/v1/namespaces/no-such-namespace/whoami"),
        lambda answer: answer.status == 403,
    ),
    "name the other one in the head": (
        lambda me, it: me.call("GET", "/v1/producer/queues", X_LS_Namespace=it.ns),
        lambda answer: answer.status == 403,
    ),
    "see queues": (
        lambda me, it: me.call("GET", "/v1/producer/queues"),
        lambda answer: {row["name"][:1] for row in answer.body["queues"]} <= {"q", "d"} and answer.status == 200,
    ),
    "count": (
        lambda me, it: me.call("GET", f"/v1/producer/queues/{it.queue}/count"),
        lambda answer: answer.body["count"] == 0,
    ),
    "wait for a result": (
        lambda me, it: me.call("POST", "/v1/producer/await", {"invocation_id": it.ended, "timeout_s": 0}),
        unknown_await,
    ),
    "read a stream": (lambda me, it: me.call("GET", f"/v1/producer/invocations/{it.ended}/result/stream"), not_found),
    "cancel": (lambda me, it: me.call("POST", f"/v1/producer/invocations/{it.queued}/cancel", {}), not_found),
    "trim": (lambda me, it: me.call("POST", f"/v1/producer/invocations/{it.claimed}/trim", {"before": 9}), not_found),
    "poll its queue as its worker": (
        lambda me, it: me.call(
            "POST",
            "/v1/daemon/poll",
            {"worker_id": it.worker, "queue": it.queue, "session": new_id(), "n": 1, "timeout_s": 0},
        ),
        lambda answer: answer.status == 200 and not answer.body["commands"],
    ),
    "end what it runs": (
        lambda me, it: me.ack(it.claimed, it.claim),
        lambda answer: answer.body["result"] == "stale" and answer.body["state"] is None,
    ),
    "add frames to what it runs": (
        lambda me, it: me.call(
            "POST",
            "/v1/daemon/result-chunk",
            {"invocation_id": it.claimed, "claim": it.claim, "seq": 0, "bytes": b"\x01"},
        ),
        lambda answer: answer.status in (404, 409, 422),
    ),
    "read a payload": (
        lambda me, it: me.call("POST", me.own("payloads/presign"), {"op": "get", "key": it.key}),
        lambda answer: answer.status in (403, 404),
    ),
    "submit a payload of the other": (
        lambda me, it: me.call(
            "POST",
            "/v1/producer/submit",
            {"invocation_id": new_id(), "queue": "q", "args_ref": {"key": it.key, "size": 9, "sha256": "0" * 64}},
        ),
        lambda answer: answer.status in (403, 404, 422),
    ),
    "take an id": (
        lambda me, it: me.call("POST", "/v1/producer/submit", one(invocation_id=it.ended)),
        lambda answer: answer.status == 409 and answer.body["error"] == "conflict",
    ),
    "be its parent": (
        lambda me, it: me.call("POST", "/v1/producer/submit", one(parent_invocation_id=it.ended)),
        lambda answer: answer.status == 200,
    ),
}


@pytest.mark.inventory("S-037", "S-043", "S-548")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_namespace_cannot_see_nor_disturb_another_though_it_knows_every_id(
    tenants: tuple[Tenant, Tenant], attempt: str
) -> None:
    me, it = tenants
    before = it.states()
    assert before == {it.ended: "succeeded", it.claimed: "running", it.queued: "queued"}
    do, judge = ATTEMPTS[attempt]
    answer = do(me, it)
    assert judge(answer), (answer.status, answer.raw)
    for told in (it.queue, it.worker, it.row["name"], it.row["prefix"], "secret"):
        assert told.encode() not in answer.raw, answer.raw
    assert it.states() == before
    assert it.call("GET", it.own("whoami")).status == 200
    assert it.ack(it.claimed, it.claim).body["result"] == "ok", "its worker is not disturbed"


def test_a_submit_onto_an_id_of_another_namespace_is_told_no_more_than_one_onto_an_id_of_its_own(
    tenants: tuple[Tenant, Tenant],
) -> None:
    """That the id is taken is told: ids are unique on a server (K-16). Whose it is, and what it is, is not."""
    me, it = tenants
    told = [me.call("POST", "/v1/producer/submit", one(invocation_id=id_)).body for id_ in (me.ended, it.ended)]
    assert [str(body).replace(id_, "") for body, id_ in zip(told, (me.ended, it.ended), strict=True)].count(
        str(told[0]).replace(me.ended, "")
    ) == 2


def test_topics_of_the_same_name_are_two(tenants: tuple[Tenant, Tenant]) -> None:
    me, it = tenants
    path = f"/v1/producer/queues/{it.queue}/topics/news"
    assert me.call("POST", path, {"bytes": b"\xa4mine", "final": False}).status == 200
    assert me.call("POST", path, {"bytes": b"", "final": True}).status == 200
    streams = [tenant.call("GET", f"{path}/stream?since=-1").raw for tenant in (me, it)]
    assert [(b"mine" in stream, b"theirs" in stream) for stream in streams] == [(True, False), (False, True)]


def test_a_namespace_that_is_made_again_has_nothing_of_the_one_before(secured_server: Served) -> None:
    it = Tenant(secured_server)
    topic = f"/v1/producer/queues/{it.queue}/topics/news"
    first = it.call("POST", f"{topic}-2", {"bytes": b"\x05", "final": False}).body["seq"]
    secured_server.post(f"/v1/namespaces/{it.ns}/invocations/bulk-cancel", {})
    assert secured_server.call("DELETE", f"/v1/admin/namespaces/{it.ns}").status == 409, "one still runs"
    assert it.ack(it.claimed, it.claim).status == 200
    assert secured_server.call("DELETE", f"/v1/admin/namespaces/{it.ns}").body == {
        "name": it.ns,
        "deleted": True,
        "forgotten": 3,
    }
    assert it.call("GET", it.own("whoami")).status == 401
    assert secured_server.post("/v1/admin/namespaces", {"name": it.ns}, encoding=JSON).status == 201
    assert it.call("GET", it.own("whoami")).status == 401, "its token does not come back"
    it.token = minted(secured_server, it.ns)["plaintext"]
    assert it.states() == {}
    queues = it.call("GET", "/v1/producer/queues").body["queues"]
    assert [row["name"] for row in queues] == ["default"]
    assert it.call("POST", topic, {"bytes": b"\x05", "final": False}).body["seq"] == first, "and its topics are new"
    assert not_found(it.call("GET", it.own(f"invocations/{it.ended}")))
    assert it.call("POST", "/v1/producer/submit", one(queue=it.queue)).status == 200, "and it works"


# --- what is under way when a token ends


@pytest.mark.inventory("S-036")
def test_a_poll_that_waits_is_given_no_job_by_a_token_that_was_revoked_meanwhile(secured_server: Served) -> None:
    ns = namespace(secured_server)
    row, queue = minted(secured_server, ns, "worker"), f"q-{new_id()}"
    body = {"worker_id": "w", "queue": queue, "session": new_id(), "n": 1, "timeout_s": 60}
    answers: list[Any] = []

    def poll() -> None:
        answers.append(secured_server.post("/v1/daemon/poll", body, token=row["plaintext"]))

    waiting = threading.Thread(target=poll)
    before = time.monotonic()
    waiting.start()
    while b"lakeshore_parked_polls 0" in secured_server.get("/metrics").raw:
        assert time.monotonic() - before < 30
    assert secured_server.call("DELETE", f"/v1/namespaces/{ns}/tokens/{row['id']}").status == 200
    call = one(queue=queue)
    assert secured_server.post("/v1/producer/submit", call, X_LS_Namespace=ns).status == 200
    waiting.join(60)
    assert time.monotonic() - before < 50
    assert answers[0].body["commands"] == []
    assert secured_server.get(f"/v1/namespaces/{ns}/invocations/{call['invocation_id']}").body["state"] == "queued"


@pytest.mark.inventory("S-036")
def test_a_stream_breaks_off_before_the_next_piece_once_its_token_is_revoked(secured_server: Served) -> None:
    ns = namespace(secured_server)
    row, queue = minted(secured_server, ns, "submit"), f"q-{new_id()}"
    path = f"/v1/producer/queues/{queue}/topics/news"

    def post(text: bytes) -> None:
        posted = {"bytes": bytes((0xA0 | len(text),)) + text, "final": False}
        assert secured_server.post(path, posted, X_LS_Namespace=ns).status == 200

    post(b"before")
    with contextlib.closing(secured_server.connection()) as connection:
        connection.request("GET", f"{path}/stream?since=-1", headers={"Authorization": f"Bearer {row['plaintext']}"})
        answer = connection.getresponse()
        assert b"before" in answer.read1()
        assert secured_server.call("DELETE", f"/v1/namespaces/{ns}/tokens/{row['id']}").status == 200
        post(b"after")
        with contextlib.suppress(http.client.IncompleteRead):
            assert answer.read() == b""
