"""What workers call: hello, poll, ack. Shapes: `wire/messages`, "Worker"; rules: CONTRACT K-5…K-28."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgpack
import trio

from ...plane.contract import (
    INLINE_BYTES,
    KINDS,
    Claimed,
    Held,
    Loss,
    Poll,
    PollAnswer,
    Report,
    Settled,
    Superseded,
    Wish,
)
from ...plane.statements import SQL
from ...wire.errors import NameError_
from ...wire.messages import (
    ACK_STATES,
    DEFAULT_QUEUE,
    MAX_PREFETCH,
    POLL_TIMEOUT_S,
    PROTOCOL_VERSION,
    AckBatch,
    AckItem,
    HelloRequest,
    PollRequest,
    ProcessEnd,
)
from ...wire.names import check_invocation_id, check_subscription
from ..app import App
from ..auth import Caller
from ..execs import Seat
from ..http import HttpError, Request, Response
from ..identity import worker_id_of
from ..orders import Order
from ..payload_io import Outgoing
from ..refusals import as_result
from ..render import answer, plain
from ..structure import bad_field, read_map, structure
from .answers import AckAnswers, HelloAnswer
from .answers import PollAnswer as Polled
from .stated import route

_SESSION_TTL_S: Final = 86_400
_LONGEST_NAME: Final = 200
_DRAIN: Final = 410
_MOST_ITEMS: Final = 10_000
_REMOVED: Final = "this worker was removed"


# --- hello


@route(HelloAnswer, body=HelloRequest, refuses=(403, 422))
async def hello(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/hello. A refusal is a 200 with `reject` (S-393)."""
    body, encoding = await read_map(request)
    said = structure(body, HelloRequest, encoding)
    _check_name("machine_id", said.machine_id)
    if said.versions.protocol != PROTOCOL_VERSION:
        return _rejected(
            request,
            "protocol_mismatch",
            f"this server speaks protocol {PROTOCOL_VERSION}, the daemon {said.versions.protocol!r:.40}: "
            "upgrade the older one",
        )
    lanes = tuple(dict.fromkeys(check_subscription(lane, "lanes") for lane in said.lanes))
    worker_id = app.launching.worker_of(caller) or worker_id_of(caller.ns, said.machine_id, said.label)
    check_binding(caller, worker_id)
    if caller.token is not None and caller.token.worker == worker_id and app.workers.is_removed(caller.ns, worker_id):
        raise HttpError(403, _REMOVED, hint="its token went with it: install the daemon anew")
    info = {"capabilities": body["capabilities"], "versions": body["versions"], "tags": list(said.tags)}
    if said.adopted and said.session is None:
        raise bad_field("adopted", "needs a session")
    enrolled = await app.identity.enrol(
        request, caller, worker_id, machine_id=said.machine_id, public_key=said.public_key
    )
    if enrolled.reject is not None:
        return _rejected(request, enrolled.reject, enrolled.message)
    await _bind(app, caller, worker_id)
    told: dict[str, Any] = {"key_id": enrolled.key_id, "namespace": caller.ns}
    if said.session is not None:
        _check_name("session", said.session)
        try:
            lost = await app.dispatcher.hello(caller.ns, worker_id, said.session, said.adopted, None)
        except Superseded as error:
            return _rejected(request, "session_superseded", str(error))
        told["lost"] = [list(pair) for pair in lost]
    await app.records.put_worker(
        caller.ns,
        worker_id,
        machine_id=said.machine_id,
        label=said.label,
        lanes=lanes,
        info=json.dumps(plain(info), ensure_ascii=False),
        state=app.workers.first_state(caller.ns, worker_id),
    )
    # A peer without sessions says hello when it starts.
    await app.workers.greeted(caller.ns, worker_id, said.session or app.ids.new())
    return answer(request, {**_hello_body(app, worker_id), **told})


async def _bind(app: App, caller: Caller, worker_id: str) -> None:
    """The first hello with a token of scope daemon says which worker it is for. HttpError 403."""
    token = caller.token
    if token is not None and token.scope == "daemon" and token.worker is None:
        bound = await app.records.bind_token(token, worker_id)
        check_binding(replace(caller, worker=bound), worker_id)


def _hello_body(app: App, worker_id: str | None) -> dict[str, Any]:
    return {
        "worker_id": worker_id,
        "session_token": app.ids.new(),
        "session_ttl_s": _SESSION_TTL_S,
        "lease_s": app.dispatcher.leases.lease_s,
        "config": {},
        "cursor": None,
        "reject": None,
        "key_id": None,
        "key_rotation_max_age_s": int(app.identity.policy.max_age_s),
        "server_time_epoch_s": time.time(),
    }


