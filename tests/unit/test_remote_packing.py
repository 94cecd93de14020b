"""The user's code as one file to send: what goes, what stays, and what the script there makes of it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from lakeshore.remote import packing
from lakeshore.remote.errors import RemoteFailure
from lakeshore.remote.packing import pack


def filled(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return root


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as packed:
        return packed.getnames()


def test_modules_and_their_data_go_and_what_git_caches_and_environments_hold_stays(tmp_path: Path) -> None:
    code = filled(tmp_path / "code", "jobs.py", "pkg/__init__.py", "pkg/table.csv", "pkg/.hidden", "my venv/lib/x.py")
    filled(code, ".git/config", "__pycache__/jobs.pyc", "pkg/old.pyc", ".venv/x.py", "node_modules/x", ".mypy_cache/x")
    (code / "my venv/pyvenv.cfg").touch()
    filled(tmp_path / "outside", "shared.py")
    (code / "shared.py").symlink_to(tmp_path / "outside/shared.py")
    (code / "gone.py").symlink_to("nowhere")
    (code / "loop").symlink_to(code)
    os.mkfifo(code / "pipe")
    done = pack(code, tmp_path / "packed")
    assert names_in(done.path) == ["jobs.py", "shared.py", "pkg/.hidden", "pkg/__init__.py", "pkg/table.csv"]
    assert (done.files, done.size) == (5, sum(len(f"# {name}\n") for name in names_in(done.path)))
    with tarfile.open(done.path) as packed:
        packed.extractall(tmp_path / "there", filter="data")
    assert (tmp_path / "there/shared.py").read_text() == "# shared.py\n"


def test_nothing_too_much_and_what_cannot_be_read_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty/.git").mkdir(parents=True)
    with pytest.raises(RemoteFailure, match="nothing to send"):
        pack(tmp_path / "empty", tmp_path / "one")
    monkeypatch.setattr(packing, "LARGEST", 3)
    with pytest.raises(RemoteFailure, match="holds more than"):
        pack(filled(tmp_path / "code", "jobs.py"), tmp_path / "two")
    with pytest.raises(RemoteFailure, match=r"cannot read .*missing"):
        pack(tmp_path / "missing", tmp_path / "three")


def test_the_program_that_lies_among_the_modules_is_not_sent_twice(tmp_path: Path) -> None:
    code = filled(tmp_path / "code", "jobs.py", "dist/lakeshore")
    (code / "same").symlink_to(code / "dist/lakeshore")
    done = pack(code, tmp_path / "packed", program=code / "dist/lakeshore")
    assert (names_in(done.path), done.files) == (["jobs.py"], 1)
