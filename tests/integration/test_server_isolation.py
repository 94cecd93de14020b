"""Two namespaces cannot see, guess or disturb each other.

Every route, every place in it where something may be named, filled with what another namespace has: by a stranger, by
a sibling of its org, by tokens that are over, and by its own smaller ones. Each request is made twice, also with what
nobody has, and answered alike. Whatever was asked, the other one's whole state is as it was, byte for byte.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from foreign_cases import BODIES, Place, named, places_of, request, unplaced
from served import ADMIN, MSGPACK, Answer, Served, new_id, running
from signer import Signer, text
from two_worlds import Line, World, b64

from lakeshore.server.auth import PRODUCE
from lakeshore.server.routes.table import TABLE, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: a token, its scope, and whose things it has to name beside the foreign ones."""

    name: str
    token: str
    scope: str
    world: World
    is_over: bool = False


class Stage:
    """The namespace that is attacked, two that attack, and what nobody has."""

    def __init__(self, server: Served) -> None:
        self.server, self.line = server, Line(server)
        org = f"org-{new_id()}"
        self.it = it = World(server, self.line, org)
        self.sibling, self.stranger = World(server, self.line, org), World(server, self.line)
        # Who asks, and who asks in ways that make something of its own under the same name.
        self.writers = {
            self.sibling.ns: World(server, self.line, org),
            self.stranger.ns: World(server, self.line),
        }
        self.callers = [
            *self._of("stranger", self.stranger),
            *self._of("sibling", self.sibling),
            *(caller for caller in self._of("its own", it) if caller.scope != "full"),
            Caller(name="revoked", token=self._revoked(), scope="full", world=it, is_over=True),
            Caller(name="expired", token=self._expired(), scope="full", world=it, is_over=True),
        ]
        mark = f"z{secrets.token_hex(5)}"
        self.names = {kind: another(kind, value, it.mark, mark) for kind, value in it.has.items()}
        self.sent: dict[str, set[str]] = {}
        self.canaries = it.canaries()
        self.left_s = it.lease_left_s()
        self.before = {**it.state(), **self._over()}

    def _of(self, name: str, world: World) -> Iterator[Caller]:
        for scope, token in world.tokens.items():
            yield Caller(name=f"{name}, {scope}", token=token, scope=scope, world=world)

    def _revoked(self) -> str:
        token = self.it.minted("revoked", "full")
        self.it.made("DELETE", self.it.own(f"tokens/{self.it.last_token['id']}"), token=ADMIN)
        return token

    def _expired(self) -> str:
        token = self.it.minted("expired", "full", ttl_s=0.05)
        until = time.monotonic() + 60
        while self.line("GET", self.it.own("whoami"), token=token).status != 403:
            assert time.monotonic() < until
        return token

    def _over(self) -> dict[str, str]:
        """When tokens that are over were used last."""
        tokens = self.it.made("GET", self.it.own("tokens"))["tokens"]
        return {one["name"]: str(one["lastUsedAt"]) for one in tokens if one["name"].endswith(("-revoked", "-expired"))}

    def changes(self) -> list[str]:
        """What is not as it was: from where on."""
        told = []
        for path, after in {**self.it.state(), **self._over()}.items():
            before = self.before[path]
            if after != before:
                at = next((n for n, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1), 0)
                told.append(
                    f"{path}: {before[max(at - 60, 0) : at + 60]!r} is now {after[max(at - 60, 0) : at + 60]!r}"
                )
        left_s, before_s = self.it.lease_left_s(), self.left_s
        self.left_s = left_s
        return told if left_s <= before_s else [*told, "its lease was renewed"]

    def nobody(self) -> dict[str, Any]:
        """As what it has, of the same shapes, and of nobody. The names stay: who has taken one has taken the other.

        Ids of calls are new: of these a request makes one.
        """
        return {**self.names, **{kind: new_id() for kind in CALLS}}


CALLS = ("invocation", "ended", "queued")
HEX = re.compile(r"[0-9a-f]{16,64}")


