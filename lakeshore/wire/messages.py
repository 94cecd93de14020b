"""The bodies that producers and workers send to a control plane: THE statement of the protocol.

Every body is a map with string keys, in msgpack (`application/x-msgpack`) or in JSON (`application/json`), where
bytes are base64 strings. An answer comes in the encoding of its request. Unknown keys are ignored, so an addition
never breaks an old peer; `None` and absent are the same. The classes below are the shapes of the requests, with their
defaults. Nothing here parses: whoever receives structures and validates.

    Authorization: Bearer <token>        X-LS-Namespace: <ns>   for open, admin and org callers
    errors: status 4xx (501, 502, 503, 507) and {"error": str, "field"?: str, "hint"?: str, ...}

Producer
    POST /v1/producer/submit
        SubmitItem  -> {invocation_id, queue, existing?: true, warnings?: [str], ended?: as AwaitOne's answer}
            with `wait_s` answered once the row is terminal, then with `ended`, or without it when the time is over
            409 another call under this id, queue not active, or {"error": "purged"} · 413 · 507 disk
            429 {error: "queue full" | "queue behind", queue, on_full, retry_after_s}
        SubmitBatch -> {results: [{status: 200, invocation_id, queue, existing?} | {status: 4xx, error, field?, hint?}]}
            in the order of the items; never atomic, never blocks (K-18)
    POST /v1/producer/await
        AwaitOne    -> {state, result_blob | result_ref, error, attempt}     once the row is terminal
                     | {state: "pending", row_state} | {state: "unknown"} | {state: "purged"}
            with `get` also {invocation: map | null}, answered at once
        WatchSet    -> {results: [{invocation_id, state, result_blob | result_ref, error, attempt}], more: bool}
            only ids that are terminal, unknown or purged; each is reported once and leaves the set.
            A session that the server does not know is a new empty set (K-21)
    GET  /v1/producer/invocations/:id/result/stream?since=-1
            frames, verbatim and undelimited, as `application/x-msgpack-stream`; ends after a terminal frame or once
            the row is terminal · 404 unknown
    POST /v1/producer/invocations/:id/cancel      {}          -> {cancelled: bool, state, cancelling?: true}
    POST /v1/producer/invocations/:id/trim        TrimRequest -> {trimmed: n}
    GET  /v1/producer/queues                                  -> {queues: [{name, kind, state}]}
    GET  /v1/producer/queues/:name/count?state=queued         -> {count}
    POST /v1/producer/queues/:queue/topics/:name  TopicAppend -> {seq}
    GET  /v1/producer/queues/:queue/topics/:name/stream?since=-1&timeout_s=      frames, as above

Payloads over `INLINE_THRESHOLD_BYTES` travel beside the call
    POST /v1/namespaces/:ns/payloads/presign
        PresignRequest -> {url, bucket, key, expires_at}     url is relative: /v1/blobs/<key>?<signature>
    PUT | GET /v1/blobs/<key>?<signature>
    POST /v1/namespaces/:ns/payloads?jobId=&kind=     the bytes -> {key, size, sha256}
            presign and upload in one exchange, for who has a bearer; 404 from a server that is older than it

Worker
    POST /v1/daemon/hello
        HelloRequest -> {worker_id, session_token, session_ttl_s, config, cursor: null, key_id, key_rotation_max_age_s,
                         server_time_epoch_s, reject: {code, message} | null, lost?: [[inv, claim]],
                         namespace, lease_s?}
            a refusal is a 200 with `reject`
    POST /v1/daemon/poll
        PollRequest  -> {commands: [Command], acks: [AckAnswer], lost: [[inv, claim]], lease_s: 60, status?: 410,
                         target_nymph_version?}
            Command   = {id, kind: "run", body: {invocation_id, claim, attempt, first_seq, queue, function, run_config,
                         args_blob | payload_ref {url, key, size, sha256}, prefix?, parent_invocation_id?,
                         root_invocation_id?}}
                      | {id, kind: "cancel", body: {invocation_id, claim}}     other kinds: skip and log
                      | {id, kind: "setup", body: {script, sudo?, refresh_capabilities?, name?}}
                      | {id, kind: "hibernate", body: {until_epoch_s}} | {id, kind: "reset_backoff", body: {}}
                      | {id, kind: "exec", body: {exec_id, command, env, stdin, workdir?, timeout_s?, log?, ...}}
                      | {id, kind: "cancel", body: {exec_id}} | {id, kind: "ota_update", body: {version, url, sha256}}
                      | {id, kind: "rotate_key", body: {reason, deadline_epoch_s, key_id}}
            AckAnswer = {invocation_id, claim, result: one of ACK_RESULTS, state?, expected?, error?}
            `status: 410` fences the session: it drains. 409 {"error": "superseded"} when `n` is not above the newest
            seen. With `ended`, what had begun is lost by that end. `reason` says why it must drain, where
            that is not a newer session (a person removed the worker). Commands other than run and cancel come again,
            with the same id, until a later poll has `seen` their answer.
            The worker reads acks, then lost, then cancel, then run (K-28)
    POST /v1/daemon/ack
        AckItem      -> {ok: true, result: "ok" | "duplicate" | "stale", state, ignored?: true}
            409 {"error": "gap", expected}
        AckBatch     -> {acks: [AckAnswer]}
    POST /v1/daemon/result-chunk
        ChunkItem    -> {ok: true, seq, duplicate?: true}
            409 {"error": "gap", expected} | {"error": "stale"}
        ChunkBatch   -> {chunks: [{status, ...the same}]}
        ChunkRun     -> {ok: true, seq, duplicate?: true}     `seq` of the last, `duplicate` when all were stored before
            all of them or none · 409 as above
    POST /v1/daemon/log-chunk
        LogChunk     -> {ok: true, position}     what the body of a running claim printed; 409 {"error": "stale"}
        raw bytes as application/octet-stream with the query invocation_id, claim, attempt?, stream?, offset -> the same

    POST /v1/daemon/event
        EventItem    -> {ok: true}     something that a daemon has to tell. How a script ended is
            `type: "setup"`, with the `id` of its command, and its result as `payload`: {exit_code, duration_ms, ...}
        EventBatch   -> {ok: true, events: [{ok: true}]}     all of them or none
    POST /v1/daemon/exec/:id/result
        {exit_code, stdout, stderr, duration_ms, error?, result_inline?, result_ref?}
            -> {ok: true, status, ignored?: true}
    POST /v1/daemon/exec/:id/chunk?offset&stream      raw bytes -> {ok: true, offset}
    POST /v1/daemon/keys
        {worker_id, public_key} -> {key_id, status, expires_at, overlap_s, server_time_epoch_s}

tests/fixtures has one of each: as a daemon and a server say it in nymph_bodies.json, as they did in earlier/.

`claim` is the only fence: it comes with `run` and every report echoes it (K-5). A report without one is a foreign
peer's and is matched by `worker_id`. The list that a poll carries in `held` is the truth: a claim of the session that
is not listed returns to its queue (K-8).
Reference: api/function-protocol, nymph/protocol, get-started/payloads; CONTRACT K-5…K-28.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from .values import value

MSGPACK: Final = "application/x-msgpack"
MSGPACK_STREAM: Final = "application/x-msgpack-stream"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"

PROTOCOL_VERSION: Final = "1"  # hello.versions.protocol
DEFAULT_QUEUE: Final = "default"

INLINE_THRESHOLD_BYTES: Final = 262_144  # larger payloads travel by reference
MAX_PAYLOAD_BYTES: Final = 104_857_600  # larger ones are refused before a byte is sent (K-20)
MAX_PREFETCH: Final = 32  # PollRequest.capacity is never above
AWAIT_TIMEOUT_S: Final = 60.0  # of an await that names none
POLL_TIMEOUT_S: Final = 20.0  # of a poll that names none, and the most that a server holds one
LEASE_S: Final = 60.0  # PollAnswer.lease_s unless configured (K-11)

ACK_STATES: Final = ("succeeded", "failed", "killed", "timeout")
ACK_RESULTS: Final = ("ok", "duplicate", "stale", "gap", "refused")

# A field that the wire calls `bytes` hides the builtin from whoever resolves the annotations of its class.
Blob: TypeAlias = bytes
Pair: TypeAlias = tuple[str, int]  # (invocation_id, claim)
Held: TypeAlias = tuple[str, int, bool]  # (invocation_id, claim, started)


# ---- parts


@value
class FunctionRef:
    """What a row says it calls.

    The native path sends the stub `NATIVE_FUNCTION`: the callable's identity is inside the Envelope (S-352).
    `name` stands beside it, for people: what a list shows as the function (S-784). Nothing is found by it. So do the
    `signature` and the `source`, of who sends them (S-590): the same call with and without them is the same call.
    """

    module: str
    qualname: str
    version: str = "v1"
    name: str | None = None
    signature: str | None = None
    source: str | None = None


NATIVE_FUNCTION: Final = FunctionRef(module="_native_wire", qualname="_native_wire.envelope", version="v1")


@functools.lru_cache(maxsize=256)
def native_function(name: str | None) -> Mapping[str, str]:
    """What a native submit says as its `function`: the stub, and beside it the name that lists show. It is shared."""
    stub = {part: getattr(NATIVE_FUNCTION, part) for part in ("module", "qualname", "version")}
    return stub if name is None else {**stub, "name": name}


@value
class BlobRef:
    """Where a payload is that did not fit inline.

    `size` in bytes, `sha256` 64 hex digits. `url` only in what a server sends.
    """

    key: str
    size: int
    sha256: str | None = None
    url: str | None = None
    bucket: str | None = None
    content_type: str | None = None


@value
class ErrorInfo:
    """Why a body failed. Never a bare string on the wire."""

    type: str
    message: str
    traceback: str | None = None


@value
class ProcessEnd:
    """How a worker's process ended: `code` when it exited, `signal` (`SIGSEGV`) when it was killed, `oom` whether for
    want of memory. None is what cannot be known; `why` is said then.
    """

    code: int | None = None
    signal: str | None = None
    oom: bool | None = None
    why: str | None = None


# ---- producer


@value
class SubmitItem:
    """One call.

    The same id with the same (queue, function, args, run_config) is the same submit; with others it is a 409 (K-16).
    `args_blob` is the Envelope, verbatim; exactly one of `args_blob` and `args_ref` is set. `retry_failed` is a nonce
    that moves a failed, killed or timed-out row back to `queued` once (K-17). `watch` adds the id to that session's
    watched set. `wait_s` holds the answer for the row's end, so that a call that is waited for is one request, with
    `why` as for an await; the row is stored at once. A batch does not wait. Where the queue is full and says `on_full:
    block`, a single submit is held for up to `hold_s` seconds (25 unless it says so, 600 at most), then 429 with
    `retry_after_s` (K-19). Nobody gets the row before `delay_s` seconds have passed, counted by the server's clock from
    when it has the body, or before the instant `due` (epoch seconds); the answer says `due`. The same bodies are taken
    at `/v1/producer/submit/delayed`, which a server that knows neither field does not have.
    """

    invocation_id: str
    queue: str = DEFAULT_QUEUE
    function: FunctionRef | None = None
    args_blob: Blob | None = None
    args_ref: BlobRef | None = None
    run_config: dict[str, Any] = field(default_factory=dict)  # queue, priority, key, max_attempts, timeout_s, ...
    code_context: dict[str, Any] = field(default_factory=dict)
    parent_invocation_id: str | None = None
    retry_failed: str | None = None
    watch: str | None = None
    wait_s: float = 0.0
    why: bool = False
    hold_s: float | None = None
    delay_s: float | None = None
    due: float | None = None


@value
class SubmitBatch:
    """Many calls, answered one by one and in order. `watch` holds for every item that names none."""

    invocations: tuple[SubmitItem, ...]
    watch: str | None = None


@value
class AwaitOne:
    """Wait for one row, or with `get` look at it now.

    `timeout_s` in seconds; a timeout is the answer `pending`, not an error (K-22), and with `why` it says for what a
    queued one waits.
    """

    invocation_id: str
    timeout_s: float = AWAIT_TIMEOUT_S
    get: bool = False
    why: bool = False


@value
class WatchSet:
    """Wait for the first of a session's watched ids.

    A body with the key `watch` is this one; a client that reconnects adds what it has not seen (K-21). `waiting` is how
    many ids the client believes to be in the set: a server that knows of fewer answers `resync: true` at once. With
    `why`, who waited in vain is told for what one of the queued ids waits.
    """

    watch: str
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    timeout_s: float = AWAIT_TIMEOUT_S
    waiting: int = 0
    why: bool = False


@value
class TrimRequest:
    """Forget all frames but the last `keep_last`; what is trimmed degrades a stream to the row's result (K-24)."""

    keep_last: int = 0


