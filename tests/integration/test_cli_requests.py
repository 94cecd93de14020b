"""What commands ask of a server, heard on the way there, and the documented routes that they go by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exec_peer import Peer
from http_recorder import Heard, Recorder, recording
from served import JSON, Served, new_id
from spaces import Space

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def recorder(server: Served) -> Iterator[Recorder]:
    with recording(server.url) as made:
        yield made


@pytest.fixture
def space(server: Served, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Space:
    """A namespace of its own; commands reach it through the recorder."""
    space = Space(server)
    space.made("secrets", {"name": "first", "kind": "opaque", "plaintext": "makes the namespace"})
    monkeypatch.setenv("LAKESHORE_URL", recorder.url)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", space.ns)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return space


def asked(recorder: Recorder, space: Space, method: str) -> list[Heard]:
    """The requests of one method to the namespace, their paths without it."""
    at = f"/v1/namespaces/{space.ns}"
    return [one for one in recorder.requests() if one.method == method and one.path.startswith(at)]


def sent(one: Heard) -> dict[str, Any]:
    found = json.loads(one.body) if isinstance(one.body, str | bytes) else one.body
    assert isinstance(found, dict)
    return found


@pytest.mark.inventory("C-1379")
@pytest.mark.parametrize("route", ["daemon", "queue"])
def test_a_command_for_a_daemon_and_one_for_a_queue_go_to_the_same_route(
    run: Run, recorder: Recorder, space: Space, server: Served, route: str
) -> None:
    peer = Peer(server, ns=space.ns, queue="tools")
    peer.poll()
    words = {"daemon": ("daemon", "exec", "--wait", "0", peer.id), "queue": ("exec", "--wait", "0", "--queue", "tools")}
    assert run(*words[route], "true")[0] != 2
    (post,) = asked(recorder, space, "POST")
    assert post.path == f"/v1/namespaces/{space.ns}/exec"
    body = sent(post)
    assert (body["command"], body.get("worker_id"), body.get("queue")) == (
        ("true", peer.id, None) if route == "daemon" else ("true", None, "tools")
    )


@pytest.mark.inventory("C-1391", "C-1426")
@pytest.mark.parametrize(("flags", "kept"), [((), None), (("--no-terminate",), "true")])
def test_daemon_kill_takes_the_instance_along_unless_it_is_told_to_keep_it(
    run: Run, recorder: Recorder, space: Space, server: Served, flags: tuple[str, ...], kept: str | None
) -> None:
    peer = Peer(server, ns=space.ns)
    assert run("daemon", "kill", peer.id, *flags)[0] == 0
    (gone,) = asked(recorder, space, "DELETE")
    assert gone.query.get("keep_instance") == kept


# --- the documented routes

BOX = {"name": "box", "launcher": "SSH"}
LIVES: list[Any] = [
    pytest.param(
        [
            ("POST", "providers", BOX, 201),
            ("GET", "providers", None, 200),
            ("PATCH", "providers/box", {"kwargs": {"ip": "h"}}, 200),
            ("GET", "providers/box", None, 200),
            ("DELETE", "providers/box", None, 200),
            ("GET", "providers/box", None, 404),
            ("POST", "providers/box/restore", {}, 200),
            ("GET", "providers/box", None, 200),
        ],
        id="providers",
        marks=pytest.mark.inventory("C-485"),
    ),
    pytest.param(
        [
            ("POST", "queues", {"name": "q"}, 201),
            ("GET", "queues", None, 200),
            ("PATCH", "queues/q", {"description": "d"}, 200),
            ("GET", "queues/q", None, 200),
            ("POST", "workers/<worker>/queues", {"add": ["q"]}, 200),
            ("GET", "queues/q/stats", None, 200),
            ("POST", "queues/q/drain", {}, 200),
            ("POST", "queues/q/archive", {}, 200),
            ("POST", "queues/q/unarchive", {}, 200),
            ("GET", "queues/q/events", None, 200),
            ("DELETE", "queues/q", None, 409),
            ("POST", "workers/<worker>/queues", {"remove": ["q"]}, 200),
            ("DELETE", "queues/q", None, 200),
            ("GET", "queues/q", None, 404),
        ],
        id="queues",
        marks=pytest.mark.inventory("C-486"),
    ),
    pytest.param(
        [
            ("GET", "invocations", None, 200),
            ("GET", "invocations/<call>", None, 200),
            ("POST", "invocations/bulk-cancel?queue=others", {}, 200),
            ("DELETE", "invocations/<call>", None, 200),
            ("DELETE", "invocations/<call>", None, 409),
        ],
        id="invocations",
        marks=pytest.mark.inventory("C-487"),
    ),
]


@pytest.mark.parametrize("life", LIVES)
def test_the_documented_routes_lead_through_the_life_of_what_they_name(
    server: Served, life: list[tuple[str, str, Any, int]]
) -> None:
    space = Space(server)
    space.made("secrets", {"name": "first", "kind": "opaque", "plaintext": "makes the namespace"})
    call = {"invocation_id": new_id(), "queue": "calls", "args_blob": ""}
    assert server.post("/v1/producer/submit", call, encoding=JSON, X_LS_Namespace=space.ns).status == 200
    names = {"<worker>": Peer(server, ns=space.ns).id, "<call>": call["invocation_id"]}
    for method, path, body, status in life:
        for blank, name in names.items():
            path = path.replace(blank, name)
        answer = space(method, path, body)
        assert answer.status == status, (method, path, answer.raw)
