"""A load on a server that writes down what it was promised: which answer, on which connection, said what.

Each client has one connection and one queue; it produces, works, streams, cancels, retries, posts and uploads, drawn
from a seed. A promise is what must be true of the state from the first byte of that answer on; each stays true
whatever comes later.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import random
from dataclasses import dataclass, field
from typing import Any

import msgpack
from served import MSGPACK, Served, new_id

from lakeshore import wire

SIZES = (10, 10, 3_000, 20_000, 70_000, 150_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """`kind` is a method of the check; `id` what it is about."""

    kind: str
    id: str
    claim: int = 0
    seq: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An answer that made promises: the number of the answer on the connection of that port."""

    port: int
    answer: int
    what: str
    promises: tuple[Promise, ...]


@dataclass
class Client:
    """One connection of one client; `run` plays rounds and `kept` is what it heard."""

    server: Served
    name: str
    rng: random.Random
    kept: list[Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = f"q-{self.name}"
        self.connection = self.server.connection(timeout=60)
        self.connection.connect()
        self.port = self.connection.sock.getsockname()[1]
        self.answers = 0
        self.held: dict[str, dict[str, Any]] = {}
        self.polls = 0
        self.topic = -1
        self.ends = 0

    def close(self) -> None:
        self.connection.close()

    # -- one exchange

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body; the connection is kept alive."""
        raw = body if isinstance(body, bytes) or body is None else msgpack.packb(body)
        self.connection.request(method, path, body=raw, headers={"Content-Type": MSGPACK, "Accept": MSGPACK})
        response = self.connection.getresponse()
        data = response.read()
        self.answers += 1
        assert not response.will_close, (path, response.status, data[:200])
        kind = response.headers.get("content-type", "")
        return response.status, msgpack.unpackb(data, strict_map_key=False) if kind.startswith(MSGPACK) else data

    def note(self, what: str, *promises: Promise) -> None:
        """The latest answer made these."""
        if promises:
            self.kept.append(Kept(port=self.port, answer=self.answers - 1, what=what, promises=promises))

    def post(self, path: str, body: Any) -> Any:
        """The body of an answer that must be a success."""
        status, told = self.ask("POST", path, body)
        assert status == 200, (path, status, told)
        return told

    # -- what a client does

    def run(self, rounds: int) -> None:
        """Play; every kind of write is among them."""
        self.hello()
        steps = [
            self.submit,
            self.submit_many,
            self.work,
            self.work,
            self.cancel,
            self.post_topic,
            self.upload,
            self.store,
        ]
        for number in range(rounds):
            step = steps[number] if number < len(steps) else self.rng.choice(steps)
            with contextlib.suppress(http.client.HTTPException):
                step()
        for _ in range(3):
            self.work()

    def payload(self) -> bytes:
        """Different every time."""
        return self.rng.randbytes(8).ljust(self.rng.choice(SIZES), self.rng.randbytes(1))

    def _item(self, **more: Any) -> dict[str, Any]:
        return {"invocation_id": new_id(), "queue": self.queue, "args_blob": self.payload(), **more}

    def hello(self) -> None:
        body = {
            "machine_id": self.name,
            "label": "l",
            "tags": [],
            "session": "s",
            "capabilities": {"runners": []},
            "versions": {"daemon": "1", "protocol": "1"},
        }
        self.worker = self.post("/v1/daemon/hello", body)["worker_id"]
        minted = (self.server.state_dir / "admin.token").read_bytes().strip()
        self.note("hello", Promise(kind="session", id=self.worker), Promise(kind="minted", id="admin", data=minted))
        status, told = self.ask("POST", "/v1/namespaces/default/tokens", {"name": f"t-{self.name}"})
        assert status in (200, 201), told
        self.note("token", Promise(kind="token", id=f"t-{self.name}"))

    def submit(self) -> None:
        item = self._item()
        self.post("/v1/producer/submit", item)
        self.note("submit", Promise(kind="submitted", id=item["invocation_id"], data=item["args_blob"]))
        if self.rng.random() < 0.3:  # said again, as after a lost answer
            self.post("/v1/producer/submit", item)
            self.note("submit again", Promise(kind="submitted", id=item["invocation_id"], data=item["args_blob"]))

    def submit_many(self) -> None:
        items = [self._item() for _ in range(self.rng.randrange(2, 6))]
        told = self.post("/v1/producer/submit", {"invocations": items})
        assert {one["status"] for one in told["results"]} == {200}, told
        self.note(
            "batch", *(Promise(kind="submitted", id=one["invocation_id"], data=one["args_blob"]) for one in items)
        )

    def work(self) -> None:
        self.poll([])
        acks: list[dict[str, Any]] = []
        for inv, run in list(self.held.items()):
            if self.rng.random() < 0.5:
                self.stream(inv, run)
            acks.append(self.ack_of(inv, run))
        how = self.rng.choice(("one by one", "together", "in a poll"))
        if how == "in a poll":
            self.poll(acks)
        elif how == "together" and acks:
            self.settled("acks", acks, self.post("/v1/daemon/ack", {"acks": acks})["acks"])
        else:
            for ack in acks:
                self.settled("ack", [ack], [self.post("/v1/daemon/ack", ack)])

    def poll(self, acks: list[dict[str, Any]]) -> None:
        self.polls += 1
        ended = {ack["invocation_id"] for ack in acks}
        told = self.post(
            "/v1/daemon/poll",
            {
                "worker_id": self.worker,
                "queue": self.queue,
                "session": "s",
                "n": self.polls,
                "timeout_s": 0,
                "capacity": 3,
                "held": [[inv, run["claim"], True] for inv, run in self.held.items() if inv not in ended],
                "acks": acks,
            },
        )
        runs = [command["body"] for command in told["commands"] if command["kind"] == "run"]
        promises = [Promise(kind="claimed", id=run["invocation_id"], claim=run["claim"]) for run in runs]
        self.note("poll", *promises)
        if acks:
            self.settled("acks of a poll", acks, told["acks"])
        self.held.update({run["invocation_id"]: run for run in runs})

    def stream(self, inv: str, run: dict[str, Any]) -> None:
        first = run["first_seq"]
        count = self.rng.randrange(1, 5)
        data = [wire.FrameWriter(first + k).value(self.payload()[:30_000]) for k in range(count)]
        chunks = [
            {"invocation_id": inv, "claim": run["claim"], "seq": first + k, "bytes": data[k]} for k in range(count)
        ]
        promises = [Promise(kind="frame", id=inv, seq=first + k, data=data[k]) for k in range(count)]
        if self.rng.random() < 0.5:
            told = self.post("/v1/daemon/result-chunk", {"chunks": chunks})
            assert {one["status"] for one in told["chunks"]} == {200}, told
            self.note("frames", *promises)
        else:
            for chunk, promise in zip(chunks, promises, strict=True):
                self.post("/v1/daemon/result-chunk", chunk)
                self.note("frame", promise)
        run["last_seq"] = first + count - 1

    def ack_of(self, inv: str, run: dict[str, Any]) -> dict[str, Any]:
        ack: dict[str, Any] = {"invocation_id": inv, "claim": run["claim"]}
        if "last_seq" in run:
            ack["last_seq"] = run["last_seq"]
        self.ends += 1
        if self.ends % 4 in (0, 2):
            return {**ack, "state": "succeeded", "result_blob": self.payload()}
        return {**ack, "state": "failed", "error": {"type": "E", "message": "m"}, "retry": self.ends % 4 == 1}

    def settled(self, what: str, acks: list[dict[str, Any]], told: list[dict[str, Any]]) -> None:
        promises = []
        for ack, one in zip(acks, told, strict=True):
            inv = ack["invocation_id"]
            del self.held[inv]
            assert one["result"] == "ok", one
            kind = {"succeeded": "succeeded", "queued": "returned"}.get(one["state"], "ended")
            data = ack.get("result_blob", b"")
            promises.append(Promise(kind=kind, id=inv, claim=ack["claim"], data=data))
        self.note(what, *promises)
        for ack, one in zip(acks, told, strict=True):
            if one["state"] == "failed":
                self.post(f"/v1/namespaces/default/invocations/{ack['invocation_id']}/retry", {})
                self.note("retry", Promise(kind="claimed", id=ack["invocation_id"], claim=ack["claim"] + 1))

    def cancel(self) -> None:
        item = self._item(queue=f"{self.queue}-dead")
        inv = item["invocation_id"]
        self.post("/v1/producer/submit", item)
        self.note("submit", Promise(kind="submitted", id=inv, data=item["args_blob"]))
        self.post(f"/v1/producer/invocations/{inv}/cancel", {})
        self.note("cancel", Promise(kind="ended", id=inv))
        self.submit()
        self.poll([])
        for inv in list(self.held)[:1]:
            self.post(f"/v1/producer/invocations/{inv}/cancel", {})
            self.note("cancel of a run", Promise(kind="cancelling", id=inv))
            ack = {"invocation_id": inv, "claim": self.held[inv]["claim"], "state": "killed"}
            told = self.post("/v1/daemon/ack", ack)
            self.note("killed", Promise(kind="ended", id=inv))
            assert told["state"] == "killed", told
            del self.held[inv]

    def post_topic(self) -> None:
        for _ in range(2):
            body = msgpack.packb(self.payload())
            told = self.post(f"/v1/producer/queues/{self.queue}/topics/t", {"bytes": body})
            assert told["seq"] == self.topic + 1
            self.topic = told["seq"]
            self.note("topic", Promise(kind="posted", id=self.queue, seq=self.topic, data=body))

    def upload(self) -> None:
        data, inv = self.payload(), new_id()
        digest = hashlib.sha256(data).hexdigest()
        asked = {"op": "put", "size": len(data), "jobId": inv, "sha256": digest}
        told = self.post("/v1/namespaces/default/payloads/presign", asked)
        for wanted in (201, 200):  # and once more, as after a lost answer
            status, stored = self.ask("PUT", told["url"], data)
            assert status == wanted, stored
            self.note("upload", Promise(kind="stored", id=told["key"], data=data))
        self.submit_reference(inv, data, told["key"])

    def store(self) -> None:
        data, inv = self.payload(), new_id()
        for _ in range(2):
            status, stored = self.ask("POST", f"/v1/namespaces/default/payloads?jobId={inv}&kind=args", data)
            assert status == 200, stored
            self.note("store", Promise(kind="stored", id=stored["key"], data=data))
        self.submit_reference(inv, data, stored["key"])

    def submit_reference(self, inv: str, data: bytes, key: str) -> None:
        ref = {"key": key, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.post("/v1/producer/submit", {"invocation_id": inv, "queue": self.queue, "args_ref": ref})
        self.note("submit of a reference", Promise(kind="submitted", id=inv, data=data))
