"""Tunnels and mounts of a server: what is stored, what is asked of it, what is warned of, and that it stays."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from served import ADMIN, Served, new_id, running
from spaces import Space, namespace, token_of

KEY = base64.b64encode(bytes(range(32))).decode()
STRUCTURED = {
    "interface": {"privateKey": {"$secret": "wg"}, "address": ["10.0.0.2/32"]},
    "peers": [{"publicKey": KEY, "endpoint": "vpn.example.com:51820", "allowedIPs": ["10.0.0.0/24"]}],
}
PRIVATE = {"interface": {"privateKey": KEY}, "peers": [{"publicKey": KEY}]}
SECRET = {"name": "wg", "kind": "opaque", "plaintext": "planted-77aa"}
NFS = {"server": "10.0.0.12", "path": "/exports/imagenet"}


@pytest.fixture
def space(server: Served) -> Space:
    """An open server, and a namespace that nobody has used."""
    return Space(server)


# -- what both keep to

BOTH: list[Any] = [
    pytest.param(
        *("tunnels", "wireguard", STRUCTURED, {"conf": "[Interface]\nAddress = 10.0.0.2/32\n"}),
        marks=pytest.mark.inventory("S-189", "S-190", "S-191"),
    ),
    pytest.param(
        *("tunnels", "wireguard", {"conf": "[Interface]\n"}, STRUCTURED),
        marks=pytest.mark.inventory("S-192", "S-195", "S-196"),
    ),
    pytest.param(
        *("tunnels", "wireguard", {"interface": {}}, {"conf": "[Interface]\n"}), marks=pytest.mark.inventory("S-565")
    ),
    pytest.param(
        *("mounts", "nfs", NFS, {**NFS, "options": "ro"}), marks=pytest.mark.inventory("S-199", "S-200", "S-201")
    ),
    pytest.param(
        *("mounts", "bind", {"hostPath": "/a", "readOnly": True}, {"hostPath": "/b"}),
        marks=pytest.mark.inventory("S-202", "S-545", "S-617"),
    ),
]


@pytest.mark.inventory("S-203", "C-488")
@pytest.mark.parametrize(("noun", "kind", "config", "other"), BOTH)
def test_an_entry_is_added_to_a_namespace_that_comes_with_it_listed_replaced_and_removed(
    space: Space, noun: str, kind: str, config: Any, other: Any
) -> None:
    assert space("GET", noun).status == 404, "there is no such namespace yet"
    space.made("secrets", SECRET)
    row = space.made(noun, {"name": "one", "kind": kind, "config": config})
    assert (row["name"], row["kind"], row["config"], row["revision"]) == ("one", kind, config, 1)
    space.made(noun, {"name": "two", "kind": kind, "config": config})
    assert [one["name"] for one in space("GET", noun).body[noun]] == ["one", "two"]
    changed = space("PATCH", f"{noun}/one", {"config": other}).body
    assert (changed["config"], changed["revision"]) == (other, 2), "all of it is replaced"
    shown = space("GET", f"{noun}/one").body
    assert shown == {key: value for key, value in changed.items() if key != "warnings"}
    assert space("DELETE", f"{noun}/one").body == {"name": "one", "deleted": True}
    for method in ("GET", "PATCH", "DELETE"):
        body = {"config": config} if method == "PATCH" else None
        assert space.refused(method, f"{noun}/one", body) == (404, "name")


@pytest.mark.inventory("S-216", "S-640")
@pytest.mark.parametrize("noun", ["tunnels", "mounts"])
def test_a_name_a_kind_and_a_revision_are_what_they_are(space: Space, noun: str) -> None:
    body = {"name": "one", "kind": "nfs" if noun == "mounts" else "wireguard", "config": NFS}
    space.made(noun, body)
    assert space.refused("POST", noun, body) == (409, "name")
    assert space.refused("PATCH", f"{noun}/one", {"name": "two"}) == (400, "name")
    assert space.refused("PATCH", f"{noun}/one", {"kind": "other"}) == (400, "kind")
    assert space("PATCH", f"{noun}/one?revision=1", {"config": NFS}).status == 200
    assert space.refused("PATCH", f"{noun}/one?revision=1", {"config": NFS}) == (409, "revision")


@pytest.mark.inventory("S-119", "S-197", "S-217")
@pytest.mark.parametrize("noun", ["tunnels", "mounts"])
def test_a_secret_stays_a_reference_and_must_be_there_whenever_it_is_written(space: Space, noun: str) -> None:
    config = {**NFS, "deep": [{"key": {"$secret": "wg"}}]}
    body = {"name": "one", "kind": "nfs" if noun == "mounts" else "wireguard", "config": config}
    refused = space("POST", noun, body)
    assert (refused.status, refused.body["error"], refused.body["secret"]) == (422, "unknown secret", "wg")
    space.made("secrets", SECRET)
    assert space.made(noun, body)["config"] == config
    assert b"planted" not in space("GET", noun).raw
    changed = space("PATCH", f"{noun}/one", {"config": {**config, "key": {"$secret": "other"}}})
    assert (changed.status, changed.body["secret"]) == (422, "other")
    assert space("GET", f"{noun}/one").body["config"] == config


@pytest.mark.inventory("S-115", "S-116", "S-655")
def test_a_marker_is_a_leaf_that_names_something_and_a_tree_is_not_too_deep(space: Space) -> None:
    space.made("secrets", SECRET)
    beside = {**NFS, "creds": {"$secret": "wg", "also": {"$secret": "none-such"}}}
    space.made("mounts", {"name": "leaf", "kind": "nfs", "config": beside})
    for marker in ("", None, 3):
        body = {"name": "bad", "kind": "nfs", "config": {**NFS, "creds": {"$secret": marker}}}
        assert space.refused("POST", "mounts", body) == (400, "config.creds.$secret")
    deep: Any = "end"
    for _ in range(25):
        deep = {"in": deep}
    assert space("POST", "mounts", {"name": "bad", "kind": "nfs", "config": {**NFS, "deep": deep}}).status == 400


@pytest.mark.inventory("S-803")
@pytest.mark.parametrize("noun", ["tunnels", "mounts"])
def test_text_that_looks_like_a_reference_is_text_and_is_warned_of(space: Space, noun: str) -> None:
    config = {**NFS, "list": ["$secret:wg"]}
    body = {"name": "one", "kind": "nfs" if noun == "mounts" else "wireguard", "config": config}
    row = space.made(noun, body)
    assert row["config"] == config
    assert [one for one in row["warnings"] if "config.list[0]: '$secret:wg' is text" in one]


@pytest.mark.parametrize("noun", ["tunnels", "mounts"])
def test_a_long_list_comes_in_pages(space: Space, noun: str) -> None:
    kind = "nfs" if noun == "mounts" else "wireguard"
    for name in "abcde":
        space.made(noun, {"name": name, "kind": kind, "config": NFS})
    found, path = [], f"{noun}?limit=2"
    while True:
        page = space("GET", path).body
        found.append([row["name"] for row in page[noun]])
        if page["next"] is None:
            break
        path = f"{noun}?limit=2&cursor={page['next']}"
    assert found == [["a", "b"], ["c", "d"], ["e"]]
    assert space.refused("GET", f"{noun}?limit=0") == (422, "limit")


REFUSED: list[Any] = [
    ("mounts", {"name": "Big", "kind": "nfs", "config": NFS}, 400, "name"),
    ("mounts", {"name": "a" * 201, "kind": "nfs", "config": NFS}, 400, "name"),
    ("mounts", {"kind": "nfs", "config": NFS}, 400, "name"),
    ("mounts", {"name": "m", "config": NFS}, 422, "kind"),
    ("mounts", {"name": "m", "kind": 3, "config": NFS}, 422, "kind"),
    ("mounts", {"name": "m", "kind": "NFS", "config": NFS}, 422, "kind"),
    ("mounts", {"name": "m", "kind": "nfs", "config": [1]}, 422, "config"),
    ("mounts", {"name": "m", "kind": "nfs", "config": {**NFS, "server": 3}}, 422, "config.server"),
    ("mounts", {"name": "m", "kind": "nfs", "config": {**NFS, "more": "x" * 70_000}}, 413, "config"),
    ("mounts", {"name": "m", "kind": "nfs", "config": {"$secret": "wg"}}, 400, "config"),
    ("tunnels", {"name": "-t", "config": PRIVATE}, 400, "name"),
    ("tunnels", {"name": "t"}, 422, "config"),
    ("tunnels", {"name": "t", "config": "conf"}, 422, "config"),
]


@pytest.mark.inventory("S-650", "C-016")
@pytest.mark.parametrize(("noun", "body", "status", "field"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_field(
    space: Space, noun: str, body: Any, status: int, field: str
) -> None:
    assert space.refused("POST", noun, body) == (status, field)


def test_siblings_of_an_org_read_entries_and_strangers_do_not(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    ours, sibling, stranger = (namespace(secured_server, one) for one in (org, org, None))
    Space(secured_server, ours, ADMIN).made("mounts", {"name": "m", "kind": "nfs", "config": NFS})
    reader = Space(secured_server, ours, token_of(secured_server, sibling))
    assert reader("GET", "mounts/m").body["config"] == NFS
    assert Space(secured_server, ours, token_of(secured_server, stranger))("GET", "mounts").status == 403


def test_entries_are_told_of_survive_a_restart_and_go_with_their_namespace(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        space = Space(server)
        space.made("mounts", {"name": "kept", "kind": "nfs", "config": NFS})
        space.made("tunnels", {"name": "kept", "config": PRIVATE})
        space.made("storages", {"name": "kept", "kind": "s3", "config": {"bucket": "b"}})
        space.made("code-repos", {"remote": "r", "commit": "a" * 40, "archiveKey": "k", "storageName": "kept"})
        space.made("providers", {"name": "box", "launcher": "SSH", "tunnel": "kept"})
        assert space("PATCH", "mounts/kept", {"config": {**NFS, "options": "ro"}}).status == 200
        told = [row["kind"] for row in space("GET", "events").body["events"]]
        assert told == ["mount.change", "code.register", "storage.add", "tunnel.add", "mount.add"]
        nouns = ("mounts", "tunnels", "storages", "code-repos", "providers")
        before = {noun: space("GET", noun).body for noun in nouns}
        assert server.stop() == 0
    with running(tmp_path / "server") as server:
        space = Space(server, space.ns)
        assert {noun: space("GET", noun).body for noun in nouns} == before
        assert server.call("DELETE", f"/v1/admin/namespaces/{space.ns}").body["deleted"] is True
        space.made("mounts", {"name": "new", "kind": "nfs", "config": NFS})
        listed = [one for noun in nouns for lists in [space("GET", noun).body] for one in next(iter(lists.values()))]
        assert [row["name"] for row in listed] == ["new"]
        space.made("storages", {"name": "kept", "kind": "s3", "config": {"bucket": "b"}})


# -- tunnels


@pytest.mark.inventory("S-194", "S-725")
@pytest.mark.parametrize("kind", ["openvpn", "WireGuard", "", 3])
def test_the_only_kind_of_tunnel_is_wireguard_which_needs_not_be_said(space: Space, kind: Any) -> None:
    assert space.made("tunnels", {"name": "t", "config": PRIVATE})["kind"] == "wireguard"
    assert space.refused("POST", "tunnels", {"name": "u", "kind": kind, "config": PRIVATE}) == (422, "kind")


@pytest.mark.inventory("S-198", "S-766")
@pytest.mark.inventory("C-1393")
def test_a_tunnel_says_that_nothing_brings_it_up(space: Space) -> None:
    space.made("tunnels", {"name": "t", "config": PRIVATE})
    assert space("GET", "tunnels/t").body["activation"] == "not-supported"


@pytest.mark.inventory("S-791")
@pytest.mark.parametrize(
    ("config", "about"),
    [
        (STRUCTURED, []),
        (PRIVATE, ["config.interface.privateKey"]),
        ({**STRUCTURED, "interface": {"privateKey": "abc="}}, ["config.interface.privateKey"]),
        ({**STRUCTURED, "peers": [{"publicKey": KEY}, {"publicKey": "x"}, 3]}, ["config.peers[1]", "config.peers[2]"]),
        ({"other": 1}, ["config.interface", "config.peers"]),
        ({"conf": "[Interface]\nPrivateKey = x\n"}, ["config.conf"]),
        ({"conf": 3}, ["config.conf"]),
        ({"conf": "[Interface]\nAddress = 10.0.0.1/32\n"}, []),
    ],
)
def test_what_is_no_wg_quick_is_stored_as_it_is_and_warned_of(space: Space, config: Any, about: list[str]) -> None:
    space.made("secrets", SECRET)
    row = space.made("tunnels", {"name": "t", "config": config})
    assert row["config"] == config
    assert [one.partition(":")[0].removesuffix(".publicKey") for one in row["warnings"]] == about


@pytest.mark.inventory("S-193", "S-144", "S-130")
def test_a_tunnel_stays_while_a_provider_refers_to_it(space: Space) -> None:
    space.made("tunnels", {"name": "t", "config": PRIVATE})
    box = {"name": "box", "launcher": "SSH"}
    assert space.refused("POST", "providers", {**box, "tunnel": "none-such"}) == (422, "tunnel")
    assert space.made("providers", box)["tunnel"] is None
    assert space.refused("PATCH", "providers/box", {"tunnel": "none-such"}) == (422, "tunnel")
    assert space.refused("PATCH", "providers/box", {"tunnel": 3}) == (400, "tunnel")
    assert space("PATCH", "providers/box", {"tunnel": "t"}).body["tunnel"] == "t"
    assert space("GET", "tunnels/t").body["providers"] == ["box"]
    refused = space("DELETE", "tunnels/t")
    assert (refused.status, refused.body["providers"]) == (409, ["box"])
    assert 'update box --tunnel ""' in refused.body["hint"]
    assert space("PATCH", "providers/box", {"hidden": False}).body["tunnel"] == "t"
    assert space("PATCH", "providers/box", {"tunnel": ""}).body["tunnel"] is None
    assert space("DELETE", "tunnels/t").status == 200


@pytest.mark.inventory("S-609")
def test_a_removed_provider_holds_no_tunnel_and_comes_back_without_one_that_is_gone(space: Space) -> None:
    space.made("tunnels", {"name": "t", "config": PRIVATE})
    for name in ("box", "pen"):
        space.made("providers", {"name": name, "launcher": "SSH", "tunnel": "t"})
        assert space("DELETE", f"providers/{name}").status == 200
    assert space("POST", "providers/pen/restore", {}).body["tunnel"] == "t"
    assert space("DELETE", "providers/pen").status == 200
    assert space("DELETE", "tunnels/t").status == 200
    assert space("POST", "providers/box/restore", {}).body["tunnel"] is None


# -- mounts

KINDS: list[Any] = [
    ("nfs", {"server": "h", "path": "/p"}, {"options": "ro"}, "S-206"),
    (
        "samba",
        {"server": "h", "share": "s"},
        {"options": "ro", "path": "in", "creds": {"$secret": "wg"}},
        "S-207",
        "C-1403",
    ),
    ("ftp", {"server": "h"}, {"path": "/p", "port": 21, "creds": {"$secret": "wg"}}, "S-208"),
    ("sftp", {"server": "h"}, {"path": "/p", "port": 22, "creds": {}, "key": {"$secret": "wg"}}, "S-209", "C-1403"),
    ("s3", {"bucket": "b"}, {"endpoint": "http://h", "region": "r", "prefix": "p", "creds": {}}, "S-210"),
    ("s3fs", {"bucket": "b"}, {"endpoint": "http://h", "region": "r", "prefix": "p", "options": "o"}, "S-211"),
    ("google_drive", {"folderId": "root"}, {"creds": {"$secret": "wg"}}, "S-212"),
    ("dropbox", {"path": "/p"}, {"creds": {"$secret": "wg"}}, "S-213"),
    ("bind", {"hostPath": "/p"}, {"readOnly": True}, "S-214"),
    ("configmap", {"kubeNamespace": "n", "name": "c"}, {"items": [{"key": "a", "path": "b"}]}, "S-215"),
]


@pytest.mark.inventory("S-205", "S-218", "C-152")
@pytest.mark.parametrize(
    ("kind", "required", "optional"),
    [pytest.param(*case[:3], marks=pytest.mark.inventory(*case[3:]), id=case[0]) for case in KINDS],
)
def test_each_kind_asks_for_its_fields_at_every_write_and_keeps_the_rest(
    space: Space, kind: str, required: dict[str, str], optional: dict[str, Any]
) -> None:
    space.made("secrets", SECRET)
    assert space.made("mounts", {"name": "least", "kind": kind, "config": required})["warnings"] == []
    whole = {**required, **optional}
    row = space.made("mounts", {"name": "whole", "kind": kind, "config": whole})
    assert (row["config"], row["warnings"]) == (whole, [])
    row = space.made("mounts", {"name": "more", "kind": kind, "config": {**whole, "sever": "typo"}})
    assert row["config"]["sever"] == "typo"
    assert [one.partition(":")[0] for one in row["warnings"]] == ["config.sever"]
    for field in required:
        for value in ({}, {field: ""}, {field: None}):
            config = {**{key: said for key, said in whole.items() if key != field}, **value}
            body = {"name": "bad", "kind": kind, "config": config}
            assert space.refused("POST", "mounts", body) == (422, f"config.{field}")
            assert space.refused("PATCH", "mounts/whole", {"config": config}) == (422, f"config.{field}")
    assert space("GET", "mounts/whole").body["config"] == whole


@pytest.mark.inventory("S-204", "S-765")
def test_there_are_ten_kinds_and_git_is_none(space: Space) -> None:
    refused = space("POST", "mounts", {"name": "m", "kind": "git", "config": {}})
    assert (refused.status, refused.body["field"]) == (422, "kind")
    assert "code push" in refused.body["hint"]
    said = refused.body["error"].partition("one of ")[2].split(", ")
    assert sorted(said) == sorted(case[0] for case in KINDS)
