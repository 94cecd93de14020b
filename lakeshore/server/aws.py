"""AWS, and what speaks as it does: one place that makes a botocore client and says whose fault an error is.

    client = aws.client("s3", keypair, region="eu-central-1", endpoint=None)     # in a thread
    answer = await aws.ask(ns, lambda: aws.client("ec2", keypair, region=region).run_instances(...))
    url = await aws.compute(lambda: aws.client("s3", keypair).generate_presigned_url(...))

Rules: nothing here runs on the loop. `ask` has few threads for each owner, and a bound on the whole question: an
endpoint that hangs costs its own namespace, and nobody else. `compute` is for what needs no network. Only the keys that
were given are used: no profile, no role, no file of whoever runs the server. Of the environment botocore's own count:
AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 (…_STS, …_EC2), AWS_CA_BUNDLE and the proxies.
Reference: api/auth-and-secrets, "Secrets"; S-104…S-106, S-775.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import trio

from .http import HttpError

T = TypeVar("T")

KIND: Final = "aws_keypair"
DEFAULT_REGION: Final = "us-east-1"
CONNECT_S, READ_S, TRIES = 5.0, 10.0, 2
ASK_S: Final = 25.0
"""The bound on one question, with all its requests and the names that they look up: who asks us waits for 30 s."""
MOST_ANSWER: Final = 32 << 20
"""Bytes of one answer, none of which is an object: an endpoint is whatever answers there."""
_THREADS: Final = 4
_LONGEST: Final = 200
_PIECE: Final = 1 << 16
_LOOK: Final = "look at the endpoint: something else may answer there"
_FORM: Final = "aws_keypair secret must be formatted as <access_key_id>:<secret_access_key>"
_SPELLED: Final = {
    "key_id": ("accessKeyId", "access_key_id", "AccessKeyId", "aws_access_key_id"),
    "secret": (
        "secretAccessKey",
        "secret_access_key",
        "SecretAccessKey",
        "aws_secret_access_key",
        "AWS_SECRET_ACCESS_KEY",
    ),
    "session": ("sessionToken", "session_token", "SessionToken", "aws_session_token"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keypair:
    """A pair of keys; `session` where they are temporary ones."""

    key_id: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)


class AwsError(Exception):
    """What was asked did not come about; `code` is the other side's own word, and `hint` says what to do.

    `status` 502: the other side refused, or does not answer; 501: botocore is missing; 422: what was asked makes no
    sense; 503: too much is being asked.
    """

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None, status: int = 502) -> None:
        super().__init__(message)
        self.message, self.code, self.hint, self.status = message, code, hint, status

    def refusal(self, field: str | None = None) -> HttpError:
        """As a route answers it; `awsCode` is the code."""
        extra: dict[str, Any] = {} if self.code is None else {"awsCode": self.code}
        return HttpError(self.status, self.message, field, self.hint, **extra)


class Aws:
    """The clients of one server, and the threads that they work in."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._lock = threading.Lock()
        self._session: Any = None
        self._computing = trio.CapacityLimiter(1)
        self._asking: dict[str, trio.CapacityLimiter] = {}

    async def ask(self, owner: str, work: Callable[[], T], *, within_s: float | None = None) -> T:
        """`work()` in one of the threads of `owner` (a namespace), for at most `within_s` (`ASK_S`). AwsError."""
        limit_s = ASK_S if within_s is None else within_s
        limiter = self._asking.setdefault(owner, trio.CapacityLimiter(_THREADS))
        with trio.move_on_after(limit_s):
            try:
                return await trio.to_thread.run_sync(_saying, work, limiter=limiter, abandon_on_cancel=True)
            finally:
                if not limiter.borrowed_tokens and not limiter.statistics().tasks_waiting:
                    self._asking.pop(owner, None)
        raise AwsError(
            f"no answer within {limit_s:g} s",
            hint="the endpoint hangs, or too many questions wait for it: try again, and look at the endpoint",
        )

    async def compute(self, work: Callable[[], T]) -> T:
        """`work()`, which asks nobody, in a thread of its own. AwsError."""
        return await trio.to_thread.run_sync(_saying, work, limiter=self._computing)

    def client(self, service: str, keypair: Keypair, *, region: str | None = None, endpoint: str | None = None) -> Any:
        """A client of `service` (s3, sts, ec2): for a thread, some milliseconds but for the first one. AwsError."""
        botocore = _botocore()
        where = endpoint or self._from_environment(service)
        told: dict[str, Any] = {
            "connect_timeout": CONNECT_S,
            "read_timeout": READ_S,
            "retries": {"total_max_attempts": TRIES, "mode": "standard"},
            "user_agent_extra": "lakeshore",
            "ignore_configured_endpoint_urls": True,
            "defaults_mode": "legacy",  # another one may ask the machine for its region
        }
        if service == "s3":
            told["signature_version"] = "s3v4"
            told["s3"] = {
                "addressing_style": "path" if where else "virtual",
                "us_east_1_regional_endpoint": "regional",
            }
        with self._lock, _errors(botocore):
            session = self._session = self._session or _new_session(botocore)
            try:
                client = session.create_client(
                    service,
                    region_name=region or DEFAULT_REGION,
                    endpoint_url=where,
                    aws_access_key_id=keypair.key_id,
                    aws_secret_access_key=keypair.secret,
                    aws_session_token=keypair.session,
                    config=botocore.config.Config(**told),
                )
            except ValueError as error:  # how it calls an endpoint that is no URL
                raise AwsError(_short(str(error)), status=422) from error
        client.meta.events.register_last("before-send", _bounded(client, botocore))
        return client

    def _from_environment(self, service: str) -> str | None:
        named = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
        return next((self._environ[name] for name in named if self._environ.get(name)), None)


