"""`Stack`: a server and workers for as long as a block runs; whatever happens to the program, nothing is left and
nothing is lost. Each test is a program of its own, as a user's is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BODIES = """\
import os, pathlib, time
import dreamlake.lakeshore as dls

@dls.udf(queue="slow")
def slow(mark: str, seconds: float) -> str:
    pathlib.Path(mark).touch()
    time.sleep(seconds)
    return os.environ.get("LAKESHORE_CLIENT_TOKEN", "none") + " " + os.getcwd()
"""
BEGIN = """\
import sys, time
from pathlib import Path
import dreamlake.lakeshore as dls
from bodies import slow
from dreamlake.lakeshore.stack import Stack, StackError
"""


def start(directory: Path, program: str, **more: str) -> subprocess.Popen[str]:
    (directory / "bodies.py").write_text(BODIES, "utf-8")
    (directory / "program.py").write_text(BEGIN + program, "utf-8")
    env = {**os.environ, "PYTHONPATH": os.path.relpath(ROOT, directory), "TMPDIR": str(directory), **more}
    return subprocess.Popen(
        [sys.executable, "-B", "program.py"],
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(directory: Path, program: str, **more: str) -> str:
    """Its output, once it has ended well."""
    with start(directory, program, **more) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return out


def alive(directory: Path) -> list[int]:
    """The processes that stand in the directory or below it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(entry / "cwd")
        except OSError:
            continue
        if f"{where}/".startswith(f"{directory}/"):
            found.append(int(entry.name))
    return found


def until(what: str, true: object) -> None:
    deadline = time.monotonic() + 60
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def test_a_stack_runs_jobs_keeps_its_files_and_goes_on_with_them(tmp_path: Path) -> None:
    first = run(
        tmp_path,
        """
with Stack("kept", modules=".") as stack:
    plane = dls.HttpDispatch(stack.serve())
    stack.work("slow", 2)
    invocation = slow.submit("ran", 0.0, _dispatch=plane)
    print(invocation, dls.SyncQueue("slow", dispatch=plane).result(invocation))
    stack.check()
    stack.dismiss()
    assert stack.workers == []
""",
        LAKESHORE_URL="http://127.0.0.1:1",
        LAKESHORE_CLIENT_TOKEN="mine",
    )
    invocation, token, where = first.split()
    assert (token, where) == ("none", str(tmp_path / "kept")), "nothing of the caller's own Lakeshore"
    assert alive(tmp_path) == []
    again = run(
        tmp_path,
        f"""
with Stack("kept") as stack:
    print(dls.SyncQueue("slow", dispatch=dls.HttpDispatch(stack.serve())).result("{invocation}"))
""",
    )
    assert again.split() == ["none", where]


def test_a_stack_without_a_directory_leaves_nothing_behind(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
with Stack() as stack:
    stack.serve()
    assert stack.directory.exists()
    print(stack.directory)
""",
    )
    assert out.startswith(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"program.py", "bodies.py"}


def test_when_the_program_is_killed_its_workers_finish_what_they_run_and_the_server_hears_of_it(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        """
with Stack("kept", modules=".") as stack:
    plane = dls.HttpDispatch(stack.serve())
    stack.work("slow")
    print(slow.submit("begun", 1.5, _dispatch=plane), flush=True)
    time.sleep(600)
""",
    )
    with process:
        assert process.stdout is not None
        invocation = process.stdout.readline().strip()
        until("the job begins", (tmp_path / "kept" / "begun").exists)
        process.send_signal(signal.SIGKILL)
    until("everything has ended", lambda: alive(tmp_path) == [])
    told = run(
        tmp_path,
        f"""
with Stack("kept") as stack:
    row = dls.HttpDispatch(stack.serve()).get("{invocation}")
    print(row["state"], row["attempt"])
""",
    )
    assert told.split() == ["succeeded", "1"]


def test_a_process_that_ends_by_itself_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
with Stack("kept") as stack:
    stack.serve()
    stack.work("slow")
    while "queue 'slow'" not in Path("kept/worker-1.log").read_text():
        time.sleep(0.02)
    stack.workers[0].kill()
    stack.workers[0].wait()
    try:
        stack.check()
    except StackError as error:
        print(error)
""",
    )
    assert out.startswith("worker 1 ended (-9):\n")
    assert "queue 'slow'" in out


def test_a_directory_that_another_stack_uses_is_refused_by_name(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
import lakeshore.stack
lakeshore.stack.FREE_S = 1.0
with Stack("kept") as first, Stack("kept") as second:
    first.serve()
    try:
        second.serve()
    except StackError as error:
        print(error)
""",
    )
    assert "the control plane did not start" in out
    assert "another lakeshore serve" in out
