"""What is in an aws_keypair secret: both forms, and what is neither."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakeshore.server.aws import Keypair, keypair_of

PAIR = Keypair(key_id="AKIA1", secret="s:cret/+")
SESSION = Keypair(key_id="AKIA1", secret="s:cret/+", session="tok")


@pytest.mark.inventory("S-106", "S-775", "C-1442")
@pytest.mark.inventory("C-1386", "S-104")
@pytest.mark.parametrize(
    ("value", "keys"),
    [
        ("AKIA1:s:cret/+", PAIR),
        (" AKIA1:s:cret/+\n", PAIR),
        ({"accessKeyId": "AKIA1", "secretAccessKey": "s:cret/+"}, PAIR),
        ({"access_key_id": "AKIA1", "secret_access_key": "s:cret/+"}, PAIR),
        ({"AccessKeyId": "AKIA1", "SecretAccessKey": "s:cret/+"}, PAIR),
        ({"AccessKeyId": "AKIA1", "SecretAccessKey": "s:cret/+", "SessionToken": "tok"}, SESSION),
        ({"AccessKey": {"AccessKeyId": "AKIA1", "SecretAccessKey": "s:cret/+", "Status": "Active"}}, PAIR),
        ({"Credentials": {"AccessKeyId": "AKIA1", "SecretAccessKey": "s:cret/+", "SessionToken": "tok"}}, SESSION),
    ],
)
def test_a_keypair_is_read_in_both_of_its_forms(value: Any, keys: Keypair) -> None:
    assert keypair_of(value) == keys
    if isinstance(value, dict):
        assert keypair_of(json.dumps(value, indent=2)) == keys


@pytest.mark.parametrize(
    "value",
    [
        "",
        "AKIA1",
        ":secret",
        "AKIA1:",
        "AKIA1: ",
        "{",
        "{}",
        '{"a":' * 10_000,
        "[1]",
        '{"accessKeyId": "AKIA1"}',
        '{"accessKeyId": 3, "secretAccessKey": "s"}',
        "AKIA1:planted secret",
        "AKIA1:plantéd",
        "AKIA1:pla\nnted",
        None,
        ["AKIA1", "planted"],
    ],
)
def test_what_is_no_keypair_is_refused_without_showing_it(value: Any) -> None:
    with pytest.raises(ValueError, match="must be formatted as <access_key_id>:<secret_access_key>") as caught:
        keypair_of(value)
    assert "plant" not in str(caught.value) and "AKIA" not in str(caught.value)


def test_keys_do_not_show_themselves() -> None:
    assert "cret" not in repr(SESSION) and "tok" not in repr(SESSION)
