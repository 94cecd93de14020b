"""Git trees of the tests, and what a producer in one of them does: a process of its own, as a user's script is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
_WHO = (
    "-c",
    "user.name=n",
    "-c",
    "user.email=e@example.com",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=m",
)
WORK = """
import dreamlake.lakeshore as dls
from helper import FACTOR

@dls.udf(queue="work")
def scaled(x):
    return FACTOR * x

@dls.udf(queue="work")
def places():
    import helper, os, sys
    return [__file__, helper.__file__, os.getpid(), list(sys.path)]

@dls.udf(queue="work")
def counted(n):
    for index in range(n):
        yield FACTOR * index
"""


class Tree:
    """A repository in `top`, with a remote."""

    def __init__(self, top: Path, files: dict[str, str] | None = None, remote: str | None = "https://x.example/r.git"):
        self.top = top
        top.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q")
        if remote is not None:
            self.git("remote", "add", "origin", remote)
        if files is not None:
            self.commit(files)

    def git(self, *words: str) -> str:
        argv = ["git", "-C", str(self.top), *_WHO, *words]
        return subprocess.run(
            argv, check=True, capture_output=True, text=True, env={**os.environ, **NOBODY}
        ).stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: dict[str, str]) -> str:
        self.write(files)
        self.git("add", "-A", "--", ".", ":(exclude)__pycache__")
        self.git("commit", "-qm", "a commit")
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")


def produce(server: str, at: Path, program: str, *, path: str = "", ns: str = "default", **env: str) -> Any:
    """Run a program with its working directory at `at`, importing from `path` below it; what it prints, and says."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LAKESHORE_", "DREAMLAKE_"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=at,
        env={
            **{name: said for name, said in clean.items() if name != "PYTHONDONTWRITEBYTECODE"},
            **NOBODY,
            "PYTHONPATH": os.pathsep.join([str(at / path), str(ROOT)]),
            "LAKESHORE_URL": server,
            "LAKESHORE_NAMESPACE": ns,
            **env,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


class Worker:
    """`python -m dreamlake.lakeshore.daemon`, in a directory of its own, which need not have anything."""

    def __init__(self, server: str, directory: Path, *flags: str, queue: str = "work", ns: str = "default", **env: str):
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory.parent / f"{directory.name}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("LAKESHORE_CODE", "DREAMLAKE_"))}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", queue, "--url", server, *flags],
                cwd=directory,
                env={**clean, "PYTHONPATH": str(ROOT), "LAKESHORE_NAMESPACE": ns, **env},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def said(self) -> str:
        return self.log.read_text()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)
