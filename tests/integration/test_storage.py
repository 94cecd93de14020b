"""`Storage` and `TemporaryCredentials`: what is asked of the control plane, what moves, and where both come from."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import entry_bodies as bodies
import pytest
import served
from object_store import SIGNATURE, Store, storing

import dreamlake.lakeshore as dls
from lakeshore.sdk.ambient import install_plane, uninstall_plane
from lakeshore.sdk.errors import DispatchError

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture
def store() -> Iterator[Store]:
    with storing() as made:
        yield made


@pytest.fixture(autouse=True)
def nobody_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def log_in(tmp_path: Path, server: str, token: str = "of-the-login") -> Path:
    login = tmp_path / "config" / "lakeshore" / "auth.yml"
    login.parent.mkdir(parents=True)
    login.touch(0o600)
    login.write_text(f"server: {server}\nnamespace: team\ntoken: {token}\n")
    return login


# -- which server, as whom


@pytest.mark.inventory("P-712", "P-367")
def test_the_constructor_is_a_name_and_what_is_to_be_overridden() -> None:
    parameters = list(inspect.signature(dls.Storage).parameters.values())
    assert [(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in parameters] == [
        ("name", inspect.Parameter.empty, False),
        ("base_url", None, True),
        ("namespace", None, True),
        ("token", None, True),
    ]
    assert inspect.signature(dls.Storage.presign).parameters["expires_in"].default == 3600
    for name in ("", "a/b/c", 3):
        with pytest.raises(TypeError, match="a storage is named by a str"):
            dls.Storage(name)  # type: ignore[arg-type]


@pytest.mark.inventory("P-370", "P-402", "P-404")
def test_the_server_is_found_in_the_documented_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def url(**given: Any) -> str:
        with dls.Storage("my-data", **given) as made:
            return made.base_url

    assert url() == "http://localhost:8080"
    log_in(tmp_path, "http://login.example")
    assert url() == "http://login.example"
    monkeypatch.setenv("DREAMLAKE_SERVER", "http://dreamlake.example")
    assert url() == "http://dreamlake.example"
    monkeypatch.setenv("LAKESHORE_URL", "http://url.example/")
    assert url() == "http://url.example"
    assert url(base_url="http://given.example") == "http://given.example"


@pytest.mark.inventory("P-369", "P-371", "P-372")
def test_token_and_namespace_come_from_the_environment_or_the_login(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(**given: Any) -> tuple[str, str | None]:
        with dls.Storage("my-data", base_url=store.url, **given) as made:
            made.presign("k")
        path, headers, _ = store.asked[-1]
        assert headers["x-ls-namespace"] == path.split("/")[3]
        return path.split("/")[3], headers.get("authorization")

    assert asked() == ("default", None)
    log_in(tmp_path, store.url)
    assert asked() == ("team", "Bearer of-the-login")
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", "of-the-environment")
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "named")
    assert asked() == ("named", "Bearer of-the-environment")
    assert asked(token="given", namespace="other") == ("other", "Bearer given")
    with dls.Storage("shared/my-data", base_url=store.url) as made:
        made.presign("k")
    assert store.asked[-1][0] == "/v1/namespaces/shared/storages/my-data/presign"


@pytest.mark.inventory("P-732")
def test_the_token_of_a_login_goes_to_its_own_server_only(store: Store, tmp_path: Path) -> None:
    login = log_in(tmp_path, "http://somewhere.else")
    with dls.Storage("my-data", base_url=store.url) as made:
        made.presign("k")
    path, headers, _ = store.asked[-1]
    assert "authorization" not in headers
    assert path.split("/")[3] == "default"
    login.chmod(0o644)  # a file that others can read is not used, and is no obstacle to who says where to go
    dls.Storage("my-data", base_url=store.url).close()
    with pytest.raises(DispatchError, match="can be read by others"):
        dls.Storage("my-data")


def test_in_a_body_the_server_and_token_are_those_of_its_worker(store: Store) -> None:
    plane = dls.HttpDispatch(store.url, token="of-the-worker", namespace="jobs")
    installed = install_plane(plane)
    try:
        with dls.Storage("my-data") as made:
            made.presign("k")
    finally:
        uninstall_plane(installed)
        plane.close()
    path, headers, _ = store.asked[-1]
    assert (path.split("/")[3], headers["authorization"]) == ("jobs", "Bearer of-the-worker")


# -- what is asked


@pytest.mark.inventory("P-373", "P-374")
def test_presign_asks_for_one_key_one_operation_and_a_time(store: Store) -> None:
    with dls.Storage("my-data", base_url=store.url) as made:
        url = made.presign("runs/exp 01/model.pt")
        made.presign("k", operation="put", expires_in=900)
        with pytest.raises(ValueError, match='"get" and "put", got \'delete\''):
            made.presign("k", operation="delete")  # type: ignore[arg-type]
    assert url == f"{store.url}/bucket/prefix/runs/exp%2001/model.pt?op=get&{SIGNATURE}"
    assert [(path, body) for path, _, body in store.asked] == [
        (
            "/v1/namespaces/default/storages/my-data/presign",
            {"key": "runs/exp 01/model.pt", "operation": "get", "expiresIn": 3600},
        ),
        ("/v1/namespaces/default/storages/my-data/presign", {"key": "k", "operation": "put", "expiresIn": 900}),
    ]


@pytest.mark.inventory("P-375", "P-376", "P-377")
def test_credentials_go_into_boto3_or_into_an_environment(store: Store) -> None:
    with dls.Storage("my-data", base_url=store.url) as made:
        credentials = made.credentials(duration_seconds=7200)
    assert store.asked[-1][0].endswith("/storages/my-data/credentials")
    assert store.asked[-1][2] == {"durationSeconds": 7200}
    assert isinstance(credentials, dls.TemporaryCredentials)
    assert credentials.to_boto3_kwargs() == {
        "aws_access_key_id": "AKIA1",
        "aws_secret_access_key": "s3cret",
        "aws_session_token": "t0ken",
        "region_name": "eu-1",
    }
    assert credentials.to_env() == {
        "AWS_ACCESS_KEY_ID": "AKIA1",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "AWS_SESSION_TOKEN": "t0ken",
        "AWS_REGION": "eu-1",
    }
    assert credentials.expiration == "2030-01-01T00:00:00Z"
    assert not {"s3cret", "t0ken"} & set(repr(credentials).replace("'", " ").split())


# -- what moves


@pytest.mark.inventory("P-368", "P-378")
def test_objects_go_there_and_come_back_as_bytes_and_as_text(store: Store) -> None:
    with dls.Storage("my-data", base_url=store.url) as made:
        made.put("runs/ü b.bin", b"\x00\xff")
        made.put_text("notes.md", "grüße")
        assert made.get("runs/ü b.bin") == b"\x00\xff"
        assert made.get_text("notes.md") == "grüße"
        with pytest.raises(TypeError, match="put takes bytes, got str; put_text takes a str"):
            made.put("k", "text")  # type: ignore[arg-type]
    assert store.objects == {"prefix/runs/ü b.bin": b"\x00\xff", "prefix/notes.md": "grüße".encode()}
    made.put("again", b"")  # closed: the next verb opens new connections
    made.close()


@pytest.mark.inventory("P-379")
def test_a_url_that_is_used_at_once_is_good_for_five_minutes(store: Store) -> None:
    store.objects["prefix/k"] = b"x"
    with dls.Storage("my-data", base_url=store.url) as made:
        made.get("k")
        made.put("k", b"y")
        made.get("k", expires_in=86400)
    assert [body["expiresIn"] for _, _, body in store.asked] == [300, 300, 86400]


@pytest.mark.inventory("P-381")
def test_a_put_has_a_length_and_no_credential_of_ours_goes_along(store: Store) -> None:
    with dls.Storage("my-data", base_url=store.url, token="ours") as made:
        made.put("k", bytes(300_000))
        made.get("k")
    (_, put), (_, get) = store.moved
    assert put["content-length"] == "300000"
    assert "transfer-encoding" not in put
    assert "authorization" not in {**put, **get}


@pytest.mark.inventory("P-380")
def test_moving_objects_needs_no_boto3(store: Store) -> None:
    program = (
        "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\n"
        "import dreamlake.lakeshore as dls\n"
        "with dls.Storage('my-data') as store:\n"
        "    store.put_text('k', 'text'); print(store.get_text('k'), store.credentials().to_env()['AWS_REGION'])\n"
    )
    env = served.environment(LAKESHORE_URL=store.url, XDG_CONFIG_HOME="/nowhere")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "text eu-1\n"), done.stderr


@pytest.mark.inventory("P-382")
def test_an_entry_that_is_not_there_is_named(store: Store) -> None:
    with dls.Storage("other", base_url=store.url) as made:
        for ask in (lambda: made.presign("k"), made.credentials, lambda: made.get("k")):
            with pytest.raises(
                DispatchError, match=r"there is no storage 'other' in namespace 'default' of .*storage list"
            ):
                ask()


def test_what_goes_wrong_is_told_without_the_url(store: Store) -> None:
    with dls.Storage("my-data", base_url=store.url) as made:
        with pytest.raises(
            DispatchError, match=r"GET of 'gone' in storage 'my-data' was answered 404: there is no such"
        ):
            made.get("gone")
        store.expired = True
        with pytest.raises(DispatchError, match="answered 403: the URL has expired, or a clock is wrong") as caught:
            made.put("k", b"")
        assert SIGNATURE not in str(caught.value)
        for status, body, says in (
            (501, {"error": "not built yet: object storage", "hint": "use a mount"}, "not built yet: .*; use a mount"),
            (200, {"no": "url"}, "HTTP 200"),
        ):
            store.answer = (status, body)
            with pytest.raises(DispatchError, match=says):
                made.presign("k")
        store.answer = (200, {"url": "http://127.0.0.1:9/?" + SIGNATURE})
        with pytest.raises(DispatchError, match=r"GET of 'k' at 127\.0\.0\.1:9 failed: ConnectError") as caught:
            made.get("k")
        assert SIGNATURE not in str(caught.value)
    with (
        dls.Storage("my-data", base_url="http://127.0.0.1:9") as away,
        pytest.raises(DispatchError, match=r"127\.0\.0\.1:9"),
    ):
        away.presign("k")


@pytest.mark.inventory("P-383")
def test_what_is_pickled_with_a_function_is_the_name_and_no_credential(store: Store) -> None:
    made = dls.Storage("my-data", base_url=store.url, namespace="team", token="a-secret")
    data = pickle.dumps(made)
    assert b"a-secret" not in data
    again = pickle.loads(data)
    assert (again.name, again.base_url, again.namespace) == ("my-data", store.url, "team")
    assert "a-secret" not in repr(made)
    envelope = dls.thunk(lambda: made.get("k")).to_envelope().to_bytes()
    assert b"a-secret" not in envelope
    for one in (made, again):
        one.close()


@pytest.mark.inventory("P-475")
def test_a_worker_reads_and_writes_objects_by_name_and_returns_their_keys(
    store: Store, server: served.Served, tmp_path: Path
) -> None:
    store.objects["prefix/scenes/0007/splats.ply"] = b"points"
    plane = dls.HttpDispatch(server.url)
    queue = f"q-{served.new_id()}"
    inv = bodies.splats_to_mesh.submit("splats.ply", store.url, _queue=queue, _dispatch=plane)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", queue, "--url", server.url, "--once"],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert dls.SyncQueue(queue, dispatch=plane).result(inv) == "process/mesh.ply"
    assert store.objects["prefix/process/mesh.ply"] == b"mesh of points"
    assert (tmp_path / "process/mesh.ply").read_bytes() == b"mesh of points"
    plane.close()


@pytest.mark.inventory("P-529")
def test_the_block_of_the_page_does_what_it_says(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT.parent / "shared" / "spec" / "get-started" / "storages.md"
    if not page.is_file():
        pytest.skip(f"the reference's page is not at {page}")
    block = "\n".join(page.read_text("utf-8").splitlines()[146:160])
    assert block.startswith("from dreamlake.lakeshore import Storage")
    monkeypatch.setenv("LAKESHORE_URL", store.url)
    store.objects |= {"prefix/runs/exp-01/config.json": b"{}", "prefix/runs/exp-01/notes.md": b"fine"}
    found: dict[str, Any] = {"boto3": SimpleNamespace(Session=dict)}  # the user's own, as the page leaves it
    exec(compile(block, str(page), "exec"), found)
    assert (found["data"], found["text"]) == (b"{}", "fine")
    assert store.objects["prefix/runs/exp-01/out.json"] == b'{"loss": 0.01}'
    assert found["session"]["aws_session_token"] == "t0ken"
    assert set(found["env"]) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"}
    found["store"].close()
