"""The process runner through a real keeper: an invocation as the daemon starts it, and what is left after each end."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import entry_bodies as bodies
import kept as k
import msgpack
import pytest
import trio
from code_trees import WORK, Tree
from served import new_id

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.archives.packing import pack
from lakeshore.archives.stamp import Stamp, key_of
from lakeshore.nymph.keeping import processes
from lakeshore.nymph.keeping.client import KeeperClient, KeeperLost
from lakeshore.nymph.runners.library import readable_by
from lakeshore.nymph.runners.process import JobCode, Outcome, ProcessRunner, Refused, Run
from lakeshore.nymph.workdir import Account
from lakeshore.sdk.code_mount import static_hash

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")
HERE = Path(__file__).parent
PYTHON = {"python": sys.executable, "env": {"PYTHONPATH": str(HERE)}}
"""The interpreter that has what the SDK needs, and where the bodies are."""


class Host:
    """A place for keeper and working directories, and what a daemon has on it."""

    def __init__(self, base: Path, **environ: str) -> None:
        self.keeper_at, self.root = base / "keeper", base / "udf"
        self.environ = {"PATH": os.environ["PATH"], **environ}
        self.keeper: KeeperClient
        self.runner: ProcessRunner

    @asynccontextmanager
    async def open(self, *, end: bool = True, grace_s: float = 0.5) -> AsyncIterator[Host]:
        async with k.keeper(self.keeper_at, end=end) as keeper:
            self.keeper = keeper
            self.runner = ProcessRunner(keeper, self.root, self.environ, grace_s=grace_s)
            yield self

    def left(self) -> dict[str, list[str]]:
        """What there is of all jobs: processes of the keeper, its records, working directories."""
        guard = k.parent(self.keeper.pid)
        running = processes.below([guard], processes.table()) - {guard, self.keeper.pid}
        return {
            "processes": sorted(map(str, running)),
            "records": k.kept(self.keeper_at),
            "directories": sorted(os.listdir(self.root)) if self.root.exists() else [],
        }


NOTHING: dict[str, list[str]] = {"processes": [], "records": [], "directories": []}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, LAKESHORE_CLIENT_TOKEN="secret", LAKESHORE_TOKEN="secret", PYTHONHOME="/nowhere", SEEN="yes")


def call(function: Any, *args: Any) -> tuple[str, bytes]:
    envelope = dls.thunk(function, *args).to_envelope()
    return envelope.id, envelope.to_bytes()


async def settled(host: Host, run: Run) -> Outcome:
    return await host.runner.run(run)


@pytest.mark.inventory("N-201", "N-202", "N-207")
@pytest.mark.inventory("N-203", "N-204", "N-206")
@pytest.mark.inventory("N-194", "N-209", "P-356")
def test_a_function_is_run_in_its_directory_and_nothing_is_left_after_its_success(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            id_, args = call(bodies.told)
            run = Run(invocation_id=id_, args=args, run_config=PYTHON, parent_id="01PARENT", root_id="01ROOT", claim=4)
            job = await host.runner.start(run)
            assert (host.root / id_ / "args.msgpack").read_bytes() == args
            assert stat.S_IMODE((host.root / id_).stat().st_mode) == 0o700
            found = await host.runner.ended(job)
            assert found.state == "succeeded", found
            assert wire.unpack(found.result) == {
                "parent": id_,
                "secrets": [],
                "DREAMLAKE_INVOCATION_ID": id_,
                "DREAMLAKE_WORKDIR": str(host.root / id_),
                "DREAMLAKE_PARENT_INVOCATION_ID": "01PARENT",
                "DREAMLAKE_ROOT_INVOCATION_ID": "01ROOT",
            }
            assert (await host.runner.ended(job)).result == found.result  # until it is released
            await host.runner.release(job, keep=False)
            assert host.left() == NOTHING

    k.run(main)


def test_the_hosts_own_modules_are_found_by_the_daemons_pythonpath(tmp_path: Path) -> None:
    host = Host(tmp_path, PYTHONPATH=str(HERE))

    async def main() -> None:
        async with host.open():
            id_, args = call(bodies.pair, 1, 2)
            found = await settled(host, Run(invocation_id=id_, args=args, run_config={"python": sys.executable}))
            assert found.state == "succeeded", found

    k.run(main)


@pytest.mark.inventory("N-195", "N-204", "P-356")
def test_a_failure_is_told_with_its_type_and_its_directory_stays_with_what_was_printed(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            id_, args = call(bodies.fails)
            found = await settled(host, Run(invocation_id=id_, args=args, run_config=PYTHON))
            assert (found.state, found.said, found.exit_code) == ("failed", "ValueError: no such scene", 1)
            assert found.error is not None
            assert "entry_bodies.py" in found.error["traceback"]
            assert host.left() == {**NOTHING, "directories": [id_]}
            assert json.loads((host.root / id_ / "error.json").read_text())["type"] == "ValueError"

    k.run(main)


@pytest.mark.inventory("N-186", "N-210")
@pytest.mark.inventory("N-208", "N-212", "N-425")
def test_a_script_is_judged_by_its_status_and_its_output_is_kept(host: Host) -> None:
    script = "cat; pwd; echo $SEEN$LAKESHORE_TOKEN$PYTHONHOME$MINE; shopt login_shell >&2; exit $CODE"

    async def main() -> None:
        async with host.open():
            for code in ("0", "7"):
                run = Run(invocation_id=f"s{code}", script=script, run_config={"env": {"MINE": "!", "CODE": code}})
                job = await host.runner.start(run)
                found = await host.runner.ended(job)
                outputs = [(Path(job.directory) / name).read_text() for name in ("stdout", "stderr")]
                assert outputs == [f"{host.root}/s{code}\nyes!\n", "login_shell    \toff\n"]
                if code == "0":
                    assert found == Outcome(state="succeeded", exit_code=0)
                else:
                    assert found.said.startswith("DaemonError: the script exited with status 7; it said last:\nlogin_")
                await host.runner.release(job, keep=code != "0")
            assert host.left() == {**NOTHING, "directories": ["s7"]}
            assert (host.root / "s7/stdout.log").read_text() == f"{host.root}/s7\nyes!\n"
            long = "# " + "x" * 200_000 + "\nexit 5"
            assert (await settled(host, Run(invocation_id="long", script=long))).exit_code == 5

    k.run(main)


@pytest.mark.inventory("N-413", "K-35")
def test_a_body_that_takes_too_long_is_a_timeout(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            script = "trap '' TERM; sleep 1000 & while :; do sleep 1; done"
            found = await settled(host, Run(invocation_id="x", script=script, run_config={"timeout_s": 0.4}))
            assert (found.state, found.said) == ("timeout", "Timeout: timed out after 0.4 s")
            for wrong in (0, -1, "soon", True, float("nan")):
                refused = await settled(host, Run(invocation_id="y", script="true", run_config={"timeout_s": wrong}))
                assert refused.said.startswith("DaemonError: run_config.timeout_s — seconds above 0"), refused
            assert host.left() == {**NOTHING, "directories": ["x"]}

    k.run(main)


@pytest.mark.inventory("N-198", "N-244", "N-378")
@pytest.mark.parametrize(
    ("why", "state", "said"),
    [
        ("cancel", "killed", "Cancelled: cancelled"),
        ("shutdown", "killed", "Cancelled: daemon shutdown grace expired"),
        ("lost", "lost", "WorkerLost: the attempt was lost: lost"),
    ],
)
def test_what_is_stopped_says_why(host: Host, why: str, state: str, said: str) -> None:
    async def main() -> None:
        async with host.open():
            run = Run(invocation_id="x", script="(setsid sleep 1000 &) ; echo begun; sleep 1000", claim=2)
            job = await host.runner.start(run)
            await k.until(lambda: (Path(job.directory) / "stdout").read_bytes() == b"begun\n")
            await host.keeper.stop(job.id, why=why)
            found = await host.runner.ended(job)
            assert (found.state, found.said) == (state, said)
            await host.runner.release(job, keep=state != "lost")
            assert host.left() == {**NOTHING, "directories": [] if state == "lost" else ["x"]}

    k.run(main)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo oh >&2; kill -9 $$", "DaemonError: the script was killed by SIGKILL; it said last:\noh"),
        ("kill -SEGV $$", "DaemonError: the script was killed by SIGSEGV"),
        ("kill -9 $PPID", "WorkerLost"),
    ],
)
def test_a_body_that_kills_itself_or_its_parent_is_told_so(host: Host, script: str, said: str) -> None:
    async def main() -> None:
        async with host.open(end="PPID" not in script):
            run = Run(invocation_id="x", script=script)
            if "PPID" not in script:
                assert (await settled(host, run)).said == said
                return
            with pytest.raises(KeeperLost):
                await settled(host, run)
        async with host.open():
            (job,) = host.keeper.found
            found = await host.runner.ended(job)
            assert (found.state, found.said) == ("lost", "WorkerLost: the attempt was lost: its keeper was killed")
            await host.runner.release(job, keep=False)
            assert host.left() == NOTHING

    k.run(main)


def test_the_keeper_finds_a_running_job_for_the_next_daemon_which_reads_its_result(host: Host) -> None:
    async def main() -> None:
        id_, args = call(bodies.slow_pair, 0.5)
        async with host.open(end=False):
            await host.runner.start(Run(invocation_id=id_, args=args, run_config=PYTHON, claim=3))
        async with host.open():
            (job,) = host.keeper.found
            assert (job.claim["invocation_id"], job.claim["claim"], job.phase) == (id_, 3, "running")
            found = await host.runner.ended(job)
            assert wire.unpack(found.result) == (1, 2)
            await host.runner.release(job, keep=False)
            assert host.left() == NOTHING

    k.run(main)


def test_another_attempt_starts_in_an_empty_directory_and_a_newer_claim_is_another_job(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            for claim in (1, 2):
                found = await settled(host, Run(invocation_id="x", script="ls; touch mine; exit 1", claim=claim))
                assert found.state == "failed"
            assert not (host.root / "x/stdout.log").exists()
            first = await host.runner.start(Run(invocation_id="y", script="sleep 1000", claim=1))
            with pytest.raises(Refused, match="is here already"):
                await host.runner.start(Run(invocation_id="y", script="true", claim=1))
            await host.keeper.stop(first.id, grace_s=0)
            await host.runner.ended(first)

    k.run(main)


def old_python(tmp_path: Path) -> Path:
    """One that says that it is 3.8 and does what such a one does with our code: it fails."""
    path = tmp_path / "bin/python3"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\ncase "$*" in *version_info*) echo 3.8.10;; *) echo SyntaxError >&2; exit 1;; esac\n')
    path.chmod(0o755)
    return path


def test_an_interpreter_that_cannot_do_it_is_named_with_what_was_found(host: Host, tmp_path: Path) -> None:
    old = old_python(tmp_path)

    async def main() -> None:
        async with host.open():
            id_, args = call(bodies.pair, 1, 2)
            found = await settled(host, Run(invocation_id=id_, args=args, run_config={"python": "python3.99"}))
            assert found.said.startswith(
                "InterpreterError: a job needs Python 3.11 or newer, but there is no python3.99 on this host; found: /"
            )
            path = f"{old.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
            found = await settled(host, Run(invocation_id=id_, args=args, run_config={"env": {"PATH": path}}))
            assert f"but {old} is Python 3.8.10 on this host" in found.said
            assert "name one with run_config.python" in found.said

    k.run(main)


def test_what_makes_no_sense_is_refused_and_leaves_nothing(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            for run, why in (
                (Run(invocation_id="../x", script="true"), "cannot name a directory"),
                (Run(invocation_id="x", script="true", as_user="nobody-such"), "this host has no user 'nobody-such'"),
                (
                    Run(invocation_id="x", script="true", run_config={"env": ["A=B"]}),
                    "run_config.env — names and values",
                ),
                (Run(invocation_id="x", script="true", run_config={"env": {"A=B": "c"}}), "cannot be a variable"),
                (Run(invocation_id="x", args=b"x" * ((100 << 20) + 1)), r"the limit is 104857600 \(100 MiB\)"),
            ):
                with pytest.raises(Refused, match=why):
                    await host.runner.start(run)
            assert host.left() == NOTHING

    k.run(main)


def someone() -> pwd.struct_passwd:
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user without asking")
    return pwd.getpwnam("nobody")


@pytest.mark.inventory("N-187", "N-211")
def test_as_user_runs_in_a_directory_of_that_user_and_leaves_nothing(host: Host, tmp_path: Path) -> None:
    user = someone()
    open_to_all(tmp_path)
    script = "id -un; echo $USER $HOME; touch mine; (setsid sleep 1000 &) ; exit $CODE"

    async def main() -> None:
        async with host.open():
            for code in ("0", "3"):
                run = Run(invocation_id="x", script=script, as_user=user.pw_name, run_config={"env": {"CODE": code}})
                job = await host.runner.start(run)
                found = await host.runner.ended(job)
                assert found.exit_code == int(code), found
                printed = (Path(job.directory) / "stdout").read_text()
                assert printed == f"{user.pw_name}\n{user.pw_name} {user.pw_dir}\n"
                assert (host.root / "x").stat().st_uid == (host.root / "x/mine").stat().st_uid == user.pw_uid
                assert stat.S_IMODE((host.root / "x").stat().st_mode) == 0o700
                await host.runner.release(job, keep=False)
                assert host.left() == NOTHING

    k.run(main)


def test_what_another_user_left_is_read_as_theirs(host: Host, tmp_path: Path) -> None:
    user = someone()
    open_to_all(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text('{"type": "Stolen", "message": "root reads this"}')
    secret.chmod(0o600)
    thief = tmp_path / "thief"
    ran_as = tmp_path / "ran-as"
    thief.write_text(
        f"#!/bin/sh\nid -u >> {ran_as}; ln -s {secret} error.json; ln -s {secret} result.msgpack; exit $CODE\n"
    )
    thief.chmod(0o755)
    ran_as.touch()
    ran_as.chmod(0o666)

    async def main() -> None:
        async with host.open():
            for code in ("0", "3"):
                config = {"python": str(thief), "env": {"CODE": code}}
                found = await settled(host, Run(invocation_id="x", args=b"", as_user=user.pw_name, run_config=config))
                assert found.state == "failed"
                assert "Stolen" not in found.said
                assert b"root" not in found.result

    k.run(main)
    assert set(ran_as.read_text().split()) == {str(user.pw_uid)}, (
        "nothing of theirs runs as us, not even to ask its age"
    )
    assert not Path("error.json").is_symlink()


def python_of(user: pwd.struct_passwd) -> str:
    """An interpreter that this user may run."""
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        probe = "import sys; sys.exit(sys.version_info < (3, 11))"
        argv = ["runuser", "-u", user.pw_name, "--", str(python), "-c", probe]
        if python and subprocess.run(argv, capture_output=True, check=False, cwd="/").returncode == 0:
            return python
    pytest.skip(f"{user.pw_name} cannot run any Python 3.11 of this host")


def test_a_function_runs_as_another_user(host: Host, tmp_path: Path) -> None:
    user = someone()
    python = python_of(user)
    open_to_all(tmp_path)
    theirs = tmp_path / "theirs"
    for package in (msgpack, cloudpickle):
        folder = Path(str(package.__file__)).parent
        shutil.copytree(folder, theirs / folder.name, ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(HERE / "entry_bodies.py", theirs)
    config = {"python": python, "env": {"PYTHONPATH": str(theirs)}}

    async def main() -> None:
        async with host.open():
            id_, args = call(bodies.pair, 1, 2)
            found = await settled(host, Run(invocation_id=id_, args=args, as_user=user.pw_name, run_config=config))
            assert found.state == "succeeded", found
            assert wire.unpack(found.result) == (1, 2)
            left = host.left()
            assert [name for name in left["directories"] if not name.startswith(".lakeshore-")] == []
            assert (left["processes"], left["records"]) == ([], [])

    k.run(main)


def test_packages_that_another_user_cannot_read_are_copied_once(tmp_path: Path) -> None:
    user = someone()
    python = python_of(user)
    open_to_all(tmp_path)
    hidden = tmp_path / "hidden"
    hidden.mkdir(0o700)
    for name in ("lakeshore", "dreamlake"):
        shutil.copytree(k.ROOT / name, hidden / name, ignore=shutil.ignore_patterns("__pycache__"))
    account = Account.named(user.pw_name)
    search = os.pathsep.join([str(hidden), "/of/the/user"])
    path, rest = readable_by(account, search, tmp_path / "udf").split(os.pathsep)
    assert (Path(path).parent, rest) == (tmp_path / "udf", "/of/the/user")
    assert readable_by(account, search, tmp_path / "udf") == os.pathsep.join([path, rest])
    program = "import lakeshore, dreamlake.lakeshore; print(lakeshore.__file__)"
    argv = ["runuser", "-u", user.pw_name, "--", python, "-c", program]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    told = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, cwd="/")
    assert told.stdout.strip() == f"{path}/lakeshore/__init__.py"


def open_to_all(folder: Path) -> None:
    """Let other users pass down to a test's directory."""
    for path in (folder, *folder.parents):
        if path == Path("/tmp"):
            break
        if not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)