def keypair_of(value: Any) -> Keypair:
    """The keys of a secret's text: `<id>:<secret>`, or the JSON of a map; or of such a map. ValueError."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("{"):
            key_id, colon, secret = text.partition(":")
            return _keypair({"accessKeyId": key_id, "secretAccessKey": secret} if colon else {})
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(f"{_FORM}; what is there begins as JSON, and is none") from None
    if not isinstance(value, dict):
        raise ValueError(_FORM)  # noqa: TRY004  (one error for whatever is in a secret)
    inner = value.get("Credentials", value.get("AccessKey"))  # as `aws sts …` and `aws iam create-access-key` print it
    return _keypair(inner if isinstance(inner, dict) else value)


def _keypair(value: Mapping[str, Any]) -> Keypair:
    found = {name: next((value[key] for key in keys if value.get(key)), None) for name, keys in _SPELLED.items()}
    texts = {name: one.strip() for name, one in found.items() if isinstance(one, str)}
    if not texts.get("key_id") or not texts.get("secret"):
        raise ValueError(f"{_FORM}, or as JSON with accessKeyId and secretAccessKey")
    if not all(one.isascii() and one.isprintable() and " " not in one for one in texts.values()):
        raise ValueError(f"{_FORM}, without spaces or signs that no key has")
    return Keypair(key_id=texts["key_id"], secret=texts["secret"], session=texts.get("session"))


def _botocore() -> Any:
    try:
        import botocore.config  # wall: an optional extra, and 150 ms; only who speaks to AWS has it
        import botocore.exceptions  # wall: as above
        import botocore.session  # wall: as above
    except ImportError as error:
        raise AwsError(
            f"this needs botocore, and the server's Python has none that loads ({error})",
            hint=f"`pip install botocore` for the Python that runs `lakeshore serve`: {sys.executable}",
            status=501,
        ) from None
    return SimpleNamespace(config=botocore.config, exceptions=botocore.exceptions, session=botocore.session)


def _new_session(botocore: Any) -> Any:
    """A session that reads no file of whoever runs the server."""
    nothing = (None, None, None, None)
    session = botocore.session.Session(
        session_vars={
            "profile": nothing,
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
    )
    for name in ("request_checksum_calculation", "response_checksum_validation"):  # others' stores know none
        session.set_config_variable(name, "when_required")
    session.set_config_variable("s3_disable_express_session_auth", True)  # it asks for a session to sign a URL
    logging.getLogger("botocore").setLevel(logging.WARNING)  # below it tells what it signs, and keys that it got
    return session


def _bounded(client: Any, botocore: Any) -> Callable[..., Any]:
    """What sends the requests of a client in botocore's place, which reads all that ever comes."""

    def send(request: Any, **_: Any) -> Any:
        request.stream_output = True
        response = client._endpoint.http_session.send(request)
        pieces, size, until = [], 0, time.monotonic() + ASK_S
        try:
            for piece in response.raw.stream(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > MOST_ANSWER or time.monotonic() > until:
                    break
        except Exception as error:  # urllib3's many, of a connection that broke
            raise botocore.exceptions.HTTPClientError(error=error) from error
        if size > MOST_ANSWER or time.monotonic() > until:
            response.raw.close()
            raise AwsError(f"{_short(str(client.meta.endpoint_url))} does not end its answer", hint=_LOOK)
        response._content = b"".join(pieces)
        return response

    return send


# --- errors, by whose fault they are

_KEYS: Final = "the keys in the secret are wrong, revoked or expired: `lakeshore secrets rotate <secret>`"
_POLICY: Final = "the store knows the keys, and their policy does not allow this: ask whoever manages that account"
_REGION: Final = "it is in another region than was said, or that endpoint is another region's: name the right one"
_AGAIN: Final = "try again in a moment: the other side has too much to do, or an error of its own"
_HINTS: Final = {
    **dict.fromkeys(
        (
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidAccessKeyId",
            "InvalidClientTokenId",
            "InvalidToken",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ),
        _KEYS,
    ),
    **dict.fromkeys(("403", "AccessDenied", "AccessDeniedException", "Forbidden", "UnauthorizedOperation"), _POLICY),
    **dict.fromkeys(
        (
            "301",
            "AuthorizationHeaderMalformed",
            "IllegalLocationConstraintException",
            "InvalidLocationConstraint",
            "PermanentRedirect",
        ),
        _REGION,
    ),
    **dict.fromkeys(("404", "NoSuchBucket"), "there is no such bucket there: look at its name and its endpoint"),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), "the clock of this server is wrong"),
    **dict.fromkeys(
        ("InternalError", "OperationAborted", "RequestLimitExceeded", "ServiceUnavailable", "SlowDown", "Throttling"),
        _AGAIN,
    ),
}


