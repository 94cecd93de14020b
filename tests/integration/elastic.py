"""A namespace whose queues the controller looks after, and machines of an emulated EC2 that really run."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from pathlib import Path
from typing import Any

from daemons import PYTHON, until
from machines import KEYS, Booted, Client, Ec2, push_program
from served import ADMIN, JSON, Served, new_id
from worker_peer import Daemon

import dreamlake.lakeshore as dls

TICK_S = 0.1


def settings(**more: str) -> dict[str, str]:
    """The environment of a server that looks often."""
    return {"LAKESHORE_ADMIN_TOKEN": ADMIN, "ELASTICITY_ENABLED": "true", "ELASTICITY_TICK_S": str(TICK_S), **more}


class Fleet(Client):
    """A namespace of its own. Without an `ec2` its provider `cloud` cannot be used for anything."""

    def __init__(self, server: Served, ec2: Ec2 | None = None, ns: str | None = None) -> None:
        super().__init__(server, ns or f"ns-{new_id()}")
        self.ec2 = ec2
        if ns is not None:
            return
        assert server.post("/v1/admin/namespaces", {"name": self.ns}, encoding=JSON).status == 201
        push_program(server, self.ns)
        image = "ami-none" if ec2 is None else ec2.image
        kwargs = {"region": "us-east-1", "image_id": image, "aws_credentials": KEYS}
        told = self("POST", "providers", {"name": "cloud", "launcher": "EC2", "kwargs": kwargs})
        assert told.status == 201, told.body

    def of(self, server: Served) -> Fleet:
        """The same at the server that came after."""
        return Fleet(server, self.ec2, self.ns)

    def queue(self, name: str, kind: str, *, provider: str | None = "cloud", **bounds: Any) -> str:
        template = bounds.pop("template", None)
        body: dict[str, Any] = {"name": name, "elasticity": {"kind": kind, **bounds}}
        body |= {} if provider is None else {"providerRef": provider}
        body |= {} if template is None else {"daemonTemplate": template}
        told = self("POST", "queues", body)
        assert told.status == 201, told.body
        return name

    def patch(self, name: str, **fields: Any) -> None:
        told = self("PATCH", f"queues/{name}", fields)
        assert told.status == 200, told.body

    def submit(self, queue: str, function: Any = None, *args: Any) -> str:
        """A call, of nothing that could run unless it is said what."""
        body: dict[str, Any] = {"invocation_id": new_id(), "queue": queue, "args_blob": b"x"}
        if function is not None:
            envelope = dls.thunk(function, *args).to_envelope()
            body |= {"invocation_id": envelope.id, "args_blob": envelope.to_bytes(), "run_config": PYTHON}
        answer = self.server.post("/v1/producer/submit", body, X_LS_Namespace=self.ns)
        assert answer.status == 200, answer.body
        return str(body["invocation_id"])

    def ended(self, id_: str) -> str:
        """The state that a call ended in."""
        while True:
            body = {"invocation_id": id_, "timeout_s": 20}
            state = str(self.server.post("/v1/producer/await", body, X_LS_Namespace=self.ns).body["state"])
            if state != "pending":
                return state

    def stats(self, queue: str) -> dict[str, Any]:
        return dict(self("GET", f"queues/{queue}/stats").body)

    def workers(self) -> list[dict[str, Any]]:
        return list(self("GET", "workers").body["workers"])

    def decisions(self, unit: str, *, noops: bool = False) -> list[dict[str, Any]]:
        """What was decided of a queue or pool, the oldest first."""
        found = self("GET", f"elasticity-events?queue={unit}&limit=200&verbose={str(noops).lower()}").body["events"]
        return [row for row in reversed(found) if row["queueName"] == unit]

    def actions(self, unit: str) -> list[str]:
        return [row["action"] for row in self.decisions(unit)]

    def reasons(self, unit: str) -> list[str]:
        return [row["reason"] for row in self.decisions(unit, noops=True) if row["action"] == "tick_noop"]

    def looks(self, times: int = 3) -> None:
        """Until the controller has looked at everything so often again."""
        self("POST", "queues", {"name": "watched"})
        for _ in range(times + 1):  # the first may have begun before
            at = self.stats("watched")["controller"]["last_tick_at"]
            until(lambda at=at: self.stats("watched")["controller"]["last_tick_at"] != at)

    def peer(self, *queues: str, token: str | None = ADMIN, **more: Any) -> Peer:
        return Peer(self, queues, token, more)


class Peer(Daemon):
    """A daemon spoken by hand."""

    def __init__(self, fleet: Fleet, queues: tuple[str, ...], token: str | None, more: dict[str, Any]) -> None:
        self.queues, self.more = queues, more
        super().__init__(fleet.server, ns=fleet.ns, token=token)

    def hello(self, **more: Any) -> dict[str, Any]:
        return super().hello(**{"lanes": list(self.queues), **self.more, **more})

    def serve(self) -> Peer:
        """It has polled: it is active."""
        self.ask()
        return self


class Cloud:
    """Boots what is launched, below `directory`; what is ended there loses its power."""

    def __init__(self, ec2: Ec2, directory: Path) -> None:
        self._ec2, self._directory = ec2, directory
        self._machines: dict[str, Booted] = {}
        self._off = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Cloud:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._off.set()
        self._thread.join()
        for machine in self._machines.values():
            machine.off()

    def said(self) -> str:
        return "\n".join(machine.log() for machine in self._machines.values())

    def _run(self) -> None:
        while not self._off.wait(0.2):
            for instance, state in self._ec2.states().items():
                machine = self._machines.get(instance)
                if machine is None and state == "running":
                    root = self._directory / instance
                    self._machines[instance] = Booted(root, self._ec2.userdata(instance), "bash")
                elif machine is not None and state != "running" and machine.process.poll() is None:
                    machine.off()


def token_of(userdata: str) -> str:
    """What a machine says hello with."""
    found = re.search(r"^token='?([^'\n]+)'?$", userdata, re.MULTILINE)
    assert found is not None
    return found.group(1)


class Silent:
    """A provider's endpoint that takes what it is asked and answers nothing, or refuses who comes."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked, self.refuses = 0, False
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Silent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for one in self._open:
            one.close()

    def _run(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:  # it is over
                return
            self.asked += 1
            if self.refuses:
                one.close()
            else:
                self._open.append(one)
