"""The runner `slurm`: an invocation as a batch job of the cluster, in a directory that its nodes share.

Reference: nymph/daemons.md, "slurm".
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ..workdir import Account, Workdir
from .attended import Plan, command
from .attending.slurm import ERR, EXIT, ID, OUT
from .given import seconds, settings, word
from .process import PYTHON, Run, as_owner, entry_path, environment, job_id

OPTIONS = ("partition", "time", "gres", "nodes", "ntasks-per-node", "cpus-per-task", "mem")
TIME = "01:00:00"
POLL_S = 5.0


class Slurm:
    """Batch jobs."""

    kind = "slurm"

    async def prepare(self, run: Run, environ: Mapping[str, str], private: Path) -> dict[str, str]:
        return {}

    def plan(self, run: Run, workdir: Workdir, environ: Mapping[str, str], owner: Account | None) -> Plan:
        given = settings(run, "slurm")
        env = environment(run, workdir, environ, owner)
        program = command(run, workdir, PYTHON, str(workdir.path))
        if run.script is None:
            env |= entry_path(program[0], env, workdir.path.parent, owner)
        told = {
            "script": _script(run, workdir, given, program),
            "poll_s": seconds(given.get("poll_interval_s"), "run_config.slurm.poll_interval_s", POLL_S),
        }
        return Plan(told, env=env, argv=as_owner(owner, [], env), sweep=["scancel"], handle=ID)


def _script(run: Run, workdir: Workdir, given: Mapping[str, object], program: list[str]) -> str:
    options = {
        "job-name": f"lakeshore-{job_id(run)}",
        "chdir": str(workdir.path),
        "output": OUT,
        "error": ERR,
        "time": TIME,
        **{name: word(given[name], f"run_config.slurm.{name}") for name in OPTIONS if given.get(name) is not None},
    }
    lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in options.items())]
    lines += [shlex.join(program), "code=$?", f"echo $code >.{EXIT} && mv .{EXIT} {EXIT}", "exit $code"]
    return "\n".join(lines) + "\n"
