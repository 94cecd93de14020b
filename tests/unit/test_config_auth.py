"""The saved login on the disk: who may read it, how it is written, how it goes."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
import yaml

from lakeshore.config.auth import forget_saved_login, read_saved_login, write_saved_login
from lakeshore.config.errors import ConfigError

TOKEN = "dlk_" + "x" * 43
SERVER = "https://control.example"


def home(place: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(place)}


@pytest.mark.inventory("C-069", "C-360")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_login_is_yaml_that_only_its_owner_may_read(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        saved = write_saved_login(SERVER, "dev", TOKEN, home(tmp_path / "new"))
    finally:
        os.umask(before)
    assert saved.path == tmp_path / "new" / "lakeshore" / "auth.yml"
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    assert yaml.safe_load(saved.path.read_text()) == {"server": SERVER, "namespace": "dev", "token": TOKEN}
    assert f"\ntoken: {TOKEN}\n" in saved.path.read_text(), "scripts take it from the line"
    assert read_saved_login(home(tmp_path / "new")) == saved
    assert os.listdir(saved.path.parent) == ["auth.yml"]


@pytest.mark.inventory("C-827")
@pytest.mark.parametrize(
    ("page", "namespace"), [("cli/installation", "your-namespace"), ("api/auth-and-secrets", "default")]
)
def test_the_example_of_the_page_loads(tmp_path: Path, page: str, namespace: str) -> None:
    path = Path(__file__).resolve().parents[3] / "shared" / "spec" / f"{page}.md"
    if not path.is_file():
        pytest.skip(f"the reference's page is not at {path}")
    block = path.read_text("utf-8").split('file="~/.config/lakeshore/auth.yml"\n')[1].split("```")[0]
    file = tmp_path / "lakeshore" / "auth.yml"
    file.parent.mkdir()
    file.write_text(block, "utf-8")
    file.chmod(0o600)
    saved = read_saved_login(home(tmp_path))
    assert saved is not None
    assert (saved.server, saved.namespace) == ("https://api.lakeshore.dreamlake.ai", namespace)
    assert saved.token is not None and saved.token.startswith("dlk_xxxxxxxx")


@pytest.mark.inventory("C-057", "C-360")
def test_without_xdg_config_home_it_is_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_saved_login(SERVER, "dev", TOKEN, {}).path == tmp_path / ".config" / "lakeshore" / "auth.yml"
    assert write_saved_login(SERVER, "dev", TOKEN, {"XDG_CONFIG_HOME": "relative"}).path.is_relative_to(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666])
def test_a_file_that_others_may_read_is_not_used_until_that_is_mended(tmp_path: Path, mode: int) -> None:
    saved = write_saved_login(SERVER, "dev", TOKEN, home(tmp_path))
    saved.path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        read_saved_login(home(tmp_path))
    assert f"mode {mode:o}" in str(caught.value)
    assert f"chmod 600 {saved.path}" in str(caught.value)
    assert TOKEN not in str(caught.value)
    write_saved_login(SERVER, "dev", TOKEN, home(tmp_path))
    assert read_saved_login(home(tmp_path)) == saved


def test_a_login_without_a_token_may_be_read_by_everybody(tmp_path: Path) -> None:
    saved = write_saved_login(SERVER, "dev", None, home(tmp_path))
    saved.path.chmod(0o644)
    assert read_saved_login(home(tmp_path)) == saved
    assert "token" not in yaml.safe_load(saved.path.read_text())


@pytest.mark.parametrize("value", ["12345678", "yes", "- x", "a: b", "ä€", "x" * 500, "# x"])
def test_whatever_the_token_looks_like_it_comes_back(tmp_path: Path, value: str) -> None:
    write_saved_login(SERVER, "dev", value, home(tmp_path))
    saved = read_saved_login(home(tmp_path))
    assert saved is not None
    assert saved.token == value


def test_a_reader_sees_the_old_login_or_the_new_one(tmp_path: Path) -> None:
    write_saved_login(SERVER, "n0", TOKEN, home(tmp_path))
    done = threading.Event()
    seen = set()

    def read() -> None:
        while not done.is_set():
            saved = read_saved_login(home(tmp_path))
            seen.add(saved is not None and saved.token == TOKEN)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        write_saved_login(SERVER, f"n{number}", TOKEN, home(tmp_path))
    done.set()
    reader.join()
    assert seen == {True}


def test_a_linked_login_is_written_and_deleted_where_it_lies(tmp_path: Path) -> None:
    real = tmp_path / "kept elsewhere" / "auth.yml"
    real.parent.mkdir()
    (tmp_path / "lakeshore").mkdir()
    link = tmp_path / "lakeshore" / "auth.yml"
    link.symlink_to(real)
    write_saved_login(SERVER, "dev", TOKEN, home(tmp_path))
    assert link.is_symlink()
    assert TOKEN in real.read_text()
    assert forget_saved_login(home(tmp_path)) == link
    assert not link.is_symlink()
    assert not real.exists()


@pytest.mark.inventory("C-062")
def test_to_forget_deletes_the_file_whatever_is_in_it(tmp_path: Path) -> None:
    assert forget_saved_login(home(tmp_path)) is None
    saved = write_saved_login(SERVER, "dev", TOKEN, home(tmp_path))
    saved.path.write_text("[broken")
    assert forget_saved_login(home(tmp_path)) == saved.path
    assert not saved.path.exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "lakeshore").write_text("a file in the way")
    with pytest.raises(ConfigError, match=r"cannot write .*auth\.yml: .*; XDG_CONFIG_HOME"):
        write_saved_login(SERVER, "dev", TOKEN, home(tmp_path))
