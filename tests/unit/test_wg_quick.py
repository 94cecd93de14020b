"""A wg-quick file becomes the map that a tunnel's config is."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.cli.tunnels.wg_quick import NoWgQuick, parsed

WHOLE = """\
# a laboratory
[Interface]
PrivateKey = abc123=    # ours
Address    = 10.0.0.2/24, fd00::2/64
ListenPort = 51820
DNS = 10.0.0.1
MTU = 1420
PreUp = echo one = two
PostUp = first
PostUp = second

[Peer]
PublicKey  = peer-key=
Endpoint   = 1.2.3.4:51820
AllowedIPs = 10.0.0.0/24
AllowedIPs = 10.1.0.0/24,10.2.0.0/24
PersistentKeepalive = 25

[peer]
PublicKey = other=
"""


@pytest.mark.inventory("C-144", "C-145")
def test_keys_are_camel_case_lists_are_lists_and_numbers_are_numbers() -> None:
    assert parsed(WHOLE) == {
        "interface": {
            "privateKey": "abc123=",
            "address": ["10.0.0.2/24", "fd00::2/64"],
            "listenPort": 51820,
            "dns": ["10.0.0.1"],
            "mtu": 1420,
            "preUp": "echo one = two",
            "postUp": ["first", "second"],
        },
        "peers": [
            {
                "publicKey": "peer-key=",
                "endpoint": "1.2.3.4:51820",
                "allowedIPs": ["10.0.0.0/24", "10.1.0.0/24", "10.2.0.0/24"],
                "persistentKeepalive": 25,
            },
            {"publicKey": "other="},
        ],
    }


@pytest.mark.inventory("C-1440")
def test_a_value_may_refer_to_a_secret() -> None:
    config = parsed("[Interface]\nPrivateKey = $secret:wg-key\nTable = $secret:\n")
    assert config["interface"] == {"privateKey": {"$secret": "wg-key"}, "table": "$secret:"}


WRONG: list[Any] = [
    pytest.param("[Interface]\n[Pear]\n", r"line 2: \[Pear\] is neither", marks=pytest.mark.inventory("C-146")),
    ("[Interface\n", "line 1: .* is neither"),
    ("[Interface]\n[interface]\n", "line 2: a second"),
    ("Address = 1\n[Interface]\n", "line 1: Address stands before a section"),
    ("[Interface]\nAddress\n", "line 2: Address is not <Key> = <value>"),
    ("[Interface]\nAddress =\n", "line 2: Address is not"),
    ("[Interface]\n= x\n", "line 2: .* is not"),
    ("[Peer]\nPublicKey = a\n", "no section"),
    ("", "no section"),
]


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_what_is_no_wg_quick_is_an_error_that_names_the_line(text: str, why: str) -> None:
    with pytest.raises(NoWgQuick, match=why):
        parsed(text)
