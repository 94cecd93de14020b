"""Google's token endpoint and Compute Engine, as their pages say, for what a launcher asks: it checks the signed
assertion and the bearer, and keeps machines in memory. One `requestId` makes one machine, one name too.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import google.auth.jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

PROJECT, ZONE = "lab-1", "europe-west1-b"


@dataclass(slots=True)
class Cloud:
    """`drop_answers`: so many of the next answers to an insert are lost. `refuses`: how its operations end."""

    url: str = ""
    key: dict[str, Any] = field(default_factory=dict)
    certificate: bytes = b""
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    drop_answers: int = 0
    refuses: dict[str, str] | None = None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud: Cloud

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        parts = urlsplit(self.path)
        if parts.path == "/token":
            self._token(parse_qs(body.decode()))
        elif self._may():
            self._insert(json.loads(body), parse_qs(parts.query)["requestId"][0])

    def do_GET(self) -> None:
        if not self._may():
            return
        parts, cloud = urlsplit(self.path), self.cloud
        if parts.path.endswith("/instances"):
            self._say(200, {"items": list(cloud.machines.values())})
        elif "/operations/" in parts.path:
            told: dict[str, Any] = {"name": "op-1", "status": "DONE"}
            self._say(200, told if cloud.refuses is None else {**told, "error": {"errors": [cloud.refuses]}})
        else:
            self._say(200, {"name": ZONE})

    def do_DELETE(self) -> None:
        if self._may():
            found = self.cloud.machines.pop(self.path.rpartition("/")[2], None)
            self._say(200, {"name": "op-2", "status": "RUNNING"}) if found else self._refuse(404, "notFound")

    def _token(self, said: dict[str, list[str]]) -> None:
        assert said["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        try:
            claims = google.auth.jwt.decode(said["assertion"][0], certs=self.cloud.certificate)
        except ValueError:
            self._say(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
            return
        assert claims["iss"] == self.cloud.key["client_email"] and "compute" in claims["scope"]
        token = f"ya29.{len(self.cloud.tokens)}-planted-bearer"
        self.cloud.tokens.add(token)
        self._say(200, {"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _may(self) -> bool:
        self.cloud.asked.append(f"{self.command} {self.path}")
        if self.headers.get("Authorization", "").removeprefix("Bearer ") in self.cloud.tokens:
            return True
        self._refuse(401, "authError")
        return False

    def _insert(self, wanted: dict[str, Any], request: str) -> None:
        cloud = self.cloud
        if cloud.refuses is None and request not in cloud.requests:
            if wanted["name"] in cloud.machines:
                self._refuse(409, "alreadyExists")
                return
            cloud.requests[request] = wanted["name"]
            cloud.machines[wanted["name"]] = {**wanted, "status": "RUNNING"}
        if cloud.drop_answers:
            cloud.drop_answers -= 1
            self.close_connection = True
            return
        self._say(200, {"name": "op-1", "status": "RUNNING"})

    def _refuse(self, status: int, reason: str) -> None:
        self._say(status, {"error": {"code": status, "message": f"it is {reason}", "errors": [{"reason": reason}]}})

    def _say(self, status: int, told: dict[str, Any]) -> None:
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def google_cloud() -> Iterator[Cloud]:
    """One that answers."""
    cloud = Cloud()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cloud": cloud}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    cloud.url = f"http://127.0.0.1:{server.server_address[1]}"
    cloud.key, cloud.certificate = service_account(f"{cloud.url}/token")
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


def service_account(token_uri: str) -> tuple[dict[str, Any], bytes]:
    """The JSON of a key, and the certificate that tells its signatures."""
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, made.public_key(), 1)
    builder = builder.not_valid_before(now - timedelta(minutes=1)).not_valid_after(now + timedelta(days=1))
    signed = builder.sign(made, hashes.SHA256())
    pem = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    key = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "k1",
        "private_key": pem,
        "client_email": "lab@lab-1.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }
    return key, signed.public_bytes(serialization.Encoding.PEM)
