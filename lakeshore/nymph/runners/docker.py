"""The runners `docker` and `gvisor`: an invocation in a container; gVisor is docker with another runtime.

The image is the user's and needs a `python`; our two packages are mounted read-only, and its own libraries win. The
working directory is `/workspace`. A registry's password goes to `docker login` on its standard input, into a login of
this job alone, and is told in no message.
Reference: nymph/daemons.md, "docker and gvisor".
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from lakeshore._self import python_path

from ..workdir import Account, Workdir, WorkdirError
from .attended import Plan, command, made_private
from .given import pairs, settings, word, words
from .library import PACKAGES
from .process import Refused, Run, failed, job_id, job_variables, without_credentials

RUNTIMES = {"docker": "runc", "gvisor": "runsc"}
WORKSPACE, LIBRARY = "/workspace", "/opt/lakeshore"
CID = "container.cid"
LOGIN_S = 60.0
LABEL = "lakeshore.job"
_SWEEP = f"""
for _ in 1 2 3 4 5 6 7 8 9 10; do
    found=$(docker ps --all --quiet --filter "label={LABEL}=$0")
    [ -z "$found" ] || docker rm --force $found
    [ -z "$found" ] || exit 0
    sleep 0.5
done
"""
"""By its label: a client that was killed has not always written down which container it had asked for, and docker may
still be making it."""


class Docker:
    """Containers. `runtime` is docker's name of what runs them."""

    kind = "docker"

    def __init__(self, runtime: str) -> None:
        self._runtime = runtime

    async def prepare(self, run: Run, environ: Mapping[str, str], private: Path) -> dict[str, str]:
        if not run.run_config.get("image"):
            told = "run_config.image — required: the runner runs the function in a container of that image"
            raise Refused(failed("ImageRequired", told))
        auth = settings(run, "docker").get("registry_auth")
        if auth is None:
            return {}
        return await _login(auth, environ, private)

    def plan(self, run: Run, workdir: Workdir, environ: Mapping[str, str], owner: Account | None) -> Plan:
        given = settings(run, "docker")
        image = word(run.run_config.get("image"), "run_config.image")
        if image.startswith("-"):
            raise WorkdirError(f"run_config.image — the name of an image (got {image!r})")
        raw = words(given.get("args"), "run_config.docker.args")
        cid = workdir.path / CID
        program = command(run, workdir, "python", WORKSPACE)
        argv = ["docker", "run", "--rm", "-i", f"--runtime={self._runtime}", "--cidfile", str(cid)]
        argv += [f"--network={word(given.get('network') or 'host', 'run_config.docker.network')}"]
        argv += ["-v", f"{workdir.path}:{WORKSPACE}", "-w", WORKSPACE]
        for name in PACKAGES:
            argv += ["-v", f"{os.path.join(python_path()[0], name)}:{LIBRARY}/{name}:ro"]
        for volume in words(given.get("volumes"), "run_config.docker.volumes"):
            argv += ["-v", volume]
        for name, value in _variables(run, workdir, given).items():
            argv += ["-e", f"{name}={value}"]
        argv += ["--label", f"{LABEL}={job_id(run)}", *raw]
        if not any(arg in ("-u", "--user") or arg.startswith(("--user=", "-u=")) for arg in raw):
            uid, gid = (os.geteuid(), os.getegid()) if owner is None else (owner.uid, owner.gid)
            argv += ["--user", f"{uid}:{gid}"]
        sweep = ["bash", "-c", _SWEEP, job_id(run)]
        told = {
            "argv": [*argv, image, *program],
            "cid": str(cid),
            "image": image,
            "program": program[0],
            "sweep": sweep,
        }
        return Plan(told, env=without_credentials(environ), sweep=sweep)


def _variables(run: Run, workdir: Workdir, given: Mapping[str, Any]) -> dict[str, str]:
    """The caller's, then ours; what names a place of the working directory names it as the container sees it."""
    env = {
        "PYTHONUNBUFFERED": "1",
        **pairs(run.run_config.get("env"), "run_config.env"),
        **pairs(given.get("env"), "run_config.docker.env"),
    }
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (LIBRARY, env.get("PYTHONPATH"))))
    return {**env, **job_variables(run, WORKSPACE), **seen_from_inside(run, workdir, WORKSPACE)}


def seen_from_inside(run: Run, workdir: Workdir, at: str) -> dict[str, str]:
    """What the daemon adds to the environment, with the place's own name of the working directory."""
    return {name: value.replace(str(workdir.path), at, 1) for name, value in run.env.items()}


async def _login(auth: Any, environ: Mapping[str, str], private: Path) -> dict[str, str]:
    """DOCKER_CONFIG with a login that lasts as long as the job. Refused as RegistryAuthFailed."""
    if not isinstance(auth, Mapping) or not auth.get("server") or not auth.get("username"):
        raise WorkdirError("run_config.docker.registry_auth — {server, username, password | password_env}")
    server = word(auth["server"], "run_config.docker.registry_auth.server")
    username = word(auth["username"], "run_config.docker.registry_auth.username")
    password = _password(auth, environ)
    await trio.to_thread.run_sync(made_private, private)
    env = {**without_credentials(environ), "DOCKER_CONFIG": str(private)}
    argv = ["docker", "login", server, "--username", username, "--password-stdin"]
    done: subprocess.CompletedProcess[bytes] | None = None
    with trio.move_on_after(LOGIN_S):
        try:
            done = await trio.run_process(
                argv, stdin=password.encode(), env=env, capture_stdout=True, capture_stderr=True, check=False
            )
        except FileNotFoundError:
            raise Refused(failed("RegistryAuthFailed", "there is no docker on this host's PATH")) from None
    if done is not None and done.returncode == 0:
        return {"DOCKER_CONFIG": str(private)}
    said = f"no answer within {LOGIN_S:g} s" if done is None else done.stderr.decode(errors="replace").strip()[-1000:]
    raise Refused(failed("RegistryAuthFailed", f"{server}: {said.replace(password, '***')}"))


def _password(auth: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    variable = auth.get("password_env")
    if variable:
        found = environ.get(str(variable))
        if not found:
            told = f"registry_auth.password_env: the daemon's environment has no {variable}"
            raise Refused(failed("RegistryAuthFailed", told))
        return found
    found = auth.get("password")
    if not isinstance(found, str) or not found:
        raise Refused(failed("RegistryAuthFailed", "registry_auth needs password, or password_env"))
    return found
