"""The variables of the environment that Lakeshore or its documented tools read, and what each says.

Rule: whatever our code reads by a name that begins with LAKESHORE is in this table; a test compares the two.
Reference: api/configuration.md; cli/installation.md; nymph/installation.md.
"""

from __future__ import annotations

import difflib

KNOWN: dict[str, str] = {
    "LAKESHORE_URL": "the control plane that calls, workers and commands talk to",
    "LAKESHORE_SERVER": "the server of `lakeshore auth`, and of the host daemon",
    "LAKESHORE_SERVER_URL": "the server of the host daemon",
    "LAKESHORE_NAMESPACE": "the namespace",
    "LAKESHORE_WORKSPACE": "where the pages keep their checkout, for their shell lines",
    "LAKESHORE_CLIENT_TOKEN": "the bearer token that is sent to LAKESHORE_URL",
    "LAKESHORE_TOKEN": "the same, where LAKESHORE_CLIENT_TOKEN is not set; the host daemon's token",
    "LAKESHORE_ANON": "1: commands send no token",
    "LAKESHORE_ADMIN_TOKEN": "the server's admin token, and that of `lakeshore admin`",
    "LAKESHORE_HOME": "where this machine's own queues lie (default ~/.lakeshore)",
    "LAKESHORE_STATE_DIR": "where `lakeshore serve` keeps its state",
    "LAKESHORE_CA_FILE": "certificates to trust instead of the system's",
    "LAKESHORE_QUEUE": "the queue of `lakeshore worker`, and of the host daemon where DREAMLAKE_QUEUE is not set",
    "LAKESHORE_ROOT": "the directory below which dls.run keys lie",
    "LAKESHORE_PYTHON": "the interpreter of `lakeshore worker`",
    "LAKESHORE_RUNTIME_POLICY": "how equal the Pythons of caller and worker must be",
    "LAKESHORE_CODE": "off: no archives of code are sent or used; first, on a worker: they come before its own modules",
    "LAKESHORE_ENV": "production: `lakeshore serve` insists on LAKESHORE_ADMIN_TOKEN and SECRETS_KEY",
    "LAKESHORE_MACHINES_LOOK_S": "how often the server asks providers for the machines that they made (default 60)",
    "LAKESHORE_WORKER_GONE_S": "silence after which the server calls a daemon gone (default 600)",
    "LAKESHORE_PUBLIC_URL": "the address under which others reach the server",
    "LAKESHORE_SSH_CONFIG": "the configuration for ssh -F of launches over ssh, on the server (default: none)",
    "LAKESHORE_OWN_ACCESS": "slurm, kube: what of the server's own account launches may use (default: nothing)",
    "LAKESHORE_BASE_URL": "where install.sh finds releases",
    "LAKESHORE_LOG_FORMAT": "human or json",
    "LAKESHORE_DAEMON": "the daemon that scripts/smoke-exec.sh uses; set inside a job of the host daemon",
    "LAKESHORE_DEV_DIR": "where scripts/dev-up.sh keeps its logs (default ~/.local/state/lakeshore/dev)",
    "LAKESHORE_DAEMON_KEY_MAX_AGE_S": "how old a daemon's key may get, on the server (default 2592000)",
    "LAKESHORE_DAEMON_KEY_OVERLAP_S": "how long a key is good beside its successor, on the server (default 600)",
    "LAKESHORE_DAEMON_SKEW_S": "how far a daemon's clock may be off, on the server (default 300)",
    "LAKESHORE_REQUIRE_DAEMON_SIGNATURES": "true: `lakeshore serve` refuses daemons without a key",
    "LAKESHORE_INTROSPECT": "nothing: the host daemon's status page is switched on by [introspect] enabled = true",
    "LAKESHORE_CONFIG": "the host daemon's configuration file, where LAKESHORED_CONFIG is not set",
    "LAKESHORED_CONFIG": "the host daemon's configuration file",
    "LAKESHORE_BLOBS_BUCKET": "the bucket for payloads",
    "LAKESHORE_CP_DIR": "a checkout of the control plane",
    "LAKESHORE_RESULT_FILE": "set inside a job: where its result goes",
    "LAKESHORE_PAYLOAD_FILE": "set inside a command on a daemon: where its payload lies",
    "LAKESHORE_NYMPH_TRIAL": "set by the host daemon for its own successor: an update on trial",
}
POLICIES = ("strict", "minor", "off")


def nearest(name: str) -> str | None:
    """The known variable that was probably meant by `name`; None where none is near."""
    found = difflib.get_close_matches(name.upper(), KNOWN, n=1, cutoff=0.8)
    return found[0] if found else None


def looks_ours(name: str) -> bool:
    """Whether a variable was probably meant for Lakeshore."""
    return name.startswith(("LAKESHORE_", "LAKESHORED_")) or (name not in KNOWN and nearest(name) is not None)