def _rejected(request: Request, code: str, message: str) -> Response:
    body = {
        "worker_id": None,
        "session_token": None,
        "session_ttl_s": _SESSION_TTL_S,
        "config": {},
        "cursor": None,
        "reject": {"code": code, "message": message},
        "server_time_epoch_s": time.time(),
    }
    return answer(request, body, headers=(("x-ls-reject", code),))


# --- poll


@route(Polled, body=PollRequest, refuses=(403, 409, 422))
async def poll(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/poll: report, renew, ask."""
    body, encoding = await read_map(request)
    raw_acks = body.pop("acks", None) or []
    asked = structure(body, PollRequest, encoding)
    _check_name("worker_id", asked.worker_id)
    check_binding(caller, asked.worker_id)
    if caller.key is not None:
        await app.identity.reap(caller)
    timeout_s = min(max(asked.timeout_s, 0.0), POLL_TIMEOUT_S)
    acks = await _Acks.of(app, caller, raw_acks, encoding, "acks", worker=asked.worker_id)
    if asked.session is not None:
        _check_name("session", asked.session)
        if asked.n is None or asked.n < 1:
            raise bad_field("n", "must be an integer from 1, above the last poll's")
    await app.orders.acknowledge(caller.ns, asked.worker_id, asked.session or "", asked.seen)
    await _note(app, caller, asked, acks)
    if asked.session is None:
        return await _poll_foreign(app, request, caller, asked, acks, timeout_s)
    assert asked.n is not None, "checked above"
    # A refused ack leaves its pair where it was: held, by a worker that will say it again (K-8).
    listed = [*(Held(id=id_, claim=claim, started=started) for id_, claim, started in asked.held), *acks.still_held()]
    wanted = Poll(
        ns=caller.ns,
        worker=asked.worker_id,
        session=asked.session,
        n=asked.n,
        held=listed if caller.worker is None else [pair for pair in listed if not _is_anothers(app, caller, pair)],
        reports=acks.reports,
        wish=_wish(app, caller.ns, asked),
        loss=_loss(asked.ended),
    )
    news = _news(app, caller.ns, asked)
    seat = Seat(asked.session, _slots(asked))
    app.execs.sit(caller.ns, asked.worker_id, seat)
    try:
        done = await app.dispatcher.poll(
            wanted, timeout_s=0.0 if acks.refused else timeout_s, parker=request, news=news
        )
    finally:
        app.execs.leave(caller.ns, asked.worker_id, seat)
    orders = [] if done.fenced else await _orders(app, caller.ns, asked, len(done.runs))
    return await _poll_answer(app, request, caller, asked.worker_id, done, acks, orders)


def _is_anothers(app: App, caller: Caller, pair: Held) -> bool:
    """Whether the lease is of another worker than the one that the caller's credential is for."""
    lease = app.dispatcher.leases.holder(pair.id)
    return lease is not None and lease.claim == pair.claim and lease.worker != caller.worker


async def _note(app: App, caller: Caller, asked: PollRequest, acks: _Acks) -> None:
    """What a poll tells of its worker."""
    ns, worker = caller.ns, asked.worker_id
    # A command is in no list of a poll; whoever leaves says goodbye once it has told how the last one ended.
    runs_commands = app.execs.running_of(ns, worker) > 0
    # Who has a session lists what it holds; what it says in `invocations` besides may be a last word on its way out.
    listed = asked.invocations if asked.session is None else asked.held
    holds = bool(listed or acks.reports or acks.refused or runs_commands)
    signed = caller.key is not None
    app.workers.came(ns, worker, signed=signed)
    app.workers.tell(ns, worker, asked.invocations)
    if app.workers.polled(ns, worker, capacity=asked.capacity, draining=asked.draining, holds=holds, signed=signed):
        await app.workers.left(ns, worker)
    ends = asked.ended is not None or (asked.draining and not holds)  # its process is dead, or about to be
    if ends and not (asked.session and app.dispatcher.sessions.is_older(ns, worker, asked.session)):
        app.dispatcher.pollers.left(ns, worker)
    if asked.updated_capabilities and not await app.workers.learn(ns, worker, plain(asked.updated_capabilities)):
        raise bad_field("updated_capabilities", "make the worker's row too large", status=413)


def _loss(ended: ProcessEnd | None) -> Loss | None:
    if ended is None:
        return None
    for name in ("signal", "why"):
        if (said := getattr(ended, name)) is not None:
            _check_name(f"ended.{name}", said)
    told = Loss(code=ended.code, signal=ended.signal, oom=ended.oom)
    return told if ended.why is None else replace(told, why=ended.why)


async def _poll_foreign(
    app: App, request: Request, caller: Caller, asked: PollRequest, acks: _Acks, timeout_s: float
) -> Response:
    settled = await app.dispatcher.report_many(acks.reports) if acks.reports else []
    if app.workers.is_removed(caller.ns, asked.worker_id):
        raise HttpError(410, _REMOVED, hint="a new hello makes a new one")
    wish = _wish(app, caller.ns, asked)
    if asked.capacity < 1 or asked.draining:
        done = PollAnswer()
    else:
        listed = [status.invocation_id for status in asked.invocations]
        news = _news(app, caller.ns, asked)
        done = await app.dispatcher.poll_foreign(wish, listed=listed, timeout_s=timeout_s, parker=request, news=news)
    orders = await _orders(app, caller.ns, asked, len(done.runs))
    return await _poll_answer(app, request, caller, asked.worker_id, done, acks, orders, settled)


def _wish(app: App, ns: str, asked: PollRequest) -> Wish:
    kind = asked.kind or "fifo"
    if kind not in KINDS:
        raise bad_field("kind", f"must be one of {', '.join(KINDS)}")
    queue = check_subscription(asked.queue)
    known = app.records.worker(ns, asked.worker_id)
    lanes = () if known is None else known.subscriptions
    queues = (*lanes, queue) if queue != DEFAULT_QUEUE or not lanes else lanes
    foreign = asked.session is None
    if len(queues) > 1:
        queues = tuple(dict.fromkeys(queues))
    if asked.ended is None and not asked.draining:  # a last word is none of somebody who serves the queue
        app.dispatcher.pollers.heard(ns, asked.worker_id, queues, trio.current_time())
    return Wish(
        ns=ns,
        queues=queues,
        worker=asked.worker_id,
        session=asked.session or "",
        n=asked.n or 0,
        capacity=0 if app.workers.takes_no_work(ns, asked.worker_id) else _run_slots(app, ns, asked),
        kind=kind,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        draw=random.random(),  # noqa: S311 - it spreads the load, nothing is guarded by it
        start=foreign,
        offer=app.workers.offer(ns, asked.worker_id),
    )


def _slots(asked: PollRequest) -> int:
    """How much that needs a slot this poll may bring."""
    return 0 if asked.draining else 1 if asked.session is None else min(max(asked.capacity, 0), MAX_PREFETCH)


def _run_slots(app: App, ns: str, asked: PollRequest) -> int:
    """How many runs it may bring: commands of people go first, as they do in an answer (S-426)."""
    return max(_slots(asked) - app.execs.unsent_of(ns, asked.worker_id), 0)


def _news(app: App, ns: str, asked: PollRequest) -> Callable[[], bool]:
    """Whether there are orders for this poll, or it must be told to leave."""
    if app.workers.is_removed(ns, asked.worker_id):
        return lambda: True
    waiting = functools.partial(app.orders.waiting, ns, asked.worker_id, _slots(asked), draining=asked.draining)
    if app.workers.takes_no_work(ns, asked.worker_id):
        return waiting
    # Its wish is from before: once it is to get no more work it is not parked, but asks again.
    return lambda: waiting() or app.workers.takes_no_work(ns, asked.worker_id)


async def _orders(app: App, ns: str, asked: PollRequest, runs: int) -> list[Order]:
    free = max(_slots(asked) - runs, 0)
    if not app.orders.waiting(ns, asked.worker_id, free, draining=asked.draining):
        return []
    given = await app.orders.take(
        ns,
        asked.worker_id,
        n=asked.n or 0,
        session=asked.session or "",
        capacity=free,
        draining=asked.draining,
    )
    for order in given:
        if order.kind == "hibernate":
            app.workers.told_to_hibernate(ns, asked.worker_id, order.body["until_epoch_s"])
    return given


async def _poll_answer(
    app: App,
    request: Request,
    caller: Caller,
    worker: str,
    done: PollAnswer,
    acks: _Acks,
    orders: Sequence[Order],
    settled: Sequence[Settled] | None = None,
) -> Response:
    outgoing = Outgoing(app)
    commands: list[dict[str, Any]] = [
        {"id": f"{id_}.{claim}.cancel", "kind": "cancel", "body": {"invocation_id": id_, "claim": claim}}
        for id_, claim in done.cancel
    ]
    given = [{"id": order.id, "kind": order.kind, "body": order.body} for order in orders]
    commands += [command for command in given if command["kind"] != "hibernate"]
    if caller.key is not None and (directive := app.identity.directive(caller)) is not None:
        commands.append(directive)
    commands += [
        {"id": f"{run.id}.{run.claim}", "kind": "run", "body": await _run_body(outgoing, run)} for run in done.runs
    ]
    commands += [command for command in given if command["kind"] == "hibernate"]
    told: dict[str, Any] = {
        "commands": commands,
        "acks": acks.answers(done.settled if settled is None else settled),
        "lost": [list(pair) for pair in done.lost],
        "lease_s": app.lease_s,
    }
    if done.fenced:
        told["status"] = _DRAIN
    elif app.workers.is_removed(caller.ns, worker):
        told["status"], told["reason"] = _DRAIN, _REMOVED
    namespace = app.records.namespace(caller.ns)
    if namespace is not None and namespace.target_version is not None:
        told["target_nymph_version"] = namespace.target_version
    return answer(request, told)


async def _run_body(outgoing: Outgoing, run: Claimed) -> dict[str, Any]:
    body: dict[str, Any] = {
        "invocation_id": run.id,
        "claim": run.claim,
        "attempt": run.attempt,
        "first_seq": run.first_seq,
        "queue": run.queue,
        "function": _opened(run.function) or None,
        "run_config": _opened(run.run_config),
        "root_invocation_id": run.root,
    }
    if run.parent is not None:
        body["parent_invocation_id"] = run.parent
    if run.prefix is not None:
        body["prefix"] = run.prefix
    await outgoing.put(body, run.args, inline="args_blob", reference="payload_ref")
    return body


@functools.lru_cache(maxsize=1024)
def _opened(packed: bytes) -> Any:
    """A stored map; never changed by whoever gets it, for many calls share one."""
    return msgpack.unpackb(packed, strict_map_key=False)


# --- ack


class _Acks:
    """The acks of one request: those that can be reported, and the answers of those that cannot."""

    __slots__ = ("_places", "refused", "reports")

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.refused: dict[int, dict[str, Any]] = {}
        self._places: list[int] = []

    @classmethod
    async def of(
        cls, app: App, caller: Caller, items: Any, encoding: str, at: str, *, worker: str | None = None
    ) -> _Acks:
        """Structure each by itself: one refused never touches the rest (K-28)."""
        if type(items) is not list:
            raise bad_field(at, "must be an array")
        if len(items) > _MOST_ITEMS:
            raise bad_field(at, f"must have at most {_MOST_ITEMS} items", status=413)
        acks = cls()
        for place, raw in enumerate(items):
            try:
                report = _usual(app, caller, raw, worker)
                if report is None:
                    report = await _report(app, caller, structure(raw, AckItem, encoding), worker)
            except (HttpError, NameError_) as error:
                refused = as_result(error)
                del refused["status"]
                id_ = raw.get("invocation_id") if type(raw) is dict else None
                claim = raw.get("claim") if type(raw) is dict else None
                acks.refused[place] = {"invocation_id": id_, "claim": claim, "result": "refused", **refused}
            else:
                acks.reports.append(report)
                acks._places.append(place)
        return acks

    def still_held(self) -> list[Held]:
        """The pairs whose acks were refused: their bodies have ended, and the claims are held until that is told."""
        pairs = [(said["invocation_id"], said["claim"]) for said in self.refused.values()]
        return [Held(id=id_, claim=n, started=True) for id_, n in pairs if type(id_) is str and type(n) is int]

    def answers(self, settled: Sequence[Settled]) -> list[dict[str, Any]]:
        """One answer per ack, in the order they came."""
        if not self.refused:
            return [_settled_body(one) for one in settled]
        by_place = dict(self.refused)
        by_place.update(zip(self._places, map(_settled_body, settled), strict=False))
        return [by_place[place] for place in sorted(by_place)]


@route(AckAnswers, body=(AckItem, AckBatch), refuses=(403, 404, 409, 422))
async def ack(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/ack: how one claim ended, or several."""
    body, encoding = await read_map(request)
    if type(worker := body.get("worker_id")) is str:
        app.workers.came(caller.ns, worker, signed=caller.key is not None)
    if "acks" in body:
        acks = await _Acks.of(app, caller, body["acks"], encoding, "acks")
        settled = await app.dispatcher.report_many(acks.reports) if acks.reports else []
        return answer(request, {"acks": acks.answers(settled)})
    report = await _report(app, caller, structure(body, AckItem, encoding), None)
    (done,) = await app.dispatcher.report_many([report])
    if done.result == "gap":
        raise HttpError(409, "gap", hint="send the missing frames first", expected=done.expected)
    told: dict[str, Any] = {"ok": True, "result": done.result, "state": done.state}
    if done.result == "stale":
        told["ignored"] = True
    return answer(request, told)


_USUAL: Final = frozenset(("invocation_id", "claim", "state", "result_blob", "error", "worker_id"))


def _usual(app: App, caller: Caller, raw: Any, worker: str | None) -> Report | None:
    """The report of a live claim that succeeded with a small result, as nearly all do; None for any other ack."""
    if type(raw) is not dict or not raw.keys() <= _USUAL:
        return None
    get = raw.get
    id_, claim, result = get("invocation_id"), get("claim"), get("result_blob")
    if get("state") != "succeeded" or get("error") is not None or get("worker_id", worker) != worker:
        return None
    if type(id_) is not str or type(claim) is not int or type(result) is not bytes or len(result) >= INLINE_BYTES:
        return None
    lease = app.dispatcher.leases.holder(id_)
    if lease is None or lease.claim != claim or lease.ns != caller.ns:
        return None
    if caller.worker is not None:
        check_binding(caller, worker or caller.worker)
        check_binding(caller, lease.worker)
    return Report(ns=caller.ns, id=id_, outcome="succeeded", claim=claim, worker=worker, result=result)


async def _report(app: App, caller: Caller, item: AckItem, worker: str | None) -> Report:
    check_invocation_id(item.invocation_id)
    if item.state not in ACK_STATES:
        raise bad_field("state", f"must be one of {', '.join(ACK_STATES)}")
    worker = item.worker_id or worker or caller.worker
    if item.claim is None and worker is None:
        raise bad_field("claim", "is required", hint="echo the claim of the run command (or send worker_id)")
    if worker is not None:
        check_binding(caller, worker)
    check_claim(app, caller, item.invocation_id, item.claim)
    if item.result_blob is not None and item.result_ref is not None:
        raise bad_field("result_ref", "result_blob and result_ref exclude each other")
    if item.result_ref is not None:
        ref = item.result_ref
        result = await app.blobs.check(caller.ns, ref.key, ref.size, ref.sha256, "result_ref")
    else:
        result = await app.blobs.keep(caller.ns, item.invocation_id, "result", item.result_blob or b"")  # type: ignore[assignment]  # both are payloads
    error = None
    if item.error is not None:
        told = {"type": item.error.type, "message": item.error.message}
        if item.error.traceback is not None:
            told["traceback"] = item.error.traceback
        error = msgpack.packb(told)
    return Report(
        ns=caller.ns,
        id=item.invocation_id,
        outcome=item.state,  # type: ignore[arg-type]  # checked above
        claim=item.claim,
        worker=worker,
        result=result,
        error=error,
        retry=item.retry,
        retries=item.retries,
        last_seq=item.last_seq,
    )


def _settled_body(done: Settled) -> dict[str, Any]:
    body: dict[str, Any] = {"invocation_id": done.id, "claim": done.claim, "result": done.result}
    if done.state is not None:
        body["state"] = done.state
    if done.expected is not None:
        body["expected"] = done.expected
    return body


# --- names


def _check_name(field: str, value: str) -> None:
    if not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise bad_field(field, f"must have 1 to {_LONGEST_NAME} printable characters")


def check_claim(app: App, caller: Caller, id_: str, claim: int | None) -> None:
    """Whose token or signature is one worker's tells of no other's claims. HttpError 403.

    A claim never changes hands: a later one has another number, and what comes of an older one is stale.
    """
    if caller.worker is None or claim is None:
        return
    lease = app.dispatcher.leases.holder(id_)
    if lease is not None and lease.ns == caller.ns and lease.claim == claim:
        check_binding(caller, lease.worker)
        return
    for held, worker in app.dispatcher.rows(SQL.claim_holder, {"ns": caller.ns, "id": id_}):
        if held == claim and worker is not None:
            check_binding(caller, worker)


def check_binding(caller: Caller, worker_id: str) -> None:
    """Whose token or signature is one worker's speaks for no other. HttpError 403."""
    if caller.worker is not None and caller.worker != worker_id:
        whose = "signature" if caller.mode == "daemon-sig" else "token"
        raise HttpError(403, f"this {whose} is bound to another worker", field="worker_id")
