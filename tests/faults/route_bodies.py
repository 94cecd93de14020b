"""A right body for every route that takes one, in every form it has: what the fuzzers start from."""

from __future__ import annotations

from typing import Any

from lakeshore import wire

FRAME = wire.FrameWriter(0).value("x")
PRESIGN = "/v1/namespaces/default/payloads/presign"
RUN_CONFIG = {"priority": 1.5, "key": "k", "max_attempts": 3, "timeout_s": 2.5, "prefix": "a/b", "mode": {"gpu": [1]}}
SUBMIT = {
    "invocation_id": "i",
    "queue": "q",
    "function": {"module": "m", "qualname": "f", "version": "v1"},
    "args_blob": b"args",
    "run_config": RUN_CONFIG,
    "code_context": {"git": "x"},
    "parent_invocation_id": "p",
    "retry_failed": "nonce",
    "watch": "w",
}
ACK = {
    "invocation_id": "i",
    "state": "failed",
    "result_blob": b"r",
    "error": {"type": "T", "message": "m", "traceback": "t"},
    "worker_id": "w",
    "claim": 1,
    "retry": True,
    "retries": 2,
    "last_seq": 0,
}
CHUNK = {"invocation_id": "i", "seq": 0, "bytes": FRAME, "final": False, "claim": 1, "worker_id": "w"}
POLL = {
    "worker_id": "w",
    "queue": "q",
    "timeout_s": 0,
    "session": "s",
    "n": 1,
    "held": [["i", 1, True]],
    "acks": [ACK],
    "capacity": 2,
    "kind": "fifo",
    "temperature": 1.0,
    "labels": {"a": "b"},
    "draining": False,
    "invocations": [{"invocation_id": "i", "state": "running", "started_at": 1.0, "exit_code": 0, "stdout_tail": ""}],
}
HELLO = {
    "machine_id": "m",
    "label": "l",
    "tags": ["t"],
    "lanes": ["q", "p*"],
    "session": "s",
    "adopted": [["i", 1]],
    "capabilities": {"runners": ["process"], "max_invocations": 1, "workdir": "/w"},
    "versions": {"daemon": "1", "protocol": "1", "cpu": {"model": "x", "cores": 2}, "gpu": [{"name": "g"}]},
}
EVENT = {
    "worker_id": "w",
    "kind": "invocation.event",
    "type": "t",
    "id": "e",
    "invocation_id": "i",
    "queue": "q",
    "payload": {"a": [1]},
}
WORKER = "/v1/namespaces/default/workers/none"
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "submit": ("/v1/producer/submit", SUBMIT),
    "submit many": ("/v1/producer/submit", {"invocations": [SUBMIT, {**SUBMIT, "invocation_id": "j"}], "watch": "w"}),
    "submit by reference": (
        "/v1/producer/submit",
        {"invocation_id": "i", "args_ref": {"key": "payloads/default/a/b", "size": 3, "sha256": "0" * 64}},
    ),
    "await": ("/v1/producer/await", {"invocation_id": "none", "timeout_s": 0, "get": True}),
    "watch": ("/v1/producer/await", {"watch": "w", "add": ["a", "b"], "drop": ["c"], "timeout_s": 0, "waiting": 1}),
    "trim": ("/v1/producer/invocations/none/trim", {"keep_last": 1}),
    "topic": ("/v1/producer/queues/q/topics/t", {"bytes": b"\x01", "final": False, "nonce": 7, "again": True}),
    "presign put": (PRESIGN, {"op": "put", "size": 9, "contentType": "a/b", "jobId": "j", "kind": "args"}),
    "presign get": (PRESIGN, {"op": "get", "key": "payloads/default/a/b"}),
    "hello": ("/v1/daemon/hello", HELLO),
    "poll": ("/v1/daemon/poll", POLL),
    "poll of another peer": ("/v1/daemon/poll", {"worker_id": "w", "queue": "q", "timeout_s": 0}),
    "ack": ("/v1/daemon/ack", ACK),
    "acks": ("/v1/daemon/ack", {"acks": [ACK, {**ACK, "invocation_id": "j"}]}),
    "chunk": ("/v1/daemon/result-chunk", CHUNK),
    "chunks": ("/v1/daemon/result-chunk", {"chunks": [CHUNK, {**CHUNK, "seq": 1}]}),
    "event": ("/v1/daemon/event", EVENT),
    "events": ("/v1/daemon/event", {"events": [EVENT, {**EVENT, "id": "f", "type": "setup"}]}),
    "cleanup": ("/v1/namespaces/default/workers/cleanup", {"olderThanHours": 1.5, "dryRun": True}),
    "setup": (f"{WORKER}/setup", {"script": "true", "sudo": True, "refresh_capabilities": True, "name": "n"}),
    "hibernate": (f"{WORKER}/hibernate", {"until_epoch_s": 1e10, "until": "2100-01-01T00:00:00Z"}),
    "reset": (f"{WORKER}/reset", {"ignored": 1}),
    "drain": (f"{WORKER}/drain", {"off": True}),
    "worker queues": (f"{WORKER}/queues", {"add": ["default"], "remove": ["q"]}),
    "retry": ("/v1/namespaces/default/invocations/none/retry", {"claim": 1, "nonce": "n"}),
    "token": ("/v1/namespaces/default/tokens", {"name": "t", "scope": "daemon", "workerId": "w"}),
    "secret": (
        "/v1/namespaces/default/secrets",
        {"name": "pem", "kind": "ssh_key", "plaintext": "k", "description": "d"},
    ),
    "provider": (
        "/v1/namespaces/default/providers",
        {
            "name": "box",
            "launcher": "SSH",
            "kwargs": {"ip": "h", "port": 22, "deep": [{"ssh_key": {"$secret": "pem"}}]},
            "dispatch": "direct",
        },
    ),
    "tunnel": (
        "/v1/namespaces/default/tunnels",
        {"name": "t", "kind": "wireguard", "config": {"interface": {"address": ["a"]}, "peers": [{"publicKey": "k"}]}},
    ),
    "mount": ("/v1/namespaces/default/mounts", {"name": "m", "kind": "nfs", "config": {"server": "h", "path": "/p"}}),
    "storage": (
        "/v1/namespaces/default/storages",
        {"name": "s", "kind": "s3", "config": {"bucket": "b", "endpoint": "http://h"}, "s3Options": {"ACL": "private"}},
    ),
    "code repo": (
        "/v1/namespaces/default/code-repos",
        {"remote": "r", "commit": "0" * 40, "archiveKey": "k", "storageName": "s", "ref": "refs/snapshots/a"},
    ),
    "namespace": ("/v1/admin/namespaces", {"name": "n", "orgId": "o"}),
}
