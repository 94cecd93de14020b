"""Object stores for tests: a real S3 server on a directory, and an emulation of AWS that also has STS."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import httpx
from botocore.config import Config

KEY_ID, SECRET = "LAKEADMIN", "lake:secret/123"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3:
    """`root` has a directory for each bucket; signatures and their expiry are verified."""

    url: str
    root: Path

    def client(self) -> Any:
        """What somebody with the keys has."""
        return client(self.url)

    def has(self, bucket: str) -> None:
        """Make a bucket, by the store itself: it keeps in mind what it knows of its directory."""
        self.client().create_bucket(Bucket=bucket)

    def keys(self, bucket: str) -> dict[str, bytes]:
        """Every object of a bucket."""
        top = self.root / bucket
        return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@contextlib.contextmanager
def s3(root: Path) -> Iterator[S3]:
    """`rclone serve s3` on a directory of its own."""
    root.mkdir()
    log = root.parent / f"{root.name}.log"
    argv = [str(Path(sys.executable).parent / "rclone"), "serve", "s3", "--addr", "127.0.0.1:0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, "--auth-key", f"{KEY_ID},{SECRET}", "--config", "", str(root)],
            stdout=out,
            stderr=out,
            cwd=root,
        )
    try:
        deadline = time.monotonic() + 60
        while (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"rclone did not start:\n{log.read_text()}")
            time.sleep(0.02)
        yield S3(url=found[0], root=root)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def aws() -> Iterator[str]:
    """moto, which is S3, STS and EC2 at one address. It checks no signature of a URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def client(url: str) -> Any:
    """A client of a store, with its keys."""
    keys = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}
    once = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    return botocore.session.Session().create_client(
        "s3", region_name="us-east-1", endpoint_url=url, config=once, **keys
    )


def moved(method: str, url: str, content: bytes | None = None, **headers: str) -> Any:
    """What a plain client gets."""
    with httpx.Client(timeout=20) as client:
        return client.request(method, url, content=content, headers=headers)