def another(kind: str, value: Any, mark: str, other: str) -> Any:
    if kind == "public key":
        return text(secrets.token_bytes(32))
    if not isinstance(value, str):
        return value
    return HEX.sub(lambda found: secrets.token_hex(32)[: len(found[0])], value.replace(mark, other))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN}
    with running(tmp_path_factory.mktemp("isolation"), "--lease-s", "3600", env=env, token=ADMIN) as server:
        made = Stage(server)
        yield made
        made.line.close()


# --- what comes of it


BY_NAME = {"GET /v1/producer/queues/{name}/count"} | {
    f"{method} /v1/producer/queues/{{queue}}/topics/{{name}}{rest}"
    for method, rest in (("POST", ""), ("GET", "/stream"))
}
"""A name is each namespace's own: whoever says it means its own, which is empty, or made by that."""
OK = frozenset({200, 201, 202})
MATRIX: dict[str, frozenset[int]] = {
    "over": frozenset({403}),
    "the operator's": frozenset({403}),
    "another scope's": frozenset({403}),
    "in another namespace": frozenset({403}),
    "signed for": frozenset({403}),
    "a daemon's key": frozenset({401}),
    "in the path": frozenset({404}),
    "in the path, by name": frozenset({200}),
    "in the query": frozenset({200}),
    "a payload": frozenset({403}),
    "what must exist": frozenset({404, 422}),
    "a claim": frozenset({200, 404, 409}),
    "a name of one's own": OK,
}
"""What is answered by what is asked. A refusal is never told from what is not there; `same` holds it to that."""
MUST_EXIST = {"secret", "tunnel", "storage", "exec"}
CLAIMS = ("ack", "acks", "result-chunk", "log-chunk", "poll")


def expected(row: Row, place: Place) -> frozenset[int]:
    """Of who may call the route, in a namespace of its own."""
    if row.tier == "signed":
        return MATRIX["signed for"]
    if row.pattern == "/v1/daemon/keys":
        return MATRIX["a daemon's key"]
    if place.where == "path":
        if place.kind == "instance":
            return MATRIX["what must exist"]  # the provider is its own, and has no such instance
        return MATRIX["in the path, by name" if named(row) in BY_NAME else "in the path"]
    if place.where == "query":
        return MATRIX["in the query"]
    if place.kind == "payload":
        return MATRIX["a payload"]
    refers = row.pattern.endswith("/exec") and place.kind in ("worker", "queue")
    refers |= row.pattern.endswith("/daemons/launch")  # even its own provider launches nothing: it is an SSH host
    subscribes = row.pattern.endswith("/workers/{id}/queues") and place.field == "add"
    if (place.kind in MUST_EXIST and place.field != "name") or refers or subscribes:
        return MATRIX["what must exist"]
    if place.field.endswith("retry") or row.pattern.endswith("/retry"):
        return frozenset({409})  # its own call has succeeded
    if row.pattern.startswith("/v1/daemon/") and row.pattern.rpartition("/")[2] in CLAIMS:
        return MATRIX["a claim"]
    if is_id_of_a_submit(row, place):
        return frozenset({200, 409})
    return MATRIX["a name of one's own"]


def is_id_of_a_submit(row: Row, place: Place) -> bool:
    """The one thing that is told: ids of calls are unique on a server, so one that is taken cannot be taken (K-16)."""
    return "/producer/submit" in row.pattern and place.field.rpartition(".")[2] == "invocation_id"


def makes(row: Row, place: Place) -> bool:
    """Whether the name may be its caller's own afterwards."""
    if place.where == "query":  # an archive's body is the archive
        return row.method == "POST" and row.pattern.endswith("/code-archives")
    if place.where != "body" or (place.kind in MUST_EXIST and place.field != "name"):
        return False
    told = row.pattern.startswith(("/v1/producer/submit", "/v1/daemon/"))
    return told or place.field == "name" or row.pattern.endswith(("/code-repos", "/topics/{name}"))


def status_of(answer: Answer) -> int:
    """Of the one thing that was asked: of a batch, its item's."""
    if answer.status == 200 and answer.headers.get("content-type", "").startswith("application/json"):
        body = answer.body
        for items in (body.get("results"), body.get("chunks"), body.get("acks")):
            if items:
                item = items[0].get("refused", items[0])
                found = int(item.get("status", answer.status)) if type(item.get("status", 0)) is int else answer.status
                return 403 if item.get("result") == "refused" else found
    return answer.status