@value
class TopicAppend:
    """One frame for a topic; the server assigns its `seq` (K-25). `final` closes the topic for readers.

    `nonce` (1 to 2**32 - 1, random) names the post: a copy of it is answered with the `seq` that the first one got, and
    stored once. `again` tells that this may be a copy, so that the server looks further back.
    """

    bytes: Blob
    final: bool = False
    nonce: int = 0
    again: bool = False


@value
class PresignRequest:
    """Ask for a URL. The wire is camelCase here (`contentType`, `jobId`): receivers accept both spellings.

    op="put" needs `size` (bytes) and gets a key that the server mints; op="get" needs `key`.
    """

    op: str
    key: str | None = None
    size: int | None = None
    content_type: str | None = None
    job_id: str | None = None
    kind: str = "args"
    sha256: str | None = None


# ---- worker


@value
class Capabilities:
    """What a host can run.

    The map is open: a receiver that shows it keeps the keys it does not know (S-376, S-377, S-820).
    """

    runners: tuple[str, ...]
    max_invocations: int | None = None
    workdir: str | None = None
    current_invocations: int | None = None
    cost_weight: float | None = None


@value
class Versions:
    """What a host found at boot; what it did not find is null (S-378…S-380).

    `cpu` is {model, cores}, `gpu` [{name, driver, cuda}].
    """

    daemon: str
    protocol: str
    runsc: str | None = None
    docker: str | None = None
    python: str | None = None
    kernel: str | None = None
    distro: str | None = None
    arch: str | None = None
    cpu: dict[str, Any] | None = None
    gpu: tuple[dict[str, Any], ...] | None = None


