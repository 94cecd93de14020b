"""One place that asks AWS: whose fault an error is, and what an endpoint that hangs costs whom."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trio

from lakeshore.server import aws as module
from lakeshore.server.aws import Aws, AwsError, Keypair

KEYS = Keypair(key_id="AKIA1", secret="planted-secret")


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """An endpoint that says the same to whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


@pytest.fixture
def hanging() -> Iterator[str]:
    """An endpoint that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def head(aws: Aws, endpoint: str) -> Callable[[], Any]:
    return lambda: aws.client("s3", KEYS, endpoint=endpoint).head_bucket(Bucket="lab")


def listed(aws: Aws, endpoint: str) -> Callable[[], Any]:
    return lambda: aws.client("s3", KEYS, endpoint=endpoint).list_objects_v2(Bucket="lab")


def failed(work: Callable[[Aws, str], Callable[[], Any]], endpoint: str) -> AwsError:
    aws = Aws({})
    with pytest.raises(AwsError) as caught:
        trio.run(partial(aws.ask, "ns", work(aws, endpoint)))
    assert "planted" not in f"{caught.value} {caught.value.hint}"
    return caught.value


ANSWERS: list[Any] = [
    (403, b"<Error><Code>AccessDenied</Code><Message>No.</Message></Error>", "AccessDenied", "policy"),
    (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>", "InvalidAccessKeyId", "secrets rotate"),
    (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", "SignatureDoesNotMatch", "secrets rotate"),
    (403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>", "RequestTimeTooSkewed", "clock of this server"),
    (404, b"<Error><Code>NoSuchBucket</Code></Error>", "NoSuchBucket", "no such bucket"),
    (400, b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>", "AuthorizationHeaderMalformed", "region"),
    (503, b"<Error><Code>SlowDown</Code></Error>", "SlowDown", "try again"),
    (500, b"<html>oops</html>", "500", "try again"),
    (404, b"", "404", "no such bucket"),
    (200, b"<html><body>Welcome to nginx!", "500", "try again"),
]


@pytest.mark.parametrize(("status", "body", "code", "hint"), ANSWERS)
def test_an_error_says_the_stores_own_code_and_whose_fault_it_is(
    status: int, body: bytes, code: str, hint: str
) -> None:
    with answering(status, body) as endpoint:
        error = failed(listed, endpoint)
    assert (error.status, error.code) == (502, code)
    assert hint in (error.hint or ""), error.hint
    refusal = error.refusal("config.bucket")
    assert (refusal.status, refusal.extra["awsCode"], refusal.field) == (502, code, "config.bucket")


@pytest.mark.parametrize("body", [b"Welcome to nginx!", b"<html><body>Welcome</body></html>", b"", b"{}"])
def test_something_else_than_aws_at_an_endpoint_is_named(body: bytes) -> None:
    with answering(200, body) as endpoint:
        error = failed(lambda aws, at: lambda: aws.client("sts", KEYS, endpoint=at).get_session_token(), endpoint)
    assert (error.status, error.message.partition(":")[0]) == (502, "the endpoint does not answer as AWS does")
    assert "something else may answer" in (error.hint or "")


def test_an_endpoint_that_refuses_connections_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        endpoint = f"http://127.0.0.1:{gone.getsockname()[1]}"
    error = failed(head, endpoint)
    assert (error.status, error.code) == (502, "EndpointConnectionError")
    assert endpoint in error.message and "whether this server reaches it" in (error.hint or "")


@pytest.mark.parametrize("endpoint", ["http://exa mple", "nonsense"])
def test_an_endpoint_that_is_no_url_is_the_callers_fault(endpoint: str) -> None:
    assert failed(head, endpoint).status == 422


def test_an_endpoint_that_hangs_is_bounded_and_costs_nobody_else(hanging: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_S", 3.0)
    monkeypatch.setattr(module, "TRIES", 1)
    aws = Aws({})
    ended: list[str] = []

    async def ask(owner: str, work: Callable[[], Any]) -> None:
        with pytest.raises(AwsError):
            await aws.ask(owner, work)
        ended.append(owner)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            refuses = f"http://127.0.0.1:{gone.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask, "slow", head(aws, hanging))
            await ask("other", head(aws, refuses))
            assert await aws.compute(lambda: "computed") == "computed"
            assert ended == ["other"], "eight that hang took no thread of another namespace"

    trio.run(main)
    assert ended == ["other"] + ["slow"] * 8


@pytest.mark.parametrize("length", [True, False], ids=["announced", "endless"])
@pytest.mark.parametrize("status", [200, 500])
def test_an_endpoint_that_sends_more_than_any_answer_has_costs_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch, status: int, length: bool
) -> None:
    """The server would keep all of it, for as long as it comes: also when nobody waits for it any more."""
    monkeypatch.setattr(module, "MOST_ANSWER", 1 << 20)
    ended = threading.Event()

    def send(listener: socket.socket) -> None:
        told = f"Content-Length: {1 << 40}\r\n" if length else ""
        with listener.accept()[0] as line:
            line.recv(1 << 16)
            line.sendall(f"HTTP/1.1 {status} OK\r\nContent-Type: text/xml\r\n{told}\r\n<x>".encode())
            try:
                while True:
                    line.sendall(b"A" * (1 << 16))
            except OSError:
                ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=send, args=(listener,))
        thread.start()
        at = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(AwsError, match="does not end its answer"):
            trio.run(Aws({}).ask, "ns", lambda: Aws({}).client("sts", KEYS, endpoint=at).get_session_token())
        thread.join(60)
    assert ended.is_set()


def test_a_question_that_no_timeout_of_a_socket_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.2)
    let_go = threading.Event()
    with pytest.raises(AwsError, match="no answer within") as caught:
        trio.run(partial(Aws({}).ask, "ns", lambda: let_go.wait(60)))
    let_go.set()
    assert caught.value.status == 502


def test_without_botocore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "botocore.config", None)
    error = failed(head, "http://127.0.0.1:1")
    assert error.status == 501
    assert "pip install botocore" in (error.hint or "")


@pytest.mark.inventory("S-238")
@pytest.mark.parametrize(
    ("environ", "endpoint", "begins"),
    [
        ({}, None, "https://lab.s3.eu-central-1.amazonaws.com/k?"),
        ({}, "https://r2.example", "https://r2.example/lab/k?"),
        ({"AWS_ENDPOINT_URL": "http://inside"}, None, "http://inside/lab/k?"),
        ({"AWS_ENDPOINT_URL": "http://x", "AWS_ENDPOINT_URL_S3": "http://y"}, None, "http://y/lab/k?"),
        ({"AWS_ENDPOINT_URL": "http://inside"}, "https://r2.example", "https://r2.example/lab/k?"),
    ],
)
def test_an_endpoint_is_addressed_by_path_and_aws_by_host(
    environ: dict[str, str], endpoint: str | None, begins: str
) -> None:
    client = Aws(environ).client("s3", KEYS, region="eu-central-1", endpoint=endpoint)
    url = client.generate_presigned_url("get_object", Params={"Bucket": "lab", "Key": "k"}, ExpiresIn=60)
    assert url.startswith(begins)
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in url


@pytest.mark.parametrize("bucket", ["lab--use1-az4--x-s3", "b.with.dots", "UPPER_case"])
def test_no_kind_of_bucket_needs_a_network_for_a_url(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULTS_MODE", "auto")
    monkeypatch.setattr("socket.socket.connect", None)
    client = Aws({}).client("s3", KEYS)
    assert client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=60)


def test_what_botocore_tells_of_keys_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    answer = (
        b"<GetSessionTokenResponse><GetSessionTokenResult><Credentials><AccessKeyId>A</AccessKeyId>"
        b"<SecretAccessKey>planted-answer</SecretAccessKey><SessionToken>t</SessionToken>"
        b"<Expiration>2030-01-01T00:00:00Z</Expiration></Credentials></GetSessionTokenResult></GetSessionTokenResponse>"
    )
    with answering(200, answer) as endpoint:
        client = Aws({}).client("sts", KEYS, endpoint=endpoint)
        assert client.get_session_token()["Credentials"]["SecretAccessKey"] == "planted-answer"
    assert "planted" not in caplog.text and "Signature" not in caplog.text


def test_what_the_user_of_the_server_has_for_aws_counts_nowhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    config.write_text("[profile other]\nregion = ap-east-1\nendpoint_url = http://elsewhere\n[default]\nregion = x\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "gone")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    client = Aws({}).client("s3", KEYS)
    url = client.generate_presigned_url("get_object", Params={"Bucket": "lab", "Key": "k"}, ExpiresIn=60)
    assert url.startswith("https://lab.s3.us-east-1.amazonaws.com/k?")
    assert "Security-Token" not in url