def test_a_job_of_another_user_imports_from_the_archive_in_its_own_directory(host: Host, tmp_path: Path) -> None:
    user = someone()
    python = python_of(user)
    open_to_all(tmp_path)
    theirs = tmp_path / "theirs"
    for package in (msgpack, cloudpickle):
        folder = Path(str(package.__file__)).parent
        shutil.copytree(folder, theirs / folder.name, ignore=shutil.ignore_patterns("*.so"))
    tree = Tree(tmp_path / "tree", {"work.py": WORK, "helper.py": "FACTOR = 3\n"})
    packed = pack(tree.top, tree.head, tmp_path / "code.tar.gz")
    key = key_of(tree.head, packed.sha256)
    stamp = Stamp(remote="r", commit=tree.head, key=key, sha256=packed.sha256)
    fn = {"kind": "ref", "module": "work", "qualname": "scaled", "src_hash": static_hash(WORK, "scaled")}
    envelope = wire.Envelope.build(id=new_id(), fn=fn, args=[14], cfg={"code": stamp.as_cfg()})
    config = {"python": python, "env": {"PYTHONPATH": str(theirs)}}
    code = JobCode(tree=tmp_path / "not for them", archive=packed.path)

    async def main() -> None:
        async with host.open():
            run = Run(invocation_id="x", args=envelope.to_bytes(), as_user=user.pw_name, run_config=config, code=code)
            found = await settled(host, run)
            assert found.state == "succeeded", found
            assert wire.unpack(found.result) == 42
            assert [name for name in host.left()["directories"] if not name.startswith(".lakeshore-")] == []

    k.run(main)
    assert packed.path.stat().st_uid == os.geteuid(), "the daemon's own copy stays its own"


