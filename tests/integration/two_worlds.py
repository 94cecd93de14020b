"""Namespaces with something of every kind in them, each under names that nobody else has."""

from __future__ import annotations

import base64
import functools
import json
import re
import secrets
import select
import time
from typing import Any
from urllib.parse import quote

from served import ADMIN, JSON, Answer, Served, new_id
from signer import Signer, text

from lakeshore.server.changes import KINDS
from lakeshore.server.routes.table import TABLE
from lakeshore.wire.envelope import Envelope

CALL = Envelope.build(id="schedule", fn={"kind": "ref", "module": "m", "qualname": "f", "src_hash": "any"}, args=[1])
FRAME = b"\x94\x00\x01\x02\x03"
HOUR = 3600.0


def b64(data: bytes | str) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


class Line:
    """One connection that is kept; answers come as the client's, bodies go as JSON."""

    def __init__(self, server: Served) -> None:
        self.connection, self.got = server.connection(), b""

    def __call__(
        self, method: str, path: str, body: Any = None, *, token: str = "", ns: str | None = None, raw: bool = False
    ) -> Answer:
        self.ask(method, path, body, token=token, ns=ns, raw=raw)
        answer = self.connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())

    def close(self) -> None:
        self.connection.close()

    def came(self, within_s: float = 0.0) -> bytes:
        """What is there of the answer that was asked for: its body, for the head of a stream comes at once."""
        line = self.connection.sock
        until = time.monotonic() + within_s
        while not self._body() and select.select([line], [], [], max(until - time.monotonic(), 0))[0]:
            data = line.recv(1 << 16)
            if not data:
                break
            self.got += data
        return self._body()

    def _body(self) -> bytes:
        return self.got.partition(b"\r\n\r\n")[2]

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "", ns: str | None = None, raw: bool = False
    ) -> None:
        """Without waiting for the answer."""
        headers = {"Accept": JSON}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if ns is not None:
            headers["X-LS-Namespace"] = ns
        data = body if raw else None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/octet-stream" if raw else JSON
        self.connection.request(method, path, body=data, headers=headers)


