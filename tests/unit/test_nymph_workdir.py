"""The directory of an invocation, what is read back from it, and how the output of a job is followed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from lakeshore.nymph.follow import read_on, tail
from lakeshore.nymph.keeping import processes
from lakeshore.nymph.keeping.client import Exit
from lakeshore.nymph.keeping.ledger import Ledger
from lakeshore.nymph.runners.process import Run, order, outcome
from lakeshore.nymph.workdir import MAX_ERROR, Workdir, WorkdirError


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir.create(tmp_path / "udf", "01JOB", b"args")


@pytest.mark.inventory("N-201", "N-202")
def test_it_is_private_and_holds_the_arguments_verbatim(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Workdir.create(tmp_path / "a/udf", "01JOB", b"\0\xff")
    finally:
        os.umask(before)
    assert made.path == tmp_path / "a/udf/01JOB"
    assert [path.name for path in made.path.iterdir()] == ["args.msgpack"]
    assert (made.path / "args.msgpack").read_bytes() == b"\0\xff"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (made.path.parent, made.path, made.path / "args.msgpack")]
    assert modes == [0o711, 0o700, 0o600]


def test_a_file_of_arguments_is_moved_in_and_an_earlier_attempt_is_gone(tmp_path: Path, workdir: Workdir) -> None:
    (workdir.path / "error.json").write_text("{}")
    (workdir.path / "deep/er").mkdir(parents=True)
    (workdir.path / "deep/er/file").touch()
    (workdir.path / "deep/er").chmod(0o000)
    (workdir.path / "deep").chmod(0o500)
    fetched = tmp_path / "fetched"
    fetched.write_bytes(b"more")
    again = Workdir.create(tmp_path / "udf", "01JOB", fetched)
    assert [path.name for path in again.path.iterdir()] == ["args.msgpack"]
    assert (again.path / "args.msgpack").read_bytes() == b"more"
    assert not fetched.exists()


@pytest.mark.parametrize("id_", ["", "..", "a/b", ".hidden", "a\0b", "x" * 129, "a b", "-\n"])
def test_a_name_that_is_no_plain_one_makes_no_directory(tmp_path: Path, id_: str) -> None:
    with pytest.raises(WorkdirError, match="cannot name a directory"):
        Workdir.create(tmp_path / "udf", id_, b"")
    assert not (tmp_path / "udf").exists()


def test_a_root_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "udf").write_text("a file")
    with pytest.raises(WorkdirError, match=r"the working directory .*/udf/x cannot be made: File exists"):
        Workdir.create(tmp_path / "udf", "x", b"")


@pytest.mark.inventory("N-203")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"type": "ValueError", "message": "no", "traceback": "T"}', ("ValueError", "no", "T")),
        ('{"type": "ValueError", "message": 5}', ("ValueError", "5", "")),
        ('{"message": "no type"}', None),
        ('["ValueError"]', None),
        ("{", None),
        ("[" * 100_000, None),
        ('{"type": "Big", "message": "' + "x" * MAX_ERROR + '"}', None),
        ("\ud800".encode("utf-8", "surrogatepass"), None),
    ],
    ids=range(8),
)
def test_an_error_is_taken_only_when_it_is_one(
    workdir: Workdir, text: str | bytes, told: tuple[str, ...] | None
) -> None:
    (workdir.path / "error.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    found = workdir.error()
    assert (None if found is None else (found["type"], found["message"], found["traceback"])) == told


def test_a_result_is_a_plain_file_of_a_size_that_is_allowed(workdir: Workdir) -> None:
    path = workdir.path / "result.msgpack"
    with pytest.raises(WorkdirError, match=r"the job left no result.msgpack: No such file"):
        workdir.result()
    path.write_bytes(b"value")
    assert workdir.result() == b"value"
    os.truncate(path, (100 << 20) + 1)
    with pytest.raises(WorkdirError, match=r"has 104857601 bytes: the limit is 104857600 \(100 MiB\)"):
        workdir.result()
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(WorkdirError, match="the job left no"):
        workdir.result()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(WorkdirError, match="is not a file"):
        workdir.result()
    path.unlink()
    with socket.socket(socket.AF_UNIX) as line:
        before = Path.cwd()
        os.chdir(workdir.path)
        line.bind("result.msgpack")
        os.chdir(before)
    with pytest.raises(WorkdirError, match="the job left no"):
        workdir.result()


@pytest.mark.inventory("N-204")
def test_what_was_printed_is_kept_beside_a_failure_and_replaces_no_more_than_a_name(
    tmp_path: Path, workdir: Workdir
) -> None:
    outputs = tmp_path / "job"
    outputs.mkdir()
    (outputs / "stdout").write_text("out")
    (outputs / "stderr").write_text("")
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (workdir.path / "stdout.log").symlink_to(precious)
    workdir.keep(outputs)
    assert (workdir.path / "stdout.log").read_text() == "out"
    assert precious.read_text() == "precious"
    assert not (workdir.path / "stderr.log").exists()


def ended(code: int | None = None, **more: object) -> Exit:
    told = {"code": code, "signal": None, "oom": False, "timed_out": False, "cancelled_by": None, **more}
    return Exit.of(told)


NO_RESULT = "the job left no result.msgpack: No such file or directory"
SCRIPT = {"script": True, "timeout_s": 2.5}
ENTRY = {"script": False, "python": "sh", "path": "/bin", "timeout_s": None}


@pytest.mark.inventory("N-197", "N-198", "N-413")
@pytest.mark.parametrize(
    ("claim", "exit_", "state", "said"),
    [
        (SCRIPT, ended(0), "succeeded", ""),
        (SCRIPT, ended(0, cancelled_by="cancel"), "succeeded", ""),
        (SCRIPT, ended(0, timed_out=True), "timeout", "Timeout: timed out after 2.5 s"),
        (SCRIPT, ended(1, cancelled_by="cancel"), "killed", "Cancelled: cancelled"),
        (SCRIPT, ended(1, cancelled_by="shutdown"), "killed", "Cancelled: daemon shutdown grace expired"),
        (SCRIPT, ended(1, cancelled_by="lease"), "lost", "WorkerLost: the attempt was lost: lease"),
        (SCRIPT, ended(2), "failed", "DaemonError: the script exited with status 2; it said last:\nlast words"),
        (
            SCRIPT,
            ended(None, signal="SIGKILL", oom=True),
            "failed",
            "DaemonError: the script was killed by SIGKILL for want of memory; it said last:\nlast words",
        ),
        (SCRIPT, ended(error="bash: gone"), "failed", "DaemonError: the script did not run: bash: gone"),
        (SCRIPT, ended(cancelled_by="output", error="stdout grew"), "failed", "DaemonError: stdout grew"),
        (ENTRY, ended(0), "failed", f"DaemonError: it ended with status 0, but {NO_RESULT}"),
    ],
    ids=range(11),
)  # fmt: skip
def test_an_end_is_told_in_the_words_of_the_contract(
    workdir: Workdir, tmp_path: Path, claim: dict[str, object], exit_: Exit, state: str, said: str
) -> None:
    (tmp_path / "stderr").write_text("last words\n")
    found = outcome(claim, exit_, workdir, tmp_path)
    assert (found.state, found.said, found.exit_code) == (state, said, exit_.code)
    assert found.ending["state"] == state


@pytest.mark.inventory("N-207", "N-209", "N-404")
def test_what_is_started_is_the_users_interpreter_with_the_documented_environment(workdir: Workdir) -> None:
    environ = {
        "PATH": "/bin",
        "SECRETS_KEY": "s",
        "LAKESHORE_TOKEN": "t",
        "PYTHONPATH": "/own",
        "DREAMLAKE_X": "y",
        "A": "b",
    }
    config = {"python": "python9", "entry": "my.entry", "env": {"A": "c", "DREAMLAKE_WORKDIR": "/w", "N": 1}}
    run = Run(invocation_id="01JOB", run_config=config, claim=7, attempt=2, first_seq=3, flags=("--allow-pickled",))
    made = order(run, workdir, environ, None, grace_s=1.0)
    assert list(made.argv) == ["python9", "-m", "my.entry", "--allow-pickled"]
    ours, theirs = made.env["PYTHONPATH"].split(":")
    assert (Path(ours) / "lakeshore").is_dir()
    assert theirs == "/own"
    assert {name: value for name, value in made.env.items() if name != "PYTHONPATH"} == {
        "PATH": "/bin",
        "A": "c",
        "N": "1",
        "PYTHONUNBUFFERED": "1",
        "DREAMLAKE_INVOCATION_ID": "01JOB",
        "DREAMLAKE_WORKDIR": str(workdir.path),
        "DREAMLAKE_CLAIM": "7",
        "DREAMLAKE_FRAMES": "frames",
        "DREAMLAKE_ATTEMPT": "2",
        "DREAMLAKE_FIRST_SEQ": "3",
    }
    assert (made.id, made.cwd, made.stdin) == ("01JOB.7", str(workdir.path), None)
    default = order(Run(invocation_id="01JOB"), workdir, environ, None, grace_s=1.0)
    assert list(default.argv) == ["python3", "-m", "dreamlake.lakeshore.daemon.entry"]


def test_output_is_followed_by_offsets_and_nothing_is_told_twice(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    assert read_on(path, 0).data == b""
    path.write_bytes(b"one\n")
    first = read_on(path, 0)
    assert (first.data, first.offset, first.next, first.skipped) == (b"one\n", 0, 4, 0)
    assert read_on(path, 4).data == b""
    with open(path, "ab") as file:
        file.write(b"two\nthree\n")
    heard = [read_on(path, 4, most=5), read_on(path, 9, most=5)]
    assert b"".join(chunk.data for chunk in heard) == b"two\nthree\n"
    assert tail(path, most=6) == b"three\n"
    assert tail(tmp_path / "none") == b""
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_on(link, 0).data == b""


def test_a_head_that_was_given_back_is_named_as_skipped(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_bytes(b"x" * (1 << 20) + b"the end")
    if not processes.drop(str(path), 0, 512 << 10):
        pytest.skip("this file system cannot drop the head of a file")
    chunk = read_on(path, 100)
    assert chunk.skipped == (512 << 10) - 100
    assert chunk.data == b"x" * len(chunk.data)
    assert read_on(path, chunk.next, most=2 << 20).data.endswith(b"the end")


def test_a_ledger_tells_what_began_whatever_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "begun.log"
    ledger = Ledger(str(path))
    ledger.add([{"id": "a", "pid": 1}, {"id": "b", "pid": 2}])
    ledger.forget("a")
    ledger.forget("nobody")
    ledger.add([{"id": "c", "pid": 3}])
    whole = path.read_bytes()
    assert sorted(Ledger(str(path)).records()) == ["b", "c"]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        found = Ledger(str(path)).records()
        assert all(record == {"id": id_, "pid": {"a": 1, "b": 2, "c": 3}[id_]} for id_, record in found.items())
        found_again = Ledger(str(path))
        found_again.add([{"id": "d", "pid": 4}])
        assert sorted(Ledger(str(path)).records()) == sorted([*found, "d"])


def test_a_ledger_does_not_grow_with_what_was_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "begun.log"
    ledger = Ledger(str(path))
    ledger.add([{"id": "stays"}])
    for number in range(40):
        ledger.add([{"id": f"{number}-{i}", "claim": "x" * 1000} for i in range(50)])
        for i in range(50):
            ledger.forget(f"{number}-{i}")
    assert path.stat().st_size < 2 << 20
    ledger = Ledger(str(path))  # the next keeper's
    assert ledger.records() == {"stays": {"id": "stays"}}
    ledger.forget("stays")
    assert path.stat().st_size == 0
    assert ledger.records() == {}
