"""A daemon that signs with the `cryptography` package, written from the scheme's description and not from our code."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from typing import Any

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from served import MSGPACK, Answer, Served, new_id

HELLO = "/v1/daemon/hello"
POLL = "/v1/daemon/poll"
KEYS = "/v1/daemon/keys"


def text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Signer:
    """One daemon: a machine, a label, a key. `worker_id` and `ns` are what its hello was answered."""

    def __init__(self, server: Served, label: str = "rig") -> None:
        self.server, self.label = server, label
        self.machine_id = f"m-{new_id()}"
        self.session, self.n = f"01{new_id().upper()}", 0
        self.worker_id = ""
        self.new_key()

    def new_key(self) -> None:
        self.key = Ed25519PrivateKey.generate()

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def key_id(self) -> str:
        return text(hashlib.sha256(self.public).digest())[:16]

    def headers(
        self, method: str, path: str, body: bytes, *, who: str | None = None, at: float | None = None
    ) -> dict[str, str]:
        nonce, seconds = text(os.urandom(16)), str(int(time.time() if at is None else at))
        digest = hashlib.sha256(body).hexdigest()
        worker = self.worker_id if who is None else who
        lines = ("lsd-v1", method, path.partition("?")[0], worker, self.key_id, seconds, nonce, digest)
        return {
            "X-LS-Key-Id": self.key_id,
            "X-LS-Timestamp": seconds,
            "X-LS-Nonce": nonce,
            "X-LS-Signature": text(self.key.sign("\n".join(lines).encode())),
        }

    def send(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        bearer: str = "",
        who: str | None = None,
        at: float | None = None,
        **changed: str | None,
    ) -> Answer:
        """Send it signed, without a bearer unless one is named. `changed` headers (`_` for `-`): None leaves it out."""
        data = msgpack.packb(body) if isinstance(body, dict) else body
        headers = self.headers(method, path, data or b"", who=who, at=at)
        headers |= {"Authorization": f"Bearer {bearer}" if bearer else ""}
        if isinstance(body, dict):
            headers["Content-Type"] = MSGPACK
        names = {name.lower(): name for name in headers}
        for name, value in changed.items():
            header = names.get(name.replace("_", "-").lower(), name.replace("_", "-"))
            headers.pop(header, None)
            if value is not None:
                headers[header] = value
        self.last = (method, path, data, headers)
        return self.server.raw(method, path, data, headers)

    def hello_body(self, **more: Any) -> dict[str, Any]:
        return {
            "machine_id": self.machine_id,
            "label": self.label,
            "tags": [],
            "capabilities": {"runners": ["process"], "max_invocations": 1, "workdir": "/tmp"},
            "versions": {"protocol": "1", "daemon": "0.4.0", "arch": "x86_64"},
            "public_key": text(self.public),
            **more,
        }

    def hello(self, bearer: str = "", **changed: Any) -> Answer:
        answer = self.send(HELLO, self.hello_body(), bearer=bearer, who=self.machine_id, **changed)
        if answer.status == 200 and answer.body["worker_id"]:
            self.worker_id = answer.body["worker_id"]
        return answer

    def poll_body(self, **more: Any) -> dict[str, Any]:
        self.n += 1
        return {"worker_id": self.worker_id, "session": self.session, "n": self.n, "timeout_s": 0, **more}

    def poll(self, **changed: Any) -> Answer:
        return self.send(POLL, self.poll_body(), **changed)

    def again(self) -> Answer:
        """The last request, byte for byte."""
        return self.server.raw(*self.last)