def _saying(work: Callable[[], T]) -> T:
    with _errors(_botocore()):
        return work()


@contextmanager
def _errors(botocore: Any) -> Iterator[None]:
    """botocore's errors as AwsError."""
    known = botocore.exceptions
    try:
        yield
    except known.ClientError as error:
        raise _refused(error.response) from error
    except (known.ParamValidationError, known.ValidationError, known.UnknownParameterError) as error:
        raise AwsError(_short(str(error)), status=422) from error
    except (known.ConnectionError, known.HTTPClientError) as error:
        where = _short(str(getattr(error, "kwargs", {}).get("endpoint_url") or "the endpoint"))
        raise AwsError(
            f"{where} does not answer: {type(error).__name__}",
            code=type(error).__name__,
            hint="look at the endpoint and the region, and whether this server reaches it",
        ) from error
    except known.BotoCoreError as error:
        raise _alien(error) from error
    except Exception as error:
        if _innermost(error) != "botocore.parsers":  # which raises whatever comes of an answer that is not AWS's
            raise
        raise _alien(error) from error


def _alien(error: Exception) -> AwsError:
    return AwsError(
        f"the endpoint does not answer as AWS does: {type(error).__name__}",
        code=type(error).__name__,
        hint=_LOOK,
    )


def _innermost(error: Exception) -> str:
    """The module that raised it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "" if frame is None else str(frame.tb_frame.f_globals.get("__name__"))


def _refused(response: Mapping[str, Any]) -> AwsError:
    told = response.get("Error") or {}
    meta = response.get("ResponseMetadata") or {}
    status = meta.get("HTTPStatusCode")
    code = _short(str(told.get("Code") or status or "unknown"))
    hint = _HINTS.get(code) or (_AGAIN if isinstance(status, int) and status >= 500 and status != 501 else None)
    region = (meta.get("HTTPHeaders") or {}).get("x-amz-bucket-region")
    if hint == _REGION and region:
        hint = f"it is in region {_short(region)}"
    return AwsError(_short(f"{code}: {told.get('Message') or 'it says no more'}"), code=code, hint=hint)


def _short(text: str) -> str:
    printed = "".join(sign if sign.isprintable() else " " for sign in text)
    return printed if len(printed) <= _LONGEST else f"{printed[:_LONGEST]}…"