VOLATILE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{16,64}|\b01[0-9A-Z]{24}\b|\b\d{10}\.\d+|\"(?:cursor|revision)\":\d+"
)
"""Times, numbers of changes, and ids that are made for an answer."""


def same(answer: Answer, taken: list[str]) -> str:
    """An answer without what its request named."""
    packed = answer.headers.get("content-type", "").split(";")[0] == MSGPACK
    text_ = json.dumps(answer.body, default=str) if packed else answer.raw.decode("latin-1")
    for value in sorted(taken, key=len, reverse=True):
        text_ = text_.replace(value, "·")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    kept = {name: headers.get(name) for name in ("etag", "x-ls-offset", "content-type", "allow", "retry-after")}
    return f"{status_of(answer)} {kept} {VOLATILE.sub('?', text_)}"


# --- the storm


def storm(stage: Stage, row: Row) -> Iterator[str]:
    """What is wrong with the answers of a route."""
    places = places_of(row)
    every = [[place] for place in places] + ([places] if len(places) != 1 else [])
    for caller in stage.callers if row.tier != "open" else stage.callers[:1]:
        abroad = caller.world is not stage.it
        for asked in every if abroad and may(row, caller) else every[-1:]:
            yield from attempt(stage, row, caller, asked, abroad=False)
        if abroad:
            yield from attempt(stage, row, caller, every[-1], abroad=True)


def may(row: Row, caller: Caller) -> bool:
    return not row.is_admin and row.tier != "open" and caller.scope in row.scopes and not caller.is_over


def attempt(stage: Stage, row: Row, caller: Caller, asked: list[Place], *, abroad: bool) -> Iterator[str]:
    """Once with what another has, and once with what nobody has."""
    at_home = caller.world is stage.it
    wanted = statuses_of(stage, row, caller, asked, abroad=abroad or at_home)
    if wanted is None:
        return
    is_making = any(makes(row, place) for place in asked) and not any(place.where == "path" for place in asked)
    world = stage.writers.get(caller.world.ns, caller.world) if is_making else caller.world
    token = world.tokens[caller.scope] if not at_home else caller.token
    ns = stage.it.ns if abroad or at_home else world.ns
    said = []
    for other in (stage.it.has, stage.nobody()):
        path, body, taken = request(row, world.has, other, asked, ns)
        header = ns if row.tier == "plain" and (abroad or at_home) else None
        answer = stage.line(row.method, path, body, token=token, ns=header, raw=isinstance(body, bytes))
        who = f"{caller.name}, {'abroad' if abroad else 'at home'}: {', '.join(map(str, asked))}"
        if status_of(answer) not in wanted:
            yield f"{who}: {status_of(answer)}, not {sorted(wanted)}: {answer.raw!r:.300}"
        told = stage.sent.setdefault(world.ns, set())
        if answer.status < 300 and any(place.where == "body" for place in asked):
            told.update(taken)
        if at_home:
            continue
        shown = answer.raw.decode("latin-1") + " ".join(answer.headers.values())
        for value in sorted({*taken, *told, *([ns] if abroad else [])}, key=len, reverse=True):
            shown = shown.replace(value, "")
        shared = caller.world is stage.sibling and (named(row) in SHARED or any(p.kind == "provider" for p in asked))
        leaked = [
            canary for canary in ([f"{stage.it.mark} plaintext"] if shared else stage.canaries) if canary in shown
        ]
        if leaked:
            yield f"{who}: it was told {leaked}: {answer.raw!r:.500}"
        said.append(same(answer, taken))
        if shared or any(is_id_of_a_submit(row, place) for place in asked):
            said.clear()
    is_comparable = not any(place.field == "cursor" for place in asked)  # it is a place in an order
    is_comparable &= not is_making or row.pattern.startswith(("/v1/producer/", "/v1/daemon/"))
    if len(said) == 2 and is_comparable and said[0] != said[1]:
        yield f"{who}: what is another's is not answered as what is nobody's:\n    {said[0]:.400}\n    {said[1]:.400}"


