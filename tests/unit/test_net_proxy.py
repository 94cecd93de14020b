"""Which proxy leads to a server, by the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.net.http1 import build_request
from lakeshore.net.proxy import Proxy, through_proxy
from lakeshore.net.target import parse_target


def proxy(url: str, **environ: str) -> Proxy | None:
    return through_proxy(parse_target(url), environ).proxy


def place(found: Proxy | None) -> tuple[bool, str, int] | None:
    return None if found is None else (found.tls, found.host, found.port)


@pytest.mark.parametrize(
    ("url", "environ", "wanted"),
    [
        ("https://a.example", {"https_proxy": "http://p:3128"}, (False, "p", 3128)),
        ("https://a.example", {"HTTPS_PROXY": "p:3128"}, (False, "p", 3128)),
        ("https://a.example", {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, (False, "lower", 1)),
        ("https://a.example", {"HTTPS_PROXY": "http://upper:1", "https_proxy": ""}, None),
        ("https://a.example", {"http_proxy": "http://p:1"}, None),
        ("https://a.example", {"ALL_PROXY": "http://p"}, (False, "p", 1080)),
        ("https://a.example", {"https_proxy": "https://p"}, (True, "p", 443)),
        ("http://a.example", {"http_proxy": "http://p:1"}, (False, "p", 1)),
        ("http://a.example", {"HTTP_PROXY": "http://p:1"}, (False, "p", 1)),
        ("http://a.example", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
        ("http://a.example", {"https_proxy": "http://p:1"}, None),
        ("http://127.0.0.1:8080", {"http_proxy": "http://p:1"}, None),
        ("https://localhost", {"all_proxy": "http://p:1"}, None),
    ],
)
def test_the_scheme_of_the_server_decides_and_lower_case_wins(
    url: str, environ: dict[str, str], wanted: tuple[bool, str, int] | None
) -> None:
    assert place(proxy(url, **environ)) == wanted


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        ("a.example", "a.example", True),
        ("b.a.example", "a.example", True),
        ("b.a.example", ".a.example", True),
        ("a.example", ".a.example", True),
        ("ba.example", "a.example", False),
        ("a.example", "b.example, a.example", True),
        ("a.example", "b.example a.example", True),
        ("a.example", "*", True),
        ("A.Example", "a.EXAMPLE", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "2.3", False),
        ("[fd00::1]", "fd00::/8", True),
        ("a.example", "", False),
    ],
)
def test_no_proxy_names_what_is_reached_directly(host: str, no_proxy: str, direct: bool) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        found = proxy(f"https://{host}", https_proxy="http://p:1", **{name: no_proxy})
        assert (found is None) is direct


@pytest.mark.parametrize("said", ["socks5://user:secret@p:1", "http://", "http://user:secret@p:99999", "http://p q"])
def test_what_is_no_proxy_is_refused_by_its_variables_name_and_never_shown(said: str) -> None:
    with pytest.raises(ValueError, match="HTTPS_PROXY") as error:
        proxy("https://a.example", HTTPS_PROXY=said)
    assert "secret" not in str(error.value)


def test_a_password_travels_in_its_header_and_shows_nowhere() -> None:
    target = through_proxy(parse_target("http://a.example/base"), {"http_proxy": "http://user:s%40cret@p:1"})
    head = build_request(target, "POST", "/v1/x", content_length=0).decode()
    assert head.startswith("POST http://a.example/base/v1/x HTTP/1.1\r\nhost: a.example\r\n")
    assert "proxy-authorization: Basic dXNlcjpzQGNyZXQ=\r\n" in head
    assert "cret" not in repr(target)


@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_stands_there_it_is_a_proxy_or_a_value_error(said: str, no_proxy: str) -> None:
    try:
        proxy("https://a.example", https_proxy=said, no_proxy=no_proxy)
    except ValueError as error:
        assert "https_proxy" in str(error)
