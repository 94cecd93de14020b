"""One namespace of a server, over JSON."""

from __future__ import annotations

from typing import Any

from served import JSON, Answer, Served, new_id


class Space:
    """Calls with paths within the namespace `ns`, a new one unless it is named."""

    def __init__(self, server: Served, ns: str | None = None, token: str | None = None) -> None:
        self.server, self.ns, self.token = server, ns or f"ns-{new_id()}", token

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        at = f"/v1/namespaces/{self.ns}/{path}"
        return self.server.call(method, at, body, encoding=JSON, token=self.token, Accept=JSON)

    def made(self, path: str, body: Any) -> Any:
        """What POST answers, which is 201."""
        answer = self("POST", path, body)
        assert answer.status == 201, answer.raw
        return answer.body

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str | None]:
        """The status of a refusal and its field."""
        answer = self(method, path, body)
        assert answer.status >= 400, answer.raw
        return answer.status, answer.body.get("field")


def namespace(server: Served, org: str | None = None) -> str:
    """A new namespace of a server that needs tokens."""
    name = f"ns-{new_id()}"
    assert server.call("POST", "/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    return name


def token_of(server: Served, ns: str, scope: str = "full") -> str:
    """The plaintext of a new token."""
    body = {"name": f"t-{new_id()}", "scope": scope}
    return str(server.post(f"/v1/namespaces/{ns}/tokens", body, encoding=JSON).body["plaintext"])
