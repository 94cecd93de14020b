"""The HTTP server: accept, serve each connection in its own task, drain. The routes above it are one handler.

server = HttpServer(router)
await nursery.start(server.serve, open_listeners("127.0.0.1", 8080))
…
await server.drain(10)
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Sequence
from functools import partial

import trio

from lakeshore.server.http.answer import encode
from lakeshore.server.http.connection import Connection, Handler, Service
from lakeshore.server.http.limits import Limits
from lakeshore.server.http.listen import Listener
from lakeshore.server.http.messages import ClientGone, ConnectionInfo, HttpError
from lakeshore.server.http.render import RenderError, render_plainly, render_safely
from lakeshore.server.http.timers import Sweeper, Times
from lakeshore.server.http.transport import PlainTransport, TlsTransport, Transport

log = logging.getLogger("lakeshore.http")

_ACCEPT_AT_ONCE = 64
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class HttpServer:
    """Serves `handler` on listeners. One use: after a drain, make another."""

    def __init__(
        self,
        handler: Handler,
        *,
        limits: Limits | None = None,
        timers: Times | None = None,
        render_error: RenderError = render_plainly,
    ) -> None:
        self.limits = limits or Limits()
        self.draining = trio.Event()
        """Set when the server starts to go down; parked requests are woken by it."""
        self._sweeper = Sweeper(timers or Times())
        self._service = Service(handler, self.limits, self._sweeper, render_error)
        self._connections: set[Connection] = set()
        self._listeners: Sequence[Listener] = ()
        self._accepting = trio.CancelScope()
        self._empty = trio.Event()
        self._stopped = trio.Event()
        self._tasks: trio.Nursery | None = None
        self._accepted = 0
        self._refusing = 0

    @property
    def open_connections(self) -> int:
        """How many connections are being served."""
        return len(self._connections)

    @property
    def parked_requests(self) -> int:
        """How many requests are held: parked polls and waiting streams."""
        return len(self._service.parked)

    async def serve(
        self, listeners: Sequence[Listener], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept until drained or cancelled; closes the listeners."""
        self._listeners = listeners
        try:
            async with trio.open_nursery() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._sweeper.run)
                task_status.started()
                with self._accepting:
                    async with trio.open_nursery() as doors:
                        for listener in listeners:
                            doors.start_soon(self._accept, listener)
                self._close_listeners()
                await self._empty.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            self._close_listeners()
            self._stopped.set()

    async def drain(self, deadline_s: float) -> None:
        """Go down: accept no more, close idle connections, wake parked requests, cancel the rest at the deadline."""
        if not self.draining.is_set():
            self.draining.set()
            self._service.draining = True
            self._accepting.cancel()
            self._close_listeners()
            for request in tuple(self._service.parked):
                request.wake("draining")
            for connection in tuple(self._connections):
                connection.close_if_idle()
            self._check_empty()
        if self._tasks is None:
            return
        with trio.move_on_after(deadline_s):
            await self._stopped.wait()
            return
        log.warning("%d connections were cut at the drain's deadline", len(self._connections))
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        await self._stopped.wait()

    # --- accepting ---------------------------------------------------------------------------------------------

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            if listener.sock.fileno() >= 0:
                trio.lowlevel.notify_closing(listener.sock)
                listener.sock.close()

    async def _accept(self, listener: Listener) -> None:
        short = False
        while listener.sock.fileno() >= 0:  # the drain may close it while a burst is being accepted
            try:
                await trio.lowlevel.wait_readable(listener.sock)
            except trio.ClosedResourceError:
                return  # the drain closed it
            for _ in range(_ACCEPT_AT_ONCE):
                try:
                    sock, address = listener.sock.accept()
                except BlockingIOError:
                    short = False
                    break
                except OSError as error:
                    if error.errno in _OUT_OF_FILES:
                        if not short:
                            log.error(  # noqa: TRY400 - the traceback says nothing more
                                "cannot accept connections: %s; raise the limit of open files", error
                            )
                        short = True
                        await trio.sleep(0.1)  # the socket stays readable: do not spin until something closes
                    break  # otherwise the peer went away before it was accepted
                self._take(listener, sock, address)

    def _take(self, listener: Listener, sock: socket.socket, address: tuple[str, int]) -> None:
        sock.setblocking(False)
        assert self._tasks is not None
        if len(self._connections) >= self.limits.max_connections:
            if self._refusing < self.limits.max_refusals and listener.tls is None:
                self._tasks.start_soon(self._refuse, sock)
            else:
                sock.close()
            return
        try:
            known = sock.family != socket.AF_UNIX
            if known:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = sock.getsockname()
        except OSError:
            sock.close()  # it was reset in between
            return
        self._accepted += 1
        info = ConnectionInfo(
            listener=listener.name,
            peer=(address[0], address[1]) if known else None,
            local=(local[0], local[1]) if known else None,
            tls=listener.tls is not None,
            number=self._accepted,
        )
        transport: Transport = PlainTransport(sock) if listener.tls is None else _tls(sock, listener.tls)
        connection = Connection(self._service, transport, info)
        self._connections.add(connection)
        self._tasks.start_soon(partial(self._run, connection))

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._check_empty()

    def _check_empty(self) -> None:
        if self.draining.is_set() and not self._connections:
            self._empty.set()

    async def _refuse(self, sock: socket.socket) -> None:
        """503 to one connection too many; then read until it has seen it, or a second has passed."""
        self._refusing += 1
        transport = PlainTransport(sock)
        error = HttpError(503, "too many connections", hint="try again shortly", headers=(("retry-after", "1"),))
        answer = encode(render_safely(self._service.render_error, None, error), close=True, without_body=False)
        try:
            with trio.move_on_after(1):
                await transport.send(answer, _nothing)
                await transport.end_sending()
                while await transport.receive():
                    pass
        except ClientGone:
            pass  # it did not wait for an answer
        finally:
            self._refusing -= 1
            await transport.close()


def _tls(sock: socket.socket, context: ssl.SSLContext) -> TlsTransport:
    return TlsTransport(sock, context)


def _nothing() -> None:
    """The refusal's time is bounded as a whole."""
