"""Base URLs, back-off, and what each shell loads."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice

import pytest

from lakeshore.net.backoff import full_jitter
from lakeshore.net.target import parse_target


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix", "header"),
    [
        ("http://localhost:8787", "localhost", 8787, "", "localhost:8787"),
        ("http://localhost", "localhost", 80, "", "localhost"),
        ("https://Lake.Example/", "lake.example", 443, "", "lake.example"),
        ("https://lake.example:443/a/b/", "lake.example", 443, "/a/b", "lake.example"),
        ("http://[::1]:9", "::1", 9, "", "[::1]:9"),
        ("http://10.0.0.1:80/x", "10.0.0.1", 80, "/x", "10.0.0.1"),
    ],
)
def test_a_base_url_is_read(url: str, host: str, port: int, prefix: str, header: str) -> None:
    target = parse_target(url)
    assert (target.host, target.port, target.prefix, target.host_header) == (host, port, prefix, header)
    assert parse_target(target.url) == target


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8787", "ftp://x", "http://", "http:///x", "http://u:hunter2@h", "http://hunter2@h", "http://h:0",
        "http://h:hunter2", "http://h:99999", "http://h/?a=hunter2", "http://h/#hunter2", "http://h/é", "http://h x",
        "http://[::1", "http://h\r\n", "http://a:b:hunter2@@h",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_target(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8080", "(got 'localhost:8080'; try http://localhost:8080)"),
        ("127.0.0.1:8080/base", "(got '127.0.0.1:8080/base'; try http://127.0.0.1:8080/base)"),
        ("lake.example", "(got 'lake.example'; try http://lake.example)"),
        ("ftp://x", "(got 'ftp://x')"),
        ("localhost:port", "(got 'localhost:port')"),
        ("u:hunter2@h", "must start with http:// or https://"),
    ],
)
def test_a_url_without_its_scheme_is_told_whole_with_what_was_meant(url: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_target(url)
    assert str(caught.value).endswith(said)


def test_origins_are_compared_by_scheme_host_and_port() -> None:
    target = parse_target("https://lake.example/base")
    assert target.same_origin("https://LAKE.example:443/v1/blobs/x")
    assert target.same_origin("/v1/blobs/x")
    for other in (
        "http://lake.example/",
        "https://lake.example:444/",
        "//evil/x",
        "https://lake.example@evil/",
        "nonsense",
    ):
        assert not target.same_origin(other)


def test_back_off_is_jittered_below_a_ceiling_that_doubles_up_to_the_cap() -> None:
    assert list(islice(full_jitter(lambda: 1.0, base=1, cap=10), 6)) == [1, 2, 4, 8, 10, 10]
    assert list(islice(full_jitter(lambda: 0.0), 3)) == [0, 0, 0]
    waits = list(islice(full_jitter(random.Random(1).random, cap=5), 200))
    assert all(0 <= wait <= 5 for wait in waits)
    with pytest.raises(ValueError):
        next(full_jitter(random.random, base=0))


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("blocking", ("trio", "asyncio", "httpx", "ssl", "msgpack", "h11")),
        ("aio", ("trio", "httpx", "msgpack")),
        ("trio_", ("asyncio", "httpx", "msgpack")),
        ("current", ("trio", "asyncio", "httpx", "ssl")),
    ],
)
def test_a_shell_loads_nothing_of_the_others(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, lakeshore.net.{module}; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