class World:
    """A namespace. `has`: an id or a name of each kind; `mark` is within every name and every text of it."""

    def __init__(self, server: Served, line: Line, org: str | None = None) -> None:
        self.server, self.line = server, line
        self.mark = mark = f"z{secrets.token_hex(5)}"
        self.ns = f"{mark}-ns"
        self.made("POST", "/v1/admin/namespaces", {"name": self.ns, "orgId": org}, token=ADMIN)
        self.tokens = {scope: self.minted(scope, scope) for scope in ("full", "submit")}
        # One that is bound: what another worker of its own namespace runs is none of its business.
        self.tokens["daemon"] = self.minted("daemon", "daemon", workerId=f"{mark}-bound")
        self.has: dict[str, Any] = {"ns": self.ns, "org": f"{mark}-org" if org is None else org, "mark": mark}
        self._furnish()

    # -- how it calls

    def made(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """An answer's body, which must be a success."""
        answer = self.line(
            method, path, body, **({"token": self.tokens["full"]} | more if "token" not in more else more)
        )
        assert answer.status < 300, (method, path, answer.status, answer.raw)
        return answer.body if answer.raw else None

    def own(self, rest: str) -> str:
        return f"/v1/namespaces/{self.ns}/{rest}"

    def minted(self, name: str, scope: str, **more: Any) -> str:
        body = {"name": f"{self.mark}-{name}", "scope": scope, **more}
        row = self.made("POST", self.own("tokens"), body, token=ADMIN)
        self.last_token = row
        return str(row["plaintext"])

    def add(self, path: str, **body: Any) -> Any:
        return self.made("POST", self.own(path), body)

    # -- what it has

    def _furnish(self) -> None:
        mark, has = self.mark, self.has
        for kind in ("queue", "secret", "provider", "mode", "tunnel", "mount", "storage", "topic", "schedule"):
            has[kind] = f"{mark}-{kind}"
        for kind in (
            "machine",
            "watch",
            "nonce",
            "remote",
            "archive",
            "ref",
            "tag",
            "project",
            "key",
            "instance",
            "release",
        ):
            has[kind] = f"{mark}-{kind}"
        has |= {"function": f"{mark}_function", "token": self.last_token["id"], "commit": secrets.token_hex(20)}
        self._furnish_operators()
        self._furnish_workers()
        self._furnish_calls()
        has["number"] = self.made("GET", self.own("changes"))["cursor"]
        has["queue cursor"] = self.made("GET", self.own("queues?limit=1"))["next"]
        has["event"] = self.made("GET", self.own("events?limit=1"))["events"][0]["seq"]

    def _furnish_operators(self) -> None:
        mark, has = self.mark, self.has
        secret = {"$secret": has["secret"]}
        self.add(
            "secrets", name=has["secret"], kind="ssh_key", plaintext=f"{mark} plaintext", description=f"{mark} says"
        )
        self.add("tunnels", name=has["tunnel"], kind="wireguard", config={"host": f"{mark}.host", "key": secret})
        self.add(
            "providers",
            name=has["provider"],
            launcher="SSH",
            tunnel=has["tunnel"],
            kwargs={"host": f"{mark}.host", "identity": secret},
        )
        self.add("modes", name=has["mode"], env={"A": secret, "B": f"{mark} says"}, provider=has["provider"])
        self.add("mounts", name=has["mount"], kind="s3", config={"bucket": f"{mark}-bucket", "creds": secret})
        self.add("storages", name=has["storage"], kind="s3", config={"bucket": f"{mark}-bucket", "creds": secret})
        repo = {"remote": has["remote"], "commit": has["commit"], "archiveKey": has["archive"], "ref": has["ref"]}
        has["repo"] = self.add("code-repos", storageName=has["storage"], **repo)["id"]
        kept = f"code-archives?remote={mark}-kept&commit={has['commit']}"
        has["kept archive"] = self.made("POST", self.own(kept), mark.encode(), raw=True)["archiveKey"]
        self.add("queues", name=has["queue"], description=f"{mark} says", providerRef=has["provider"])
        every = {"every": HOUR, "envelope": b64(CALL.to_bytes())}
        self.add("schedules", name=has["schedule"], queue=has["queue"], **every)
        minted = self.made("POST", self.own("enroll-tokens"), {"label": f"{mark}-enroll"}, token=ADMIN)
        has |= {"enroll token": minted["id"], "enroll bearer": minted["plaintext"]}

    def _furnish_workers(self) -> None:
        mark, has = self.mark, self.has
        self.signer = signer = Signer(self.server, label=f"{mark}-signer")
        minted = self.made("POST", self.own("enroll-tokens"), {"label": f"{mark}-spent"}, token=ADMIN)
        signer.machine_id = f"{mark}-signs"
        assert signer.hello(minted["plaintext"]).body["reject"] is None
        has |= {"signing worker": signer.worker_id, "daemon key": signer.key_id, "public key": text(signer.public)}
        has["session"] = f"{mark}-session"
        told = self.made(
            "POST", "/v1/daemon/hello", hello(has["machine"], f"{mark}-label", [has["queue"]], has["session"])
        )
        has["worker"] = told["worker_id"]
        # It sleeps for an hour: how it is shown does not change by time alone.
        self.add(f"workers/{has['worker']}/hibernate", until_epoch_s=4e9)
        self.add(f"workers/{has['signing worker']}/hibernate", until_epoch_s=4e9)
        signer.poll()
        self.n = 0
        self.poll(capacity=0)
        self.add(f"workers/{has['worker']}/setup", script=f"echo {mark}", name=f"{mark} setup")
        order = self.made("GET", self.own(f"workers/{has['worker']}"))["pendingSetupCommands"][0]
        has["order"] = order["id"]
        has["exec"] = self.add(f"workers/{has['worker']}/exec", command=f"echo {mark}", env={"A": mark})["exec_id"]

    def poll(self, **more: Any) -> Any:
        self.n += 1
        named = {"worker_id": self.has["worker"], "session": self.has["session"], "queue": self.has["queue"]}
        return self.made("POST", "/v1/daemon/poll", {**named, "n": self.n, "timeout_s": 0, **more})

    def _furnish_calls(self) -> None:
        has = self.has
        # Its worker sleeps, and hibernating takes no work: who runs is one without a hello.
        runner = {
            "worker_id": f"{self.mark}-runner",
            "queue": has["queue"],
            "session": f"{self.mark}-runs",
            "timeout_s": 0,
        }
        has["runner"] = runner["worker_id"]
        for n, state in enumerate(("ended", "invocation", "queued"), start=1):
            has[state] = self.submitted()
            if state != "queued":
                told = self.made("POST", "/v1/daemon/poll", {**runner, "n": n})
                (command,) = told["commands"]
                has["claim"] = command["body"]["claim"]
                assert command["body"]["invocation_id"] == has[state]
            claimed = {"invocation_id": has[state], "claim": has.get("claim")}
            if state == "ended":
                self.made("POST", "/v1/daemon/ack", {**claimed, "state": "succeeded", "result_blob": b64(self.mark)})
            elif state == "invocation":
                parts = [["stdout", 0, b64(f"{self.mark} printed\n")]]
                self.made("POST", "/v1/daemon/log-chunk", {**claimed, "attempt": 1, "parts": parts})
                self.made("POST", "/v1/daemon/result-chunk", {**claimed, "seq": 0, "bytes": b64(FRAME)})
        topic = f"/v1/producer/queues/{has['queue']}/topics/{has['topic']}"
        self.made("POST", topic, {"bytes": b64(b"\xab" + self.mark.encode()), "final": False})
        self.made("POST", topic, {"bytes": "", "final": True})
        self.made("POST", "/v1/producer/await", {"watch": has["watch"], "add": [has["invocation"]], "timeout_s": 0})
        put = {"op": "put", "size": 9, "job_id": has["invocation"], "kind": "args"}
        put = self.add("payloads/presign", **put)
        assert self.line("PUT", put["url"], b"123456789", raw=True).status == 201
        has |= {"payload": put["key"], "payload url": put["url"]}
        told = {"worker_id": has["worker"], "kind": "invocation.event", "payload": {"says": f"{self.mark} says"}}
        self.made("POST", "/v1/daemon/event", {**told, "invocation_id": has["invocation"], "queue": has["queue"]})

    def submitted(self) -> str:
        id_ = new_id()
        function = {"module": self.has["function"], "qualname": "f", "version": "1"}
        call = {"invocation_id": id_, "queue": self.has["queue"], "function": function, "args_blob": b64(self.mark)}
        self.made("POST", "/v1/producer/submit", {**call, "run_config": {"key": f"{self.mark}-{id_}"}})
        return id_

    # -- and all of it

    def canaries(self) -> list[str]:
        """What no answer to anybody else may hold."""
        ids = ("token", "repo", "enroll token", "signing worker", "daemon key", "worker", "order", "exec", "commit")
        calls = ("ended", "invocation", "queued")
        return [self.mark, *(str(self.has[kind]) for kind in (*ids, *calls)), b64(self.mark)]

    def state(self) -> dict[str, str]:
        """Every answer that its owner can read; ages, and when a token was used last, are no part of it."""
        found = {}
        for row in TABLE:
            if row.method != "GET" or row.tier not in ("named", "plain") or row.is_admin:
                continue
            for path in self.paths(row.pattern):
                answer = self.line("GET", path, token=self.tokens["full"])
                assert answer.status in (200, 422, 501) or "nymph-releases" in path, (path, answer.status, answer.raw)
                body = answer.raw
                if shared := SHARED.get(row.pattern):
                    body = json.dumps([one for one in answer.body[shared] if one["namespace"] == self.ns]).encode()
                found[path] = TIMES.sub(r'"\1":?', body.decode("latin-1"))
        return found

    def lease_left_s(self) -> float:
        """Of the call that runs."""
        return float(self.made("GET", self.own(f"invocations/{self.has['invocation']}"))["leaseLeftS"])

    def paths(self, pattern: str) -> list[str]:
        """The paths of a route that name what it has."""
        filled = [pattern]
        if "{id}" in pattern and "invocations/" in pattern:
            calls = ("ended",) if "stream" in pattern else ("ended", "invocation", "queued")
            filled = [pattern.replace("{id}", self.has[call]) for call in calls]
        elif "{id}/keys" in pattern:
            filled = [pattern.replace("{id}", self.has["signing worker"])]
        query = "?timeout_s=0&hold_s=0&wait_s=0"
        if pattern.endswith("/changes"):
            # How a worker looks is told by who looks every now and then; its row is read besides.
            query += f"&since={self.has['number']}&kinds={','.join(kind for kind in KINDS if kind != 'workers')}"
        if pattern.endswith("/instances"):
            query = ""
        if "log/stream" in pattern:
            return []  # of one that has not ended there is no end
        return [fill(one, self.has) + query for one in filled]


SHARED = {"/v1/namespaces/{ns}/providers": "providers", "/v1/namespaces/{ns}/queues": "queues"}
"""Lists that show what the siblings have, too."""
TIMES = re.compile(r'"(lastUsedAt|oldest_age_s|throughput_per_s|cursor|leaseLeftS)": ?("[^"]*"|[^,}]*)')
SEGMENTS = {
    "namespaces": "ns",
    "invocations": "invocation",
    "queues": "queue",
    "topics": "topic",
    "exec": "exec",
    "jobs": "exec",
    "workers": "worker",
    "keys": "daemon key",
    "blobs": "payload",
    "tokens": "token",
    "schedules": "schedule",
    "secrets": "secret",
    "providers": "provider",
    "instances": "instance",
    "modes": "mode",
    "tunnels": "tunnel",
    "mounts": "mount",
    "storages": "storage",
    "code-repos": "repo",
    "code-archives": "kept archive",
    "enroll-tokens": "enroll token",
    "nymph-releases": "release",
}
"""What a parameter of a path names, by what stands before it. A new one must be placed here."""
PARAMETER = re.compile(r"([a-z-]+)/\{(\w+)(?:\.\.\.)?\}")


@functools.cache
def parameters(pattern: str) -> dict[str, str]:
    """Parameter -> the kind of what it names."""
    found = {name: SEGMENTS[before] for before, name in PARAMETER.findall(pattern)}
    if "{id}/keys" in pattern:
        found["id"] = "signing worker"
    return found


def fill(pattern: str, has: dict[str, Any]) -> str:
    """A path of these."""
    path = pattern.replace("...}", "}")
    for name, kind in parameters(pattern).items():
        value = str(has.get(kind, "none"))
        path = path.replace(f"{{{name}}}", quote(value, safe="/" if kind in ("payload", "kept archive") else ""))
    return path


def hello(machine: str, label: str, lanes: list[str], session: str | None = None) -> dict[str, Any]:
    return {
        "machine_id": machine,
        "label": label,
        "tags": [f"{label}-tag"],
        "capabilities": {"runners": ["process"], "workdir": f"/{label}"},
        "versions": {"daemon": "1", "protocol": "1"},
        "lanes": lanes,
        **({} if session is None else {"session": session}),
    }
