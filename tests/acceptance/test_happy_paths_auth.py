"""Happy paths 02 and 15 as their pages type them, in a real shell, with the one file as `lakeshore` on PATH and a
Python that has nothing else installed. The control plane is the one file, too, with an admin token and its usual state
directory; what a page leaves to its reader (`<your-namespace>`) is filled in, and its address replaced by ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest
from snippets import reference
from snippets.processes import clean, end

ADMIN = "chosen-by-the-operator"
PATH_02, PATH_15 = "cli/happy-paths/02-hello-hosted-cp", "cli/happy-paths/15-token-lifecycle"
needs_pages = pytest.mark.skipif(not reference.available(), reason=reference.ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A user's machine, and the control plane on it."""

    home: Path
    env: dict[str, str]
    url: str

    @property
    def login(self) -> Path:
        return self.home / ".config" / "lakeshore" / "auth.yml"

    def types(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a script in bash, which ends at the first command that fails."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.home,
            env={**self.env, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    def page(self, name: str, lines: tuple[int, int], filled: Mapping[str, str] = MappingProxyType({})) -> str:
        """A block of a page, with its blanks filled in."""
        text = reference.code(name, lines)
        for address in ("https://api.lakeshore.dreamlake.ai", "http://localhost:8080"):
            text = text.replace(address, self.url)
        for blank, value in filled.items():
            text = text.replace(f"<{blank}>", value)
        assert "<" not in re.sub(r"#.*", "", text), text
        return text


@contextlib.contextmanager
def machine(pyz: Path, cache: Path, home: Path, *, admin: str = ADMIN) -> Iterator[Machine]:
    home.mkdir(exist_ok=True)
    venv.create(home / "bare", with_pip=False, symlinks=True)
    bin_ = home / "bare" / "bin"
    (bin_ / "lakeshore").symlink_to(pyz)
    kept = {name: value for name, value in clean(path="").items() if not name.startswith(("XDG_", "PYTHONPATH"))}
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    env = {**kept, "HOME": str(home), "USER": "ada", "PATH": path, "XDG_CACHE_HOME": str(cache)}
    ready, log = home / "ready", home / "serve.log"
    command = [str(bin_ / "lakeshore"), "serve", "--port", "0", "--ready-file", str(ready)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**env, "LAKESHORE_ADMIN_TOKEN": admin}, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"no server:\n{log.read_text()}"
            time.sleep(0.02)
        yield Machine(home=home, env=env, url=ready.read_text().strip().replace("127.0.0.1", "localhost"))
    finally:
        end(process)


@pytest.fixture(scope="module")
def ours(pyz: Path, warm_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(pyz, warm_cache, tmp_path_factory.mktemp("machine") / "home") as found:
        yield found


@pytest.fixture(autouse=True)
def nobody_is_logged_in(ours: Machine) -> None:
    ours.login.unlink(missing_ok=True)


def labels(block: str) -> list[str]:
    """What stands before the values of a printed block."""
    return [re.match(r"Saved auth to |Auth OK\.$|  [\w ]+: +|", line)[0] for line in block.splitlines()]  # type: ignore[index]


def minted(ours: Machine, namespace: str) -> tuple[str, str]:
    """A token of a new namespace, from the operator, and its id."""
    script = (
        f"lakeshore admin namespace create {namespace}; lakeshore --namespace {namespace} admin tokens create --json"
    )
    done = ours.types(script, LAKESHORE_ADMIN_TOKEN=ADMIN)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout.split("\n", 1)[1])
    return row["plaintext"], row["id"]


# --- 02


@needs_pages
@pytest.mark.inventory("C-836", "C-1176", "C-069")
def test_path_02_logs_in_and_reads_the_namespace_back(ours: Machine) -> None:
    token, _id = minted(ours, "fortyfive")
    blanks = {"your-namespace": "fortyfive", "dlk_...": token}
    saved = ours.types(ours.page(PATH_02, (21, 26), blanks))
    assert (saved.returncode, saved.stderr) == (0, "")
    assert labels(saved.stdout) == labels(reference.code(PATH_02, (32, 38)))
    assert saved.stdout.splitlines()[0] == f"Saved auth to {ours.login}"
    assert ours.login.stat().st_mode & 0o777 == 0o600
    status = ours.types(ours.page(PATH_02, (42, 44)))
    assert (status.returncode, status.stderr) == (0, "")
    assert labels(status.stdout) == labels(reference.code(PATH_02, (51, 59)))
    assert f"  server:      {ours.url}\n  namespace:   fortyfive\n  token:       {token[:8]}... (ada-" in status.stdout
    assert status.stdout.endswith("  authMode:    token\n")
    assert token not in saved.stdout + status.stdout
    assert ours.types("lakeshore jobs list --json").stdout == "[]\n", "and other commands use it"


@pytest.mark.inventory("C-837", "C-074", "C-072")
def test_path_02_names_what_is_wrong_and_saves_nothing(ours: Machine) -> None:
    token, id_ = minted(ours, "path-02-refused")
    login = f"lakeshore auth login --server {ours.url} --namespace"
    for script, said in (
        (f"{login} path-02-refused --token {token}x", "whoami failed (401)"),
        (f"{login} default --token {token}", "whoami failed (403)"),
        (f"lakeshore auth login --server http://nowhere.invalid --token {token}", "nowhere.invalid"),
    ):
        done = ours.types(script)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
        assert not ours.login.exists()
    done = ours.types("lakeshore auth status")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No saved auth." in done.stderr
    revoke = f"lakeshore --namespace path-02-refused admin tokens revoke {id_}"
    assert ours.types(revoke, LAKESHORE_ADMIN_TOKEN=ADMIN).returncode == 0
    assert "whoami failed (403): token revoked" in ours.types(f"{login} path-02-refused --token {token}").stderr


# --- 15

JOBS = "import dreamlake.lakeshore as dls\n@dls.udf(queue='default')\ndef double(x):\n    return 2 * x\n"
SUBMIT = "import jobs, pathlib\npathlib.Path('id').write_text(jobs.double.submit(21))\n"
RESULT = "import dreamlake.lakeshore as dls\nprint(dls.SyncQueue('default').result(open('id').read()))\n"


@needs_pages
@pytest.mark.inventory("C-868", "C-1190", "C-1191")
def test_path_15_mints_logs_in_and_drives_a_worker_from_the_environment_alone(ours: Machine, pyz: Path) -> None:
    options = ours.page(PATH_15, (29, 51), {"admin-token-from-.env": ADMIN, "plaintext-from-above": "$plaintext"})
    mint = "lakeshore admin tokens create cli-$USER"
    assert mint in options
    options = options.replace(mint, f"{mint} | tee minted; plaintext=$(head -1 minted)")
    # The page's namespace is there, and is what this shell works in (the page mints in it without saying so).
    first = f"LAKESHORE_ADMIN_TOKEN={ADMIN} lakeshore admin ns create dev; export LAKESHORE_NAMESPACE=dev\n"
    done = ours.types(first + options)
    assert done.returncode == 0, done.stderr
    plaintext, line = (ours.home / "minted").read_text().splitlines()
    assert re.fullmatch(r"dlk_[A-Za-z0-9_-]{43}", plaintext)
    assert re.fullmatch(rf"lakeshore auth login --server http://\S+ --namespace dev --token {plaintext}", line)
    assert done.stdout.count("Saved auth to ") == 2
    status = done.stdout[done.stdout.index("Auth OK.") :]
    assert labels(status) == labels(reference.code(PATH_15, (75, 83)))
    label = r"cli-ada-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d"
    assert re.search(rf"^  token:       dlk_.{{4}}\.\.\. \({label}\)$", status, re.MULTILINE)
    assert "  namespace:   dev\n" in status
    assert status.endswith("  authMode:    token\n")
    assert ADMIN not in ours.login.read_text()

    (ours.home / "jobs.py").write_text(JOBS)
    (ours.home / "submit.py").write_text(SUBMIT)
    (ours.home / "result.py").write_text(RESULT)
    worker = ours.page(PATH_15, (56, 64))
    drain = "\nlakeshore worker once --queue default\n"
    assert worker.endswith(drain)
    python = f"PYTHONPATH={pyz} python3"
    worker = worker.removesuffix(drain) + f"\n{python} submit.py{drain}{python} result.py\n"
    done = ours.types("export LAKESHORE_ADMIN_TOKEN=x\n" + worker)
    assert done.returncode == 0, done.stderr
    argv, result = done.stdout.splitlines()
    assert re.fullmatch(r"\S*python3 -u -m dreamlake\.lakeshore\.daemon --queue default --once", argv)
    assert result == "42"
    assert "refused" not in done.stderr


@needs_pages
@pytest.mark.inventory("C-869", "C-075")
def test_path_15_names_what_is_wrong(ours: Machine) -> None:
    elsewhere = {"LAKESHORE_STATE_DIR": str(ours.home / "none"), "LAKESHORE_URL": ours.url}
    done = ours.types("lakeshore admin tokens create cli-$USER", **elsewhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: LAKESHORE_ADMIN_TOKEN is required for admin commands.\n")
    login = f"lakeshore auth login --server {ours.url} --namespace dev"
    done = ours.types(login, LAKESHORE_ADMIN_TOKEN="another")
    assert done.returncode == 1
    assert "mint failed (401)" in done.stderr
    done = ours.types("lakeshore worker once --queue default", LAKESHORE_URL=ours.url, LAKESHORE_CLIENT_TOKEN="")
    assert done.returncode == 2
    assert "missing bearer token" in done.stderr


@pytest.mark.inventory("C-869", "C-073")
def test_path_15_shows_that_a_control_plane_enforces_nothing(pyz: Path, warm_cache: Path, tmp_path: Path) -> None:
    with machine(pyz, warm_cache, tmp_path / "home", admin="") as open_one:
        done = open_one.types(f"lakeshore auth login --server {open_one.url} --token any; lakeshore auth status")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("  authMode:    open\n")
        done = open_one.types("lakeshore admin tokens create; lakeshore admin ns ls")
        assert done.returncode == 0, "an operator on the machine that serves needs neither a token nor a URL"
