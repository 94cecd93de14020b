"""An emulated EC2, and machines of it: what a launch gave them to run is run here, below a directory of its own."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
from daemons import MARK
from moto.server import ThreadedMotoServer
from served import JSON, Answer, Served

from lakeshore.nymph.keeping import processes

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"accessKeyId": "AKIAEXAMPLE", "secretAccessKey": "planted-secret-key"}
VERSION = "9.9.9"
OCTETS = {"Content-Type": "application/octet-stream"}


@contextlib.contextmanager
def emulated_ec2() -> Iterator[str]:
    """Its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class Ec2:
    """What a person sees of it."""

    def __init__(self, url: str) -> None:
        session = botocore.session.Session()
        self.client = session.create_client(
            "ec2",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id=KEYS["accessKeyId"],
            aws_secret_access_key=KEYS["secretAccessKey"],
        )

    @property
    def image(self) -> str:
        return str(self.client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"])

    def all(self) -> list[dict[str, Any]]:
        found = self.client.describe_instances()["Reservations"]
        return [row for reservation in found for row in reservation["Instances"]]

    def tags(self, row: dict[str, Any]) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in row["Tags"]}

    def states(self) -> dict[str, str]:
        return {row["InstanceId"]: row["State"]["Name"] for row in self.all()}

    def userdata(self, instance: str) -> str:
        told = self.client.describe_instance_attribute(InstanceId=instance, Attribute="userData")
        data = base64.b64decode(told["UserData"]["Value"])
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


class Client:
    """A namespace of a server, and a provider `cloud` in it."""

    def __init__(self, server: Served, ns: str) -> None:
        self.server, self.ns = server, ns

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        return self.server.call(method, f"/v1/namespaces/{self.ns}/{path}", body, encoding=JSON)

    def launch(self, **body: Any) -> Answer:
        return self("POST", "daemons/launch", {"provider": "cloud", **body})

    def worker(self, id_: str) -> Any:
        answer = self("GET", f"workers/{id_}")
        return answer.body if answer.status == 200 else None


def push_program(server: Served, ns: str) -> None:
    """What machines of the namespace run: this checkout, by a file that starts it."""
    lines = (
        "import os, sys",
        f"os.environ['PYTHONPATH'] = {str(ROOT)!r}",
        f"python = {sys.executable!r}",
        "os.execv(python, [python, '-m', 'lakeshore', 'nymph', *sys.argv[1:]])",
    )
    body = "\n".join(lines).encode() + b"\n"
    told = server.raw("POST", f"/v1/admin/nymph-releases?label=test&target=any&version={VERSION}", body, OCTETS)
    assert told.status in (200, 201), told.body
    told = server.call("PUT", f"/v1/namespaces/{ns}/nymph-target", {"version": VERSION}, encoding=JSON)
    assert told.status == 200, told.body


class Booted:
    """One machine that runs its script; what is below `root` is its disk."""

    def __init__(self, root: Path, script: str, shell: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, self.said = root, root / "console"
        path = root / "userdata"
        path.write_text(script)
        env = {"PATH": os.environ["PATH"], "HOME": str(root), "DREAMLAKE_ROOT": str(root), MARK: str(root)}
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(
                [shell, str(path)],
                env=env,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def log(self) -> str:
        path = self.root / "var/log/dreamlake/nymph.log"
        return self.said.read_text() + (path.read_text() if path.exists() else "")

    def off(self) -> None:
        """Pull the plug."""
        for pid in processes.table():
            if processes.variable(pid, MARK) == str(self.root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
