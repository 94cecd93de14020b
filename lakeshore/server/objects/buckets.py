"""Buckets made and deleted, for the storages that are whole ones.

Rules: one that is there is looked at first, and adopted: making it twice does no harm, whoever lost an answer. One with
objects in it is not deleted: nothing here deletes an object. The region of AWS's is the storage's, or its URLs would
not work.
Reference: get-started/storages, "Provisioning a bucket"; S-225, S-240…S-242.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..aws import DEFAULT_REGION, AwsError
from ..http import HttpError
from ..structure import bad_field
from .access import Access

_GONE: Final = ("404", "NoSuchBucket")
_TAKEN: Final = ("BucketAlreadyExists", "BucketAlreadyOwnedByYou")
_NO_CONSTRAINT: Final = (DEFAULT_REGION, "auto")
_NOT_OURS: Final = (
    "the keys are wrong, or may not look at it, or that bucket is another account's: choose another name, or "
    "`lakeshore secrets rotate` them"
)


async def provision(access: Access, options: Mapping[str, str]) -> bool:
    """There is the bucket; whether it was made. HttpError 422, 501, 502."""
    return await access.ask(lambda: _provision(access, options))


async def purge(access: Access) -> bool:
    """There is no such bucket any more; whether there was. HttpError 409 while it has objects, 422, 501, 502."""
    return await access.ask(lambda: _purge(access))


def _provision(access: Access, options: Mapping[str, str]) -> bool:
    client, bucket = access.client("s3"), access.row.bucket
    parameters = _parameters(client, options)
    region = access.row.config.get("region")
    if region and region not in _NO_CONSTRAINT:
        parameters.setdefault("CreateBucketConfiguration", {"LocationConstraint": region})
    if _is_there(access, client):
        return False
    try:
        client.create_bucket(Bucket=bucket, **parameters)
    except client.exceptions.ClientError as error:
        if _code(error) in _TAKEN and _is_there(access, client):
            return False  # by somebody else meanwhile, or by a try whose answer was lost
        raise
    return True


def _is_there(access: Access, client: Any) -> bool:
    bucket = access.row.bucket
    try:
        told = client.head_bucket(Bucket=bucket)
    except client.exceptions.ClientError as error:
        code = _code(error)
        if code in _GONE:
            return False
        if code in ("403", "AccessDenied", "Forbidden"):
            what = f"{code}: bucket {bucket!r} is not shown to these keys"
            raise AwsError(what, code=code, hint=_NOT_OURS) from error
        raise
    found = told.get("BucketRegion") or told["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
    if access.endpoint is None and found and found != access.region:
        hint = f"say that region: its URLs are signed for {access.region} otherwise, and refused"
        raise bad_field("config.region", f"bucket {bucket!r} is there, in region {found:.80}", hint=hint)
    return True


def _purge(access: Access) -> bool:
    client, bucket = access.client("s3"), access.row.bucket
    try:
        client.delete_bucket(Bucket=bucket)
    except client.exceptions.ClientError as error:
        code = _code(error)
        if code in _GONE:
            return False
        if code == "BucketNotEmpty":
            hint = "delete its objects with an S3 client of yours first, or remove the storage without --purge"
            raise HttpError(409, f"bucket {bucket!r} is not empty", "config.bucket", hint, awsCode=code) from error
        raise
    return True


def _code(error: Any) -> str:
    return str(error.response["Error"].get("Code"))


def _parameters(client: Any, options: Mapping[str, str]) -> dict[str, Any]:
    """What CreateBucket is told: texts as they are, true and false, JSON for what is made of parts. HttpError 422."""
    known = client.meta.service_model.operation_model("CreateBucket").input_shape.members
    read: dict[str, Callable[[str], Any]] = {"string": str, "boolean": _boolean}
    found = {}
    for name, text in options.items():
        if name == "Bucket" or name not in known:
            others = ", ".join(sorted(one for one in known if one != "Bucket"))
            raise bad_field("s3Options", f"{name!r:.80} is no option of CreateBucket", hint=f"it takes {others}")
        try:
            found[name] = read.get(known[name].type_name, json.loads)(text)
        except (ValueError, RecursionError):
            what = "true or false" if known[name].type_name == "boolean" else "JSON"
            raise bad_field("s3Options", f"{name}: must be {what}") from None
    return found


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
