"""The table of commands: every top-level name, where it is implemented, and what it says about itself.

Read by the program's own `--help` without click, and by click to find a group. A plain class: `dataclasses` alone would
double the time of `lakeshore --help`, and `typing` would add half of it.
"""

from __future__ import annotations


class Entry:
    """One top-level command. `module` and `attribute` hold the click command; an empty `module` is not built yet, and
    `nearest` is what works until then.
    """

    __slots__ = ("attribute", "module", "nearest", "summary")

    def __init__(self, summary: str, module: str = "", attribute: str = "", nearest: str = "") -> None:
        self.summary, self.module, self.attribute, self.nearest = summary, module, attribute, nearest


START = "`lakeshore serve` starts a control plane"
WORKER = "`lakeshore worker start` runs your functions on any machine that reaches the server"
FILES = "`lakeshore worker start --root <dir>` with a directory that every worker mounts"
BY_HAND = "`lakeshore daemon install <ssh-host>` puts a daemon onto a host that you can ssh to"
JOBS = "`lakeshore jobs list`"

COMMANDS: dict[str, Entry] = {
    "demo": Entry("Try it: a server, two workers and a real job, here and now", "lakeshore.cli.demo", "demo"),
    "serve": Entry("Run the control plane", "lakeshore.cli.serve", "serve"),
    "worker": Entry("Run workers on this machine", "lakeshore.cli.worker", "worker"),
    "nymph": Entry("Run the daemon on this host", "lakeshore.cli.nymph.command", "nymph"),
    "jobs": Entry("See, kill, retry and prune invocations", "lakeshore.cli.jobs.group", "jobs"),
    "queues": Entry("Queues: what they take, what they hand out", "lakeshore.cli.queues.group", "queues"),
    "daemon": Entry(
        "Daemons on other hosts: see them, use them, look after them", "lakeshore.cli.daemon.group", "daemon"
    ),
    "up": Entry("Let there be the queues and daemons of lakeshore.yaml", "lakeshore.cli.compose.up", "up"),
    "down": Entry("Drain and delete the daemons of lakeshore.yaml", "lakeshore.cli.compose.down", "down"),
    "ps": Entry("List the daemons of lakeshore.yaml", "lakeshore.cli.compose.shown", "ps"),
    "status": Entry("What there is, and what lakeshore.yaml declares", "lakeshore.cli.compose.shown", "status"),
    "logs": Entry("What the machines of lakeshore.yaml print on their consoles", "lakeshore.cli.compose.logs", "logs"),
    "tui": Entry("Watch it all on the whole terminal, and act (dashboard, top)", "lakeshore.cli.tui", "tui"),
    "exec": Entry("Run a command on a daemon", "lakeshore.cli.exec.command", "exec_"),
    "run": Entry("Run a Python script on a daemon", "lakeshore.cli.exec.run", "run"),
    "modes": Entry("Named run configs: where and how calls run", "lakeshore.cli.modes", "modes"),
    "config": Entry("The .dreamrc that counts here, and where it came from", "lakeshore.cli.config", "config"),
    "schedule": Entry("Run functions periodically", "lakeshore.cli.schedule", "schedule"),
    "auth": Entry("Save a login, check it, forget it", "lakeshore.cli.auth", "auth"),
    "admin": Entry("Tokens and namespaces, for the operator", "lakeshore.cli.admin.group", "admin"),
    "providers": Entry("Machines under a name: add, see, try, remove", "lakeshore.cli.providers.group", "providers"),
    "secrets": Entry("Values that the server keeps sealed", "lakeshore.cli.secrets", "secrets"),
    "tunnels": Entry("Passages to machines, for providers", "lakeshore.cli.tunnels.group", "tunnels"),
    "mounts": Entry("File systems for jobs, under a name", "lakeshore.cli.mounts", "mounts"),
    "storage": Entry("Buckets of an object store, under a name", "lakeshore.cli.storage.group", "storage"),
    "code": Entry("Archives of git trees", "lakeshore.cli.code.group", "code"),
    "ssh": Entry("Hosts of your ssh configuration: see, try, register them", "lakeshore.cli.ssh.group", "ssh"),
    "aws": Entry("AWS profiles of this machine", "lakeshore.cli.clouds", "aws"),
    "gcp": Entry("gcloud configurations of this machine", "lakeshore.cli.clouds", "gcp"),
    "slurm": Entry("The SLURM cluster of this machine", "lakeshore.cli.clouds", "slurm"),
    "kube": Entry("kubectl contexts of this machine", "lakeshore.cli.clouds", "kube"),
    "docker": Entry("Docker contexts of this machine", "lakeshore.cli.clouds", "docker"),
    "doctor": Entry("Look for what is wrong here, and say what to do", "lakeshore.cli.doctor", "doctor"),
    "backup": Entry("Copy a server's state while it runs", "lakeshore.cli.backup", "backup"),
    "restore": Entry("Make a state directory of a backup", "lakeshore.cli.backup", "restore"),
    "completion": Entry("Completion for bash, zsh and fish", "lakeshore.cli.completion", "completion"),
}

HIDDEN: dict[str, Entry] = {
    "compose": Entry("Another spelling of up, down, ps, status, logs", "lakeshore.cli.compose.group", "compose"),
}
"""Taken, and not listed."""

NOT_BUILT: dict[str, Entry] = {
    "dreamlake": Entry(
        "the DreamLake data plane (its servers are a separate product, which the reference does not describe)",
        nearest=FILES,
    ),
}

ALIASES = {"dashboard": "tui", "top": "tui"}
"""Other names of commands, taken and not listed."""

OPTIONS = {
    "--namespace <slug>": "the namespace to work in (LAKESHORE_NAMESPACE)",
    "--dreamrc <path>": "the .dreamrc to use (DREAMRC)",
    "--version": "print the version",
    "--help": "print this",
}


def overview() -> str:
    """What `lakeshore --help` prints."""
    lines = [
        "Usage: lakeshore [options] <command> …",
        "",
        "Run Python functions on machines that are not your laptop.",
        "",
    ]
    lines += ["Commands:", *_columns({name: entry.summary for name, entry in COMMANDS.items()}), ""]
    lines += ["Options:", *_columns(OPTIONS), ""]
    lines += [
        "Start here: `lakeshore demo`. Then `lakeshore serve`, and in another terminal",
        "`export LAKESHORE_URL=http://127.0.0.1:8080`, and workers for a queue:",
        "  on this machine   lakeshore worker start --queue <name>",
        "  over ssh          lakeshore daemon install <host> --queue <name> --code <dir>",
        "Every command answers `--help`; what it prints is also there as `--json`.",
    ]
    return "\n".join(lines)


def _columns(rows: dict[str, str]) -> list[str]:
    width = max(map(len, rows)) + 3
    return [f"  {left:<{width}}{right}" for left, right in rows.items()]
