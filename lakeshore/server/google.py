"""Google's APIs for a service account: google-auth mints the bearer, the rest is JSON over HTTPS.

    google = Google(environ)
    said = await google.ask(ns, lambda: google.account(key).call("GET", "projects/p/zones/z/instances"))

Rules: nothing here runs on the loop; each namespace has few threads of its own, and each question a bound. Only the key
that was given is used. No redirect is followed, so that no bearer goes elsewhere. A key's `token_uri` is somebody's
text, and what answers there is told on: it must be Google's, or the host of the endpoint that the operator names with
CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE, as it is for gcloud.
Reference: api/auth-and-secrets, "gcp_sa_json"; S-150.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import trio

T = TypeVar("T")

COMPUTE: Final = "https://compute.googleapis.com/compute/v1/"
_GOOGLES: Final = (".googleapis.com", ".accounts.google.com")
_TOKENS: Final = "oauth2.googleapis.com/token"
ENDPOINT: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
SCOPE: Final = "https://www.googleapis.com/auth/compute"
ONE_S, ASK_S = 20.0, 60.0
"""The bounds on one request, and on one question."""
_THREADS: Final = 4
_LONGEST: Final = 300
_LARGEST: Final = 32 << 20


class GoogleError(Exception):
    """What was asked did not come about. `code` is Google's word; `asked`: the request may have had its effect.

    `status` 502: Google refuses or does not answer; 501: google-auth is missing; 422: the key is none.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        status: int = 502,
        asked: bool = False,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.hint, self.status, self.asked = message, code, hint, status, asked


class Google:
    """What asks Google for one server."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.endpoint = (environ.get(ENDPOINT, "").strip() or COMPUTE).rstrip("/") + "/"
        self._asking: dict[str, trio.CapacityLimiter] = {}

    async def ask(self, owner: str, work: Callable[[], T]) -> T:
        """`work()` in one of the threads of `owner` (a namespace), at most `ASK_S`. GoogleError."""
        limiter = self._asking.setdefault(owner, trio.CapacityLimiter(_THREADS))
        with trio.move_on_after(ASK_S):
            try:
                return await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
            finally:
                if not limiter.borrowed_tokens and not limiter.statistics().tasks_waiting:
                    self._asking.pop(owner, None)
        raise GoogleError(f"no answer within {ASK_S:g} s", asked=True, hint="look at the endpoint, and try again")

    def account(self, key: Any) -> Account:
        """Of a service account's key, as JSON text or as its map. GoogleError 422."""
        if isinstance(key, str):
            try:
                key = json.loads(key)
            except (ValueError, RecursionError):
                raise GoogleError(
                    "gcp_sa_json secret must be the JSON of a service account's key",
                    hint="`gcloud iam service-accounts keys create <file>` makes one; `lakeshore secrets rotate`",
                    status=422,
                ) from None
        if not isinstance(key, dict):
            raise GoogleError("a service account's key is a map", status=422)
        return Account(key, self.endpoint)