SHARED = {"GET /v1/namespaces/{ns}/providers", "GET /v1/namespaces/{ns}/queues"}
"""Namespaces of one org see each other's providers and queues, but no secret (S-540, S-541)."""


def statuses_of(stage: Stage, row: Row, caller: Caller, asked: list[Place], *, abroad: bool) -> frozenset[int] | None:
    """What may be answered; None for what is the caller's right."""
    if row.tier == "open":
        return OK
    if row.tier == "signed":
        return MATRIX["signed for"]
    if caller.is_over:
        return MATRIX["over"] | (MATRIX["a daemon's key"] if row.pattern == "/v1/daemon/keys" else frozenset())
    if row.pattern == "/v1/daemon/keys":
        return MATRIX["a daemon's key"]
    if row.is_admin:
        return MATRIX["the operator's"]
    if caller.scope not in row.scopes:
        return MATRIX["another scope's"]
    if abroad:
        if caller.world is stage.it or (caller.world is stage.sibling and caller.scope in PRODUCE):
            return None
        return MATRIX["in another namespace"]
    found = [expected(row, place) for place in asked]
    paths = [one for one, place in zip(found, asked, strict=True) if place.where == "path"]
    wanted = frozenset().union(*(paths or found)) if asked else OK | {501}
    if len(asked) > 1:  # the body may be read before the path is looked up
        wanted |= {status for one in found for status in one if status >= 400} | {404, 409, 422}
    if caller.scope == "daemon":
        wanted |= {403}  # it is bound to one worker
    if caller.world is stage.sibling and any(place.kind == "provider" and place.field == "name" for place in asked):
        wanted |= {409}  # names of providers are the org's
    return wanted


def test_every_field_that_may_name_something_is_placed() -> None:
    assert unplaced() == []


@pytest.mark.inventory("S-037", "S-043", "S-548")
@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_route_shows_guesses_and_disturbs_nothing_of_another_namespace(stage: Stage, row: Row) -> None:
    assert list(storm(stage, row)) == []
    if row.method != "GET":
        assert stage.changes() == []


SIGNED: dict[str, tuple[str, str]] = {
    "X-LS-Namespace": ("X_LS_Namespace", "ns"),
    "X-LS-Worker-Id": ("X_LS_Worker_Id", "signing worker"),
    "X-LS-Worker-Id, of who has no key": ("X_LS_Worker_Id", "worker"),
    "X-LS-Key-Id": ("X_LS_Key_Id", "daemon key"),
}
"""Headers of a daemon's signature, or beside it, and what they name."""


@pytest.mark.inventory("S-460")
@pytest.mark.parametrize("header", SIGNED)
@pytest.mark.parametrize("path", ["hello", "poll", "ack", "event", "log-chunk", "exec/results"])
def test_a_daemons_signature_is_good_for_its_own_namespace_alone(stage: Stage, header: str, path: str) -> None:
    name, kind = SIGNED[header]
    signer, route = stage.stranger.signer, f"POST /v1/daemon/{path}"
    said, refusals = [], []
    for has in (stage.it.has, stage.nobody()):
        body = signer.hello_body() if path == "hello" else {**BODIES[route](has), "worker_id": signer.worker_id}
        who = signer.machine_id if path == "hello" else None
        answer = signer.send(f"/v1/daemon/{path}", body, who=who, **{name: has[kind]})
        said.append(same(answer, [has[kind], *(has[call] for call in CALLS)]))
        assert stage.it.mark not in answer.raw.decode("latin-1").replace(str(has[kind]), ""), answer.raw
        refusals.append(answer.status in (401, 403) or "x-ls-reject" in answer.headers)
    assert said[0] == said[1]
    assert all(refusals) or path == "hello", said
    assert stage.changes() == []


@pytest.mark.parametrize("bearer", ["dle_none", "its own"])
def test_an_enroll_token_admits_to_its_own_namespace_alone(stage: Stage, bearer: str) -> None:
    said = []
    for has in (stage.it.has, stage.nobody()):
        signer = Signer(stage.server, label="fresh")
        signer.machine_id = has["machine"]
        token = stage.stranger.has["enroll bearer"] if bearer == "its own" else bearer
        answer = signer.hello(token, X_LS_Namespace=has["ns"])
        assert answer.headers["x-ls-reject"] == "invalid_enroll_token"
        said.append(same(answer, [has["ns"]]).replace(has["machine"], ""))
    assert said[0] == said[1]
    assert stage.changes() == []