@value
class HelloRequest:
    """First contact.

    `lanes` is the wire's name of queue memberships; none means the default queue. Registers `session` durably (K-15).
    `public_key` is base64url without padding of 32 bytes. `adopted` lists the claims taken over from an older session
    of the same worker; those that are not current come back as `lost`.
    """

    machine_id: str
    label: str
    tags: tuple[str, ...]
    capabilities: Capabilities
    versions: Versions
    lanes: tuple[str, ...] = ()
    public_key: str | None = None
    session: str | None = None
    adopted: tuple[Pair, ...] = ()


@value
class AckItem:
    """How one claim ended, `state` one of `ACK_STATES`.

    `retry` asks to run it again while attempts remain, `retries` is how often this worker would (K-7). `last_seq` is
    the last frame sent: the ack is a `gap` until that one is stored (K-24). At most one of `result_blob` and
    `result_ref` is set.
    """

    invocation_id: str
    state: str
    result_blob: Blob | None = None
    result_ref: BlobRef | None = None
    error: ErrorInfo | None = None
    worker_id: str | None = None
    claim: int | None = None
    retry: bool = False
    retries: int | None = None
    last_seq: int | None = None


@value
class AckBatch:
    """Several, each answered by itself: one refused never touches the rest."""

    acks: tuple[AckItem, ...]


