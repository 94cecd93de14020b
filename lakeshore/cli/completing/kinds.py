"""The kinds of names that a Tab may ask for: where each one comes from.

A click parameter names its kind with `named.Named`. Read at every dynamic Tab: imports nothing.
Reference: cli/completion.md, "Dynamic values".
"""

from __future__ import annotations

MOST_INVOCATIONS = 50

SERVED = {  # kind -> (route, the list in its answer, the names in a row)
    "providers": ("/v1/namespaces/{ns}/providers", "providers", "name"),
    "secrets": ("/v1/namespaces/{ns}/secrets", "secrets", "name"),
    "modes": ("/v1/namespaces/{ns}/modes", "modes", "name"),
    "tunnels": ("/v1/namespaces/{ns}/tunnels", "tunnels", "name"),
    "mounts": ("/v1/namespaces/{ns}/mounts", "mounts", "name"),
    "storages": ("/v1/namespaces/{ns}/storages", "storages", "name"),
    "daemons": ("/v1/namespaces/{ns}/workers", "workers", "id", "label"),
    "invocations": (f"/v1/namespaces/{{ns}}/invocations?limit={MOST_INVOCATIONS}", "invocations", "id"),
    "execs": (f"/v1/namespaces/{{ns}}/exec?limit={MOST_INVOCATIONS}", "execs", "exec_id"),
    "queues": ("/v1/producer/queues", "queues", "name"),
    "namespaces": ("/v1/admin/namespaces", "namespaces", "name"),
    "tokens": ("/v1/namespaces/{ns}/tokens", "tokens", "id"),
    "enroll-tokens": ("/v1/namespaces/{ns}/enroll-tokens", "enrollTokens", "id"),
    "schedules": ("/v1/namespaces/{ns}/schedules", "schedules", "name"),
}
BY_ADMIN = ("namespaces", "tokens", "enroll-tokens")  # asked with the admin token, where there is one
GONE = ("revokedAt", "deletedAt", "consumedAt")  # a row with one of these is no candidate

STATES = ("queued", "running", "succeeded", "failed", "killed", "timeout")
STATIC = {"job-states": STATES}

LOCAL = {  # kind -> function of `local`
    "ssh-aliases": "ssh_aliases",
    "aws-profiles": "aws_profiles",
    "gcloud-configs": "gcloud_configs",
    "kube-contexts": "kube_contexts",
    "docker-contexts": "docker_contexts",
    "compose-groups": "compose_groups",
    "compose-names": "compose_names",
}

KINDS = (*SERVED, *STATIC, *LOCAL)