class Account:
    """One service account. Its methods block, and are for a thread."""

    def __init__(self, key: Mapping[str, Any], endpoint: str) -> None:
        google = _google()
        self._endpoint = endpoint
        self._need_known(str(key.get("token_uri") or ""))
        try:
            made = google.service_account.Credentials.from_service_account_info(key, scopes=[SCOPE])
        except (ValueError, TypeError, KeyError) as error:
            raise GoogleError(
                f"this is no key of a service account: {type(error).__name__}",
                hint="it has client_email, private_key and token_uri: `lakeshore secrets rotate` gives it a new value",
                status=422,
            ) from None
        self.project = str(key.get("project_id") or "")
        self._google, self._credentials = google, made

    def call(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """One request below the endpoint; what it says. GoogleError."""
        if not self._credentials.valid:
            self._refresh()
        url = self._endpoint + path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._credentials.token}", "Content-Type": "application/json"}
        try:
            status, said = _send(method, url, data, headers)
        except (OSError, http.client.HTTPException) as error:
            raise GoogleError(
                f"{urlsplit(url).netloc} does not answer: {type(error).__name__}",
                code=type(error).__name__,
                asked=True,
                hint="look at whether this server reaches it",
            ) from error
        try:
            told = json.loads(said) if said.strip() else {}
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise GoogleError("the endpoint does not answer as Google does", code=str(status), asked=True)
        if status >= 300:
            raise _refused(status, told)
        return told

    def _need_known(self, url: str) -> None:
        """Whether a token may be asked for there. GoogleError."""
        scheme, host = _led_to(url)
        if scheme == "https" and f".{host}".endswith(_GOOGLES):
            return
        if self._endpoint != COMPUTE and scheme in ("http", "https") and host == _led_to(self._endpoint)[1]:
            return
        raise GoogleError("the key's token_uri is not Google's", hint=f"it is https://{_TOKENS}", status=422)

    def _refresh(self) -> None:
        known = self._google.exceptions

        def request(url: str, method: str = "GET", body: Any = None, headers: Any = None, **_more: Any) -> Any:
            self._need_known(url)
            data = body.encode() if isinstance(body, str) else body
            try:
                status, said = _send(method, url, data, dict(headers or {}))
            except (OSError, http.client.HTTPException) as error:
                raise known.TransportError(f"{urlsplit(url).netloc}: {type(error).__name__}") from error
            return SimpleNamespace(status=status, headers={}, data=said)

        try:
            self._credentials.refresh(request)
        except known.TransportError as error:
            raise GoogleError(
                f"no token: {_short(str(error))}", hint="look at whether this server reaches it"
            ) from error
        except (known.GoogleAuthError, ValueError) as error:
            raise GoogleError(
                f"no token: {_short(str(error.args[0] if error.args else error))}",
                code="invalid_grant",
                hint="the key is revoked, or the clock of this server is wrong: `lakeshore secrets rotate`",
            ) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _send(method: str, url: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body; whatever the status. OSError, HTTPException."""
    request = urllib.request.Request(url, data=data, headers=dict(headers), method=method)  # noqa: S310  (`_need_known`)
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=ONE_S) as answer:
            return answer.status, answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_LARGEST)


def _led_to(url: str) -> tuple[str, str | None]:
    """Scheme and host."""
    try:
        parts = urlsplit(url)
    except ValueError:  # half of an IPv6 address, say
        return "", None
    return parts.scheme, parts.hostname


def _refused(status: int, told: Mapping[str, Any]) -> GoogleError:
    error = told.get("error")
    error = error if isinstance(error, dict) else {}
    first: Any = next(iter(error.get("errors") or ()), {})
    code = str((first.get("reason") if isinstance(first, dict) else None) or error.get("status") or status)
    hint = {
        401: "the key is wrong or revoked: `lakeshore secrets rotate`",
        403: "the service account may not do this, or the API is off: give it roles/compute.instanceAdmin.v1",
    }.get(status)
    message = _short(str(error.get("message") or "it says no more"))
    return GoogleError(f"{code}: {message}", code=code, hint=hint, asked=status >= 500)


def _google() -> Any:
    try:
        import google.auth.exceptions  # wall: an optional extra; only who has machines of Google's has it
        import google.oauth2.service_account  # wall: as above
    except ImportError as error:
        raise GoogleError(
            f"this needs google-auth, and the server's Python has none that loads ({error})",
            hint=f"`pip install google-auth` for the Python that runs `lakeshore serve`: {sys.executable}",
            status=501,
        ) from None
    return SimpleNamespace(exceptions=google.auth.exceptions, service_account=google.oauth2.service_account)


def _short(text: str) -> str:
    printed = "".join(sign if sign.isprintable() else " " for sign in text)
    return printed if len(printed) <= _LONGEST else f"{printed[:_LONGEST]}…"
