"""Machines of AWS: RunInstances with the worker's id as its ClientToken, so that asking again makes no second one.

A read goes first: what keeps us from AWS at all is then known to have made nothing, and the image's root device is
known. From RunInstances on, an answer that does not come means that nobody knows.
IAM: ec2:RunInstances, ec2:Describe*, ec2:CreateTags, ec2:TerminateInstances, ec2:GetConsoleOutput, and iam:PassRole
with an `iam_instance_profile`.
Reference: admin/happy-paths/13; S-149, S-171…S-175.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import trio

from ..aws import Aws, AwsError, Keypair, keypair_of
from ..http import HttpError
from ..structure import bad_field
from .contract import WORKER_TAG, Instance, LaunchFailed, LaunchUnknown, Machine, Means, Resolved, tags_of

DEFAULT_TYPE: Final = "t3.medium"
MOST_USERDATA: Final = 16 * 1024
"""What EC2 takes; cloud-init unpacks what is compressed."""
_STATES: Final = {
    "pending": "starting",
    "running": "running",
    "shutting-down": "stopping",
    "stopping": "stopping",
    "stopped": "stopped",
    "terminated": "terminated",
}
_THROTTLED: Final = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"})
_AGAIN_AFTER_S: Final = (1.0, 3.0, 8.0)
_LOST: Final = frozenset(
    {
        *(
            None,
            "unknown",
            "InternalError",
            "InternalFailure",
            "ServiceUnavailable",
            "Unavailable",
            "500",
            "502",
            "503",
        ),
        *("504", "ReadTimeoutError", "ConnectTimeoutError", "ConnectionClosedError", "EndpointConnectionError"),
        *("ConnectionError", "HTTPClientError", "ProxyConnectionError", "SSLError", "ResponseParserError"),
    }
)
"""Whoever says so, or nothing, may have made a machine."""
_NOT_THERE: Final = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_NO_LATEST: Final = frozenset({"UnsupportedOperation", "InvalidParameterCombination", "InvalidParameterValue"})

T = TypeVar("T")


def make(provider: Resolved, means: Means) -> Ec2:
    """HttpError 422 for a provider without usable keys."""
    try:
        keypair = keypair_of(provider.kwargs.get("aws_credentials"))
    except ValueError as error:
        hint = (
            "`lakeshore secrets add <name> --kind aws_keypair` keeps them, and "
            f"`lakeshore providers update {provider.name} --kwarg aws_credentials.$secret=<name>` refers to them"
        )
        raise HttpError(422, str(error), field="provider", hint=hint) from None
    return Ec2(provider, keypair, means.aws)


class Ec2:
    """One provider of the kind EC2."""

    def __init__(self, provider: Resolved, keypair: Keypair, aws: Aws) -> None:
        self._provider, self._keypair, self._aws = provider, keypair, aws
        self._kwargs = provider.kwargs

    async def launch(self, machine: Machine) -> str | None:
        """As the contract says. HttpError 413 for a script that EC2 does not take."""
        wanted = self._wanted(machine)
        image = await self._ask(lambda ec2: _image(ec2, wanted["ImageId"]))
        wanted["BlockDeviceMappings"] = self._disks(image)
        told = await self._run({name: value for name, value in wanted.items() if value})
        found = told.get("Instances") if isinstance(told, Mapping) else None
        if not isinstance(found, list) or not found or not isinstance(found[0], Mapping):
            raise LaunchUnknown("EC2 does not say which instance it made")
        return str(found[0].get("InstanceId"))

    async def instances(self) -> list[Instance]:
        """Of the region."""
        return await self._ask(_instances)

    async def terminate(self, instance_id: str) -> None:
        """As the contract says."""
        try:
            await self._ask(lambda ec2: ec2.terminate_instances(InstanceIds=[instance_id]))
        except LaunchFailed as error:
            if error.code not in _NOT_THERE:
                raise

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        """`latest` is for machines on Nitro; of others there is what they printed when they began."""
        try:
            told = await self._ask(lambda ec2: ec2.get_console_output(InstanceId=instance_id, Latest=latest))
        except LaunchFailed as error:
            if not latest or error.code not in _NO_LATEST:
                raise
            told = await self._ask(lambda ec2: ec2.get_console_output(InstanceId=instance_id))
        return str(told.get("Output") or "")

    # --- inside

    def _wanted(self, machine: Machine) -> dict[str, Any]:
        kwargs = self._kwargs
        profile = kwargs.get("iam_instance_profile")
        tags = {**machine.cloud_tags, "Name": machine.name or machine.label, **tags_of(machine)}
        listed = [{"Key": name, "Value": value} for name, value in tags.items()]
        return {
            "ClientToken": machine.worker,
            "ImageId": kwargs.get("image_id") or kwargs.get("ami"),
            "InstanceType": kwargs.get("instance_type") or DEFAULT_TYPE,
            "MinCount": 1,
            "MaxCount": 1,
            "KeyName": kwargs.get("key_name"),
            "SubnetId": kwargs.get("subnet_id"),
            "SecurityGroupIds": kwargs.get("security_group_ids"),
            "IamInstanceProfile": profile and {"Arn" if str(profile).startswith("arn:") else "Name": str(profile)},
            "TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in ("instance", "volume")],
            "UserData": _userdata(machine.userdata),
        }

    def _disks(self, image: Mapping[str, Any]) -> list[dict[str, Any]]:
        size = self._kwargs.get("root_volume_size_gb")
        if size is None:
            return []
        return [{"DeviceName": image.get("RootDeviceName") or "/dev/sda1", "Ebs": {"VolumeSize": int(size)}}]

    async def _run(self, wanted: Mapping[str, Any]) -> Any:
        for pause in (*_AGAIN_AFTER_S, None):
            try:
                return await self._ask(lambda ec2: ec2.run_instances(**wanted))
            except LaunchFailed as error:
                if error.code in _THROTTLED and pause is not None:
                    await trio.sleep(pause)
                elif error.code in _LOST:
                    raise LaunchUnknown(str(error), code=error.code, hint=error.hint) from error
                else:
                    raise
        raise AssertionError("the last try ends it")

    async def _ask(self, work: Callable[[Any], T]) -> T:
        region = self._kwargs.get("region")

        def asked() -> T:
            return work(self._aws.client("ec2", self._keypair, region=region))

        try:
            return await self._aws.ask(self._provider.ns, asked)
        except AwsError as error:
            if error.status in (501, 503):
                raise error.refusal() from error
            raise LaunchFailed(error.message, code=error.code, hint=error.hint) from error


def _userdata(text: str) -> bytes:
    data = text.encode()
    if len(data) > MOST_USERDATA:
        data = gzip.compress(data, 9, mtime=0)
    if len(data) > MOST_USERDATA:
        raise bad_field(
            "bootstrap_script",
            f"is too large for EC2, which takes {MOST_USERDATA // 1024} KiB, compressed, with the rest of the script",
            hint="let it download the larger part, or make it a setup command",
            status=413,
        )
    return data


def _image(ec2: Any, image: str) -> Mapping[str, Any]:
    found = ec2.describe_images(ImageIds=[image]).get("Images") or []
    return found[0] if found else {}


def _instances(ec2: Any) -> list[Instance]:
    found = []
    for page in ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 1000}):
        for reservation in page.get("Reservations", ()):
            found += [_instance(row) for row in reservation.get("Instances", ())]
    return found


def _instance(row: Mapping[str, Any]) -> Instance:
    tags = {tag.get("Key"): tag.get("Value") for tag in row.get("Tags") or ()}
    since = row.get("LaunchTime")
    return Instance(
        id=str(row.get("InstanceId")),
        state=_STATES.get((row.get("State") or {}).get("Name", ""), "unknown"),
        name=tags.get("Name"),
        type=row.get("InstanceType"),
        address=row.get("PublicIpAddress") or row.get("PrivateIpAddress"),
        since=None if since is None else since.isoformat(),
        worker=tags.get(WORKER_TAG),
    )
