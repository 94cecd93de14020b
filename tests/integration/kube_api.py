"""As much of a Kubernetes API as kubectl needs for pods; each pod runs as a container of a dockerd, with its mounts;
where no dockerd is named, as a process of this machine.

A stand-in: there is no real API server to be had for these tests. kubectl is the real one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+))?(/log)?")
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: tests, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: tests, user: {{}}}}]
contexts: [{{name: tests, context: {{cluster: tests, user: tests}}}}]
current-context: tests
"""


class Cluster:
    """The pods that there are, and every one that there was."""

    def __init__(self, docker: dict[str, str]) -> None:
        self.docker = docker
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        self.said: dict[str, bytes] = {}
        self.versions = itertools.count(1)
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def create(self, namespace: str, pod: dict[str, Any]) -> dict[str, Any]:
        pod["metadata"] |= {
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "resourceVersion": str(next(self.versions)),
        }
        pod["status"] = {"phase": "Pending"}
        with self._lock:
            self.pods[namespace, pod["metadata"]["name"]] = pod
            self.made.append(pod)
        threading.Thread(target=self._run, args=(pod,), daemon=True).start()
        return pod

    def delete(self, namespace: str, name: str) -> None:
        with self._lock:
            self.pods.pop((namespace, name), None)
        if self.docker:
            subprocess.run(["docker", "rm", "-f", name], env=self.docker, capture_output=True, check=False)
        elif name in self._processes:
            self._processes[name].terminate()

    def log(self, name: str) -> bytes:
        if not self.docker:
            return self.said.get(name, b"")
        done = subprocess.run(
            ["docker", "logs", name], env=self.docker, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        return done.stdout if done.returncode == 0 else b""

    def _run(self, pod: dict[str, Any]) -> None:
        spec = pod["spec"]
        container = spec["containers"][0]
        if not self.docker:
            name = pod["metadata"]["name"]
            with subprocess.Popen(container["command"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                self._processes[name] = process
                pod["status"] = {"phase": "Running"}
                self.said[name], _ = process.communicate()
            self._ended(pod, process.returncode)
            return
        hosts = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        argv = ["docker", "run", "--network=host", "--name", pod["metadata"]["name"], "-w", container["workingDir"]]
        for mount in container["volumeMounts"]:
            argv += ["-v", f"{hosts[mount['name']]}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        for variable in container["env"]:
            argv += ["-e", f"{variable['name']}={variable['value']}"]
        pod["status"] = {"phase": "Running"}
        done = subprocess.run(
            [*argv, container["image"], *container["command"]], env=self.docker, capture_output=True, check=False
        )
        if done.returncode == 125:  # docker's own: there is no such image
            waiting = {"reason": "ErrImagePull", "message": done.stderr.decode(errors="replace")[:200]}
            pod["status"] = {"phase": "Pending", "containerStatuses": [{"name": "job", "state": {"waiting": waiting}}]}
            return
        self._ended(pod, done.returncode)

    def _ended(self, pod: dict[str, Any], code: int) -> None:
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        pod["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"name": "job", "state": {"terminated": ended}}],
        }


@contextlib.contextmanager
def kube_api(directory: Path, docker: dict[str, str]) -> Iterator[tuple[Cluster, dict[str, str]]]:
    """The API on loopback, and what kubectl needs in its environment."""
    cluster = Cluster(docker)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_given: Any) -> None:
            """Silent."""

        def _say(self, body: bytes | dict[str, Any], status: int = 200) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, bytes) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _refuse(self, status: int, reason: str, message: str) -> None:
            told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
            self._say({**told, "reason": reason, "message": message, "metadata": {}}, status)

        def _body(self) -> dict[str, Any]:
            told: dict[str, Any] = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            return told

        def _answer(self) -> None:
            path = self.path.partition("?")[0]
            known: dict[str, dict[str, Any]] = {
                "/api": {"kind": "APIVersions", "versions": ["v1"]},
                "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
                "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
                "/api/v1": {
                    "kind": "APIResourceList",
                    "groupVersion": "v1",
                    "resources": [
                        {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "shortNames": ["po"],
                         "verbs": ["create", "delete", "get", "list", "patch"]},
                        {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]},
                    ],
                },
            }  # fmt: skip
            if path in known:
                return self._say(known[path])
            found = _POD.fullmatch(path)
            if found is None:
                return self._refuse(404, "NotFound", "no such resource")
            namespace, name, log = found.groups()
            if self.command == "POST":
                return self._say(cluster.create(namespace, self._body()), 201)
            if name is None:
                items = [one for (where, _name), one in cluster.pods.items() if where == namespace]
                return self._say({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
            pod = cluster.pods.get((namespace, name))
            if pod is None:
                return self._refuse(404, "NotFound", f'pods "{name}" not found')
            if log:
                return self._say(cluster.log(name))
            if self.command == "DELETE":
                self._body()
                cluster.delete(namespace, name)
            return self._say(pod)

        do_GET = do_POST = do_DELETE = do_PATCH = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = directory / "kubeconfig"
    config.write_text(_KUBECONFIG.format(port=server.server_port))
    try:
        yield cluster, {"KUBECONFIG": str(config), "HOME": str(directory)}
    finally:
        server.shutdown()
        server.server_close()
