"""`Storage`: objects by name and key, through a control plane that holds the credentials.

Rule: this process never has the store's own credentials. It asks the control plane for a URL that is good for one key
and some minutes, and moves the bytes itself; or for credentials that end by themselves. What is pickled with a function
is the name alone. A URL is a secret while it lasts: no message has more of it than its host.
Reference: get-started/storages.md, "From Python"; python-sdk/happy-paths/11-storage-from-udf.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from lakeshore.config.auth import read_saved_login, same_server
from lakeshore.config.errors import ConfigError
from lakeshore.net.blocking import BlockingPool
from lakeshore.net.errors import NetError
from lakeshore.net.target import parse_target

from .ambient import ambient_plane
from .errors import DispatchError

if TYPE_CHECKING:
    import httpx

__all__ = ["Storage", "TemporaryCredentials"]

LOCAL = "http://localhost:8080"
URL_S = 3600
"""How long a URL is good when nobody says otherwise."""
TRANSFER_S = 300
"""How long one is good that is used at once."""
ASK_S, MOVE_S = 30.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryCredentials:
    """Credentials of an object store that end at `expiration` (ISO 8601, or None). Their text does not show them."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    region: str | None = None
    expiration: str | None = None

    def to_boto3_kwargs(self) -> dict[str, str]:
        """What `boto3.Session(**kwargs)` and `boto3.client("s3", **kwargs)` take."""
        named = {
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
            "aws_session_token": self.session_token,
        }
        return {**named, "region_name": self.region} if self.region else named

    def to_env(self) -> dict[str, str]:
        """The variables that the AWS tools read: key id, secret, session token and region (empty when not told)."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_REGION": self.region or "",
        }


class Storage:
    """The storage entry `name` of a control plane; `other/name` is one of the namespace `other`.

    The server is `base_url`, else LAKESHORE_URL, else DREAMLAKE_SERVER, else that of the worker whose body runs here,
    else that of the saved login, else http://localhost:8080. Namespace and token are the ones given, else
    LAKESHORE_NAMESPACE and LAKESHORE_CLIENT_TOKEN, else the worker's or the login's, when they are for that server.
    Safe in threads.
    Every verb raises DispatchError: no such entry or object, not allowed, expired, or unreachable.
    """

    def __init__(
        self, name: str, *, base_url: str | None = None, namespace: str | None = None, token: str | None = None
    ) -> None:
        if not isinstance(name, str) or not name or name.count("/") > 1:
            raise TypeError(f"a storage is named by a str, `name` or `namespace/name`, got {name!r}")
        shared, _, self.name = name.rpartition("/")
        self._spelled = name
        self._given = {"base_url": base_url, "namespace": namespace}
        found = _resolve(base_url, namespace, token)
        self.base_url, self._token = found.url, found.token
        self.namespace = shared or found.namespace
        self._pool = BlockingPool(parse_target(self.base_url))
        self._client: tuple[int, httpx.Client] | None = None

    def __repr__(self) -> str:
        return f"Storage({self.name!r}, base_url={self.base_url!r}, namespace={self.namespace!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._spelled, self._given)

    def __enter__(self) -> Storage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next verb opens new ones."""
        pool, self._pool = self._pool, BlockingPool(self._pool.target)
        pool.close()
        kept, self._client = self._client, None
        if kept is not None and kept[0] == os.getpid():
            kept[1].close()

    # -- what the control plane gives

    def presign(self, key: str, operation: Literal["get", "put"] = "get", expires_in: int = URL_S) -> str:
        """A URL that gets or puts one object, for `expires_in` seconds (at most a day; the server cuts more down)."""
        if operation not in ("get", "put"):
            raise ValueError(f'presign knows the operations "get" and "put", got {operation!r}')
        asked = {"key": key, "operation": operation, "expiresIn": expires_in}
        return str(self._ask("presign", asked, "url")["url"])

    def credentials(self, duration_seconds: int = 3600) -> TemporaryCredentials:
        """Credentials for a real client of the store, good for `duration_seconds` (900 to 129600)."""
        told = self._ask("credentials", {"durationSeconds": duration_seconds}, "accessKeyId")
        return TemporaryCredentials(
            access_key_id=str(told["accessKeyId"]),
            secret_access_key=str(told.get("secretAccessKey") or ""),
            session_token=str(told.get("sessionToken") or ""),
            region=told.get("region"),
            expiration=told.get("expiration"),
        )

    # -- objects

    def get(self, key: str, *, expires_in: int = TRANSFER_S) -> bytes:
        """The whole object."""
        return self._move("GET", key, self.presign(key, "get", expires_in), None)

    def put(self, key: str, content: bytes, *, expires_in: int = TRANSFER_S) -> None:
        """Store the whole object, over what was there."""
        if not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(f"put takes bytes, got {type(content).__name__}; put_text takes a str")
        self._move("PUT", key, self.presign(key, "put", expires_in), bytes(content))

    def put_file(self, key: str, path: str | os.PathLike[str], *, expires_in: int = TRANSFER_S) -> None:
        """Store what is in a file, as it is read."""
        with open(path, "rb") as content:
            self._move("PUT", key, self.presign(key, "put", expires_in), content)

    def get_text(self, key: str, *, encoding: str = "utf-8") -> str:
        """The object as text."""
        return self.get(key).decode(encoding)

    def put_text(self, key: str, text: str, *, encoding: str = "utf-8") -> None:
        """Store text."""
        self.put(key, text.encode(encoding))

    # -- inside

    def _ask(self, verb: str, body: Mapping[str, Any], wanted: str) -> dict[str, Any]:
        path = "/".join(quote(part, safe="") for part in (self.namespace, "storages", self.name, verb))
        headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
        headers.append(("X-LS-Namespace", self.namespace))
        if self._token:
            headers.append(("Authorization", f"Bearer {self._token}"))
        try:
            answer = self._pool.request(
                "POST", f"/v1/namespaces/{path}", headers=headers, body=json.dumps(body).encode(), timeout=ASK_S
            )
        except NetError as error:
            raise DispatchError(f"asking for {verb} of storage {self.name!r} failed: {error}") from error
        told = _json(answer.body)
        if answer.status == 404:
            raise DispatchError(
                f"there is no storage {self.name!r} in namespace {self.namespace!r} of {self.base_url}: "
                f"{told.get('error') or 'not found'}; `lakeshore storage list` shows what there is"
            )
        if answer.status != 200 or wanted not in told:
            said = told.get("error") or f"HTTP {answer.status}"
            hint = f"; {told['hint']}" if told.get("hint") else ""
            raise DispatchError(f"{verb} of storage {self.name!r} was refused: {said}{hint}")
        return told

    def _move(self, method: str, key: str, url: str, content: bytes | IO[bytes] | None) -> bytes:
        import httpx  # wall: other people's servers are httpx's, and who moves nothing does not load it

        kept = self._client
        if kept is None or kept[0] != os.getpid():  # a parent's connections are the parent's
            kept = self._client = os.getpid(), httpx.Client(follow_redirects=True, timeout=MOVE_S)
        try:
            answer = kept[1].request(method, url, content=content)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:  # the last: a file to send twice
            where = urlsplit(url).netloc
            raise DispatchError(f"{method} of {key!r} at {where} failed: {type(error).__name__}") from None
        if answer.is_success:
            return answer.content
        why = {403: "the URL has expired, or a clock is wrong", 404: "there is no such object"}
        raise DispatchError(
            f"{method} of {key!r} in storage {self.name!r} was answered {answer.status_code}"
            + (f": {why[answer.status_code]}" if answer.status_code in why else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    url: str
    namespace: str
    token: str | None


def _resolve(url: str | None, namespace: str | None, token: str | None) -> _Place:
    environ = os.environ
    plane = ambient_plane()
    away = getattr(plane, "base_url", None)  # a worker takes its token out of the environment: its plane has it
    named = url or environ.get("LAKESHORE_URL") or environ.get("DREAMLAKE_SERVER") or away
    try:
        login = read_saved_login()
    except ConfigError as error:
        if named is None:
            raise DispatchError(str(error)) from error
        login = None  # who says which server needs no login
    server = (named or (login.server if login is not None else LOCAL)).rstrip("/")
    namespace = namespace or environ.get("LAKESHORE_NAMESPACE")
    token = token or environ.get("LAKESHORE_CLIENT_TOKEN") or environ.get("LAKESHORE_TOKEN")
    if away is not None and same_server(away, server):
        namespace, token = namespace or getattr(plane, "namespace", None), token or getattr(plane, "token", None)
    if login is not None and login.is_for(server):
        namespace, token = namespace or login.namespace, token or login.token_for(server)
    return _Place(url=server, namespace=namespace or "default", token=token)


def _again(name: str, given: dict[str, str | None]) -> Storage:
    return Storage(name, **given)


def _json(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
