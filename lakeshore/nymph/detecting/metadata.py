"""What the metadata services of AWS and Google Cloud say of a machine.

Rules: their addresses are fixed, so on any other host a request goes nowhere: each has one short limit for all that it
takes, and both are asked at the same time. AWS is asked for a session token first (IMDSv2), and without one if that is
refused (IMDSv1). An answer that is not the service's own (a captive network's page) says nothing. The variables that
AWS's and Google's own tools obey are obeyed: other addresses, and not asking at all.
Reference: nymph/daemons, "Host detection"; N-073, N-074, N-411.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import trio

from ...net.async_core import BaseAsyncConnection
from ...net.errors import NetError
from ...net.response import Response
from ...net.target import parse_target
from ...net.trio_ import AsyncConnection

AWS_URL: Final = "http://169.254.169.254"
GCP_URL: Final = "http://metadata.google.internal"
_AWS_TOKEN: Final = "/latest/api/token"  # noqa: S105 - a path
_AWS_DOCUMENT: Final = "/latest/dynamic/instance-identity/document"
_GCP_MACHINE: Final = "/computeMetadata/v1/instance/machine-type"
_FLAVOR: Final = ("Metadata-Flavor", "Google")
_MOST_BYTES: Final = 64 * 1024


def aws_tags_of(document: bytes) -> tuple[str, ...] | None:
    """The tags in an instance identity document; None when it is none."""
    try:
        said = json.loads(document)
    except ValueError:
        return None
    if not isinstance(said, dict) or not _word(said.get("instanceType")):
        return None
    region = said.get("region")
    return (f"aws:instance-type={said['instanceType']}", *([f"region={region}"] if _word(region) else []))


def gcp_tags_of(machine_type: bytes) -> tuple[str, ...] | None:
    """The tag in `projects/<n>/machineTypes/<type>`; None when it is none."""
    path, slash, name = machine_type.decode("latin-1").strip().rpartition("/machineTypes/")
    return (f"gcp:machine-type={name}",) if slash and path.startswith("projects/") and _word(name) else None


def _word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) < 100 and value.isprintable() and not set(value) & set(" /=<>")


async def ask_aws(environ: Mapping[str, str], limit_s: float) -> tuple[str, ...] | None:
    """The machine's tags, when this is EC2; within `limit_s` seconds."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    url = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or AWS_URL
    with trio.move_on_after(limit_s):
        try:
            async with AsyncConnection(parse_target(url), connect_timeout=limit_s) as service:
                token = await _token(service, limit_s)
                headers = (("X-aws-ec2-metadata-token", token),) if token else ()
                answer = await service.request("GET", _AWS_DOCUMENT, headers=headers, max_body=_MOST_BYTES)
        except (NetError, ValueError):
            return None
        return aws_tags_of(answer.body) if answer.status == 200 else None
    return None


async def _token(service: BaseAsyncConnection, limit_s: float) -> str | None:
    """A session token. Its answer is dropped on the way into a container, so half of the time is left for IMDSv1."""
    answer: Response | None = None
    with trio.move_on_after(limit_s / 2):
        ttl = (("X-aws-ec2-metadata-token-ttl-seconds", "60"),)
        answer = await service.request("PUT", _AWS_TOKEN, headers=ttl, body=b"", max_body=_MOST_BYTES)
    if answer is None or answer.status != 200:
        return None
    text = answer.body.decode("latin-1").strip()
    return text if text.isascii() and text.isprintable() and " " not in text else None


async def ask_gcp(environ: Mapping[str, str], limit_s: float) -> tuple[str, ...] | None:
    """The machine's tags, when this is Google Cloud; within `limit_s` seconds."""
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        return None
    host = environ.get("GCE_METADATA_HOST")
    with trio.move_on_after(limit_s):
        try:
            target = parse_target(f"http://{host}" if host else GCP_URL)
            async with AsyncConnection(target, connect_timeout=limit_s) as service:
                answer = await service.request("GET", _GCP_MACHINE, headers=(_FLAVOR,), max_body=_MOST_BYTES)
        except (NetError, ValueError):
            return None
        ours = answer.status == 200 and answer.headers.get(_FLAVOR[0]) == _FLAVOR[1]
        return gcp_tags_of(answer.body) if ours else None
    return None
