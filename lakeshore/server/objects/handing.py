"""What others get to reach a store themselves: a URL for one object, or keys that end.

Rules: a URL is computed, and asks nobody; that there is such a bucket or object is found out by who uses it. Its key
stands below the storage's prefix, and no spelling of it leads out: clients and stores that read a key as a path would
follow `.` and `..`. Keys that end are those of STS, asked at the storage's own endpoint where it has one.
Reference: get-started/storages, "Presigned URLs", "Temporary credentials"; S-226…S-233, S-657, S-658.
"""

from __future__ import annotations

import time
import unicodedata
from typing import Any, Final

from ..http import HttpError
from ..render import iso
from ..structure import bad_field
from .access import Access

URL_S, LONGEST_URL_S = 3600, 86_400
KEYS_S, SHORTEST_S, LONGEST_S = 3600, 900, 129_600
LONGEST_KEY: Final = 1024
"""Bytes of a whole key, in UTF-8: what S3 takes."""
_NO_STS: Final = "few stores but AWS and Ceph have GetSessionToken: use presigned URLs"
_OPERATIONS: Final = {"get": "get_object", "put": "put_object"}


def whole_key(prefix: str, key: str) -> str:
    """The key in the bucket. HttpError 422."""
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in key):
        raise bad_field("key", "must be text without control characters")
    if key.startswith("/"):
        raise bad_field("key", "begins below the storage, without a slash")
    if not {".", ".."}.isdisjoint(key.split("/")):
        raise bad_field("key", "must not have a part that is . or ..: who reads it as a path would be led elsewhere")
    whole = f"{prefix}/{key}" if prefix else key
    if len(whole.encode()) > LONGEST_KEY:
        raise bad_field("key", f"has at most {LONGEST_KEY} bytes, with the storage's prefix")
    return whole


async def presigned(access: Access, key: str, operation: str, expires_s: int) -> dict[str, Any]:
    """A URL that gets or puts one object for so long. HttpError 422, 501."""
    bucket, whole = access.row.bucket, whole_key(access.row.prefix, key)
    seconds = min(expires_s, LONGEST_URL_S)

    def sign() -> str:
        client = access.client("s3")
        asked = {"Bucket": bucket, "Key": whole}
        return str(client.generate_presigned_url(_OPERATIONS[operation], Params=asked, ExpiresIn=seconds))

    expires_at = time.time() + seconds
    url = await access.compute(sign)
    return {
        "url": url,
        "key": whole,
        "bucket": bucket,
        "operation": operation,
        "expiresIn": seconds,
        "expiresAt": iso(expires_at),
    }


async def temporary(access: Access, duration_s: int) -> dict[str, Any]:
    """Keys that end after so long. HttpError 422, 501, 502."""
    try:
        told = await access.ask(lambda: access.client("sts").get_session_token(DurationSeconds=duration_s))
    except HttpError as error:
        if access.endpoint is not None and error.hint is None:
            error.hint = _NO_STS
        raise
    keys = told["Credentials"]
    return {
        "accessKeyId": keys["AccessKeyId"],
        "secretAccessKey": keys["SecretAccessKey"],
        "sessionToken": keys["SessionToken"],
        "expiration": iso(keys["Expiration"].timestamp()),
        "region": access.region,
        "endpoint": access.endpoint,
    }