def test_a_daemon_that_is_killed_leaves_its_jobs_to_the_next_one_or_to_nobody(host: Host, tmp_path: Path) -> None:
    program = (
        "# ORPHANS\nfrom pathlib import Path\nfrom lakeshore.nymph.runners.process import ProcessRunner, Run\n"
        f"runner = ProcessRunner(keeper, Path({str(host.root)!r}), dict(PATH=os.environ['PATH']), grace_s=0.3)\n"
        "await runner.start(Run(invocation_id='x', script='(setsid sleep 1000 &) ; sleep 1000'))"
    )

    async def main() -> None:
        await k.killed_when_ready(k.daemon(host.keeper_at, tmp_path / "ready", program), tmp_path / "ready")
        await k.until((host.keeper_at / "jobs/x/exit.json").exists)
        assert k.marked(host.keeper_at, "x") == []
        async with host.open():
            (job,) = host.keeper.found
            assert (await host.runner.ended(job)).state == "lost"
            await host.runner.release(job, keep=False)
            assert host.left() == NOTHING

    k.run(main)


def test_sixty_jobs_at_once_leave_nothing(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            ends: list[str] = []

            async def one(number: int) -> None:
                script = ("exit 0", "sleep 30 & exit 0", "(setsid sleep 30 &) ; exit 0")[number % 3]
                ends.append((await settled(host, Run(invocation_id=new_id(), script=script))).state)

            async with trio.open_nursery() as nursery:
                for number in range(60):
                    nursery.start_soon(one, number)
            assert ends == ["succeeded"] * 60
            assert host.left() == NOTHING

    k.run(main)