@value
class InvocationStatus:
    """What a foreign daemon tells of a run in flight (S-417). Ours says it in `held`."""

    invocation_id: str
    state: str = "running"
    started_at: str | float | None = None
    exit_code: int | None = None
    stdout_tail: str | None = None


@value
class PollRequest:
    """Report, renew, ask. One poll of a session is in flight, `n` rises with each (K-8).

    `queue` may end in `*` (a prefix). `timeout_s` in seconds, at most `POLL_TIMEOUT_S`. `capacity` is how many runs may
    come back, 0 (control only) to `MAX_PREFETCH`. `kind` and `temperature` order the claim where the queue's row names
    no order (K-3). `seen` is the newest `n` whose answer was read: commands of a later one were not, and may be sent
    again. `draining` with nothing in `held` is the goodbye. `ended` is sent by who speaks for a worker that is dead:
    what had begun is lost by that (K-12). Without `session` this is a foreign peer's poll: no list, no acks, one claim.
    """

    worker_id: str
    queue: str = DEFAULT_QUEUE
    timeout_s: float = POLL_TIMEOUT_S
    cursor: str | None = None
    invocations: tuple[InvocationStatus, ...] = ()
    updated_capabilities: dict[str, Any] | None = None
    session: str | None = None
    n: int | None = None
    held: tuple[Held, ...] = ()
    acks: tuple[AckItem, ...] = ()
    capacity: int = 1
    kind: str | None = None
    temperature: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    draining: bool = False
    ended: ProcessEnd | None = None
    seen: int | None = None


@value
class ChunkItem:
    """One frame of a running invocation.

    Accepted at last + 1 only; the same (claim, seq) again is a duplicate (K-24). Without `seq` it takes that very
    place, and a resend takes the next: number frames where a resend may happen.
    """

    invocation_id: str
    seq: int | None = None
    bytes: Blob
    final: bool = False
    claim: int | None = None
    worker_id: str | None = None


@value
class ChunkBatch:
    """Several frames, each answered by itself and in order."""

    chunks: tuple[ChunkItem, ...]


@value
class LogChunk:
    """What a running body printed, in that order: parts of a stream (`stdout`, `stderr`), an offset in it, and bytes.

    What is stored of them already is skipped; an offset beyond the end says that bytes between were given up.
    """

    invocation_id: str
    claim: int
    parts: tuple[tuple[str, int, Blob], ...]
    attempt: int = 1


@value
class ChunkRun:
    """Consecutive frames of one running invocation, verbatim and undelimited; `seq` is that of the first.

    A body with the key `frames` is this one. What is stored of them already (the same claim and seq) is skipped (K-24).
    """

    invocation_id: str
    seq: int
    frames: Blob
    claim: int


@value
class EventItem:
    """One line of a namespace's log. One that names itself with `id` is stored once for its worker and type.

    `kind` is `invocation.progress`, `invocation.log` or `invocation.event`.
    """

    worker_id: str
    kind: str = "invocation.event"
    type: str | None = None
    id: str | None = None
    invocation_id: str | None = None
    queue: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)


@value
class EventBatch:
    """Several, stored together."""

    events: tuple[EventItem, ...]