# --- what is held


def held(me: World, it: World, call: str) -> list[tuple[str, str, Any]]:
    """Requests that wait for what happens at home, under the names that the other one has where they name something."""
    queue, topic, worker = it.has["queue"], it.has["topic"], it.has["worker"]
    number = me.made("GET", me.own("changes"))["cursor"]
    event = me.made("GET", me.own("events?limit=1"))["events"][0]["seq"]
    poll = {"worker_id": worker, "queue": queue, "session": it.has["session"], "n": 1, "timeout_s": 20}
    return [
        ("GET", me.own(f"changes?since={number}&hold_s=20&kinds=exec,modes,schedules"), None),
        ("GET", me.own(f"events?after={event}&hold_s=20"), None),
        ("GET", f"/v1/producer/queues/{queue}/topics/{topic}/stream?timeout_s=20", None),
        ("GET", me.own(f"exec/{me.has['exec']}?wait_s=20"), None),
        ("GET", me.own(f"exec/{me.has['exec']}/log?wait_s=20"), None),
        ("GET", me.own(f"invocations/{call}/logs?wait_s=20"), None),
        ("POST", "/v1/daemon/poll", poll),
        ("POST", "/v1/producer/await", {"invocation_id": call, "timeout_s": 20}),
        ("POST", "/v1/producer/await", {"watch": it.has["watch"], "add": [call], "timeout_s": 20}),
    ]


@pytest.mark.inventory("S-043", "S-075", "K-21")
def test_nothing_that_is_held_wakes_for_what_another_namespace_does(stage: Stage) -> None:
    it, me = World(stage.server, stage.line), World(stage.server, stage.line)
    call = me.submitted()
    asked = held(me, it, call)
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(contextlib.closing(Line(stage.server))) for _ in asked]
        for line, (method, path, body) in zip(lines, asked, strict=True):
            line.ask(method, path, body, token=me.tokens["full"])
        until = time.monotonic() + 60
        while b"lakeshore_parked_polls 0" in stage.line("GET", "/metrics", token=ADMIN).raw:
            assert time.monotonic() < until
        stir(it, it, it.has["queued"])
        assert [line.came() for line in lines] == [b""] * len(lines)
        stir(me, it, call)
        for line, (_, path, _) in zip(lines, asked, strict=True):
            came = line.came(within_s=15)
            assert came, path
            assert not [one for one in it.canaries()[1:] if one.encode() in came and one not in path], came


def stir(world: World, named_as: World, call: str) -> None:
    """Something of every kind happens in a namespace, some of it under the names that a world has."""
    claimed = {"invocation_id": world.has["invocation"], "claim": world.has["claim"]}
    world.made("POST", "/v1/daemon/log-chunk", {**claimed, "attempt": 1, "parts": [["stdout", 20, b64(world.mark)]]})
    world.made("POST", "/v1/daemon/ack", {**claimed, "state": "succeeded", "result_blob": b64(world.mark)})
    world.made("POST", f"/v1/daemon/exec/{world.has['exec']}/chunk", b"printed", raw=True)
    world.made("POST", f"/v1/daemon/exec/{world.has['exec']}/result", {"exit_code": 0})
    world.made("DELETE", world.own(f"invocations/{call}"))
    world.made("PATCH", world.own(f"modes/{world.has['mode']}"), {"timeout_s": 5})
    world.made("PATCH", world.own(f"queues/{world.has['queue']}"), {"description": "d"})
    queue = named_as.has["queue"]
    world.made("POST", "/v1/producer/submit", {"invocation_id": new_id(), "queue": queue, "args_blob": b64("x")})
    topic = f"/v1/producer/queues/{queue}/topics/{named_as.has['topic']}"
    if world is named_as:
        topic += "-2"  # the first one has ended
    world.made("POST", topic, {"bytes": b64(b"\x05"), "final": False})
