"""One connection's life: read a head, call the handler, write its answer, again. Requests are answered in order.

Who may interrupt what: the sweeper cancels a connection that lets a deadline pass; a drain closes idle ones and, at
its own deadline, cancels the rest. A client that goes away interrupts nothing but a parked request or a stream that
waits: a handler whose body is complete runs to its end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf

import trio

from lakeshore.server.http.answer import CONTINUE, LAST_CHUNK, encode, encode_chunk, encode_stream_head
from lakeshore.server.http.body import Body
from lakeshore.server.http.head import END, HeadParser, check_partial
from lakeshore.server.http.limits import Limits
from lakeshore.server.http.messages import (
    ClientGone,
    ConnectionInfo,
    Head,
    HttpError,
    Request,
    Response,
    StreamResponse,
    sole_refusal,
)
from lakeshore.server.http.presence import has_unread_input, peer_is_gone
from lakeshore.server.http.render import RenderError, render_safely
from lakeshore.server.http.timers import Sweeper
from lakeshore.server.http.transport import Transport

log = logging.getLogger("lakeshore.http")

Answer = Response | StreamResponse
Handler = Callable[[Request], Awaitable[Answer]]

_TOGETHER = 64 * 1024  # answers up to this size leave in one write with their head


class Service:
    """What all connections of a server share."""

    __slots__ = ("draining", "handler", "limits", "parked", "parse_head", "render_error", "sweeper")

    def __init__(self, handler: Handler, limits: Limits, sweeper: Sweeper, render_error: RenderError) -> None:
        self.handler = handler
        self.limits = limits
        self.parse_head = HeadParser(limits)
        self.sweeper = sweeper
        self.render_error = render_error
        self.draining = False
        self.parked: set[Request] = set()


class Connection:
    """One accepted socket. `run` is its task's whole body."""

    __slots__ = (
        "_answering",
        "_awaiting_chunk",
        "_cut",
        "_expired",
        "_phase",
        "_scope",
        "_service",
        "_skip",
        "_streaming",
        "_transport",
        "_watched",
        "buffered",
        "deadline",
        "info",
    )

    def __init__(self, service: Service, transport: Transport, info: ConnectionInfo) -> None:
        self._service = service
        self._transport = transport
        self.info = info
        self.buffered = b""
        self.deadline = inf
        self._phase = "handshake"
        self._expired: str | None = None
        self._scope = trio.CancelScope()
        self._answering = False  # bytes of the answer may have left: nothing else can be said
        self._awaiting_chunk = False
        self._streaming = False
        self._watched: Request | None = None
        self._cut = False  # the last request's body was not read to its end
        self._skip = 0  # bytes of an unread body before the next head

    # --- for the server ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the connection ends, then close it. Raises nothing but cancellation."""
        sweeper = self._service.sweeper
        sweeper.add(self)
        try:
            with self._scope:
                try:
                    self._until("handshake", sweeper.times.handshake)
                    await self._transport.start()
                    await self._serve()
                except ClientGone:
                    pass  # nobody is left to talk to
            if self._expired in ("head", "body") and not self._answering:
                await self._say_too_slow(self._expired)
        except Exception:
            log.exception("connection %d failed", self.info.number)
        finally:
            sweeper.discard(self)
            self._unwatch()
            await self._transport.close()

    def expire(self) -> None:
        """The deadline has passed."""
        self.deadline = inf
        if self._phase == "parked" and self._watched is not None:
            self._watched.wake("timeout")
        else:
            self._expired = self._phase
            self._scope.cancel()

    def close_if_idle(self) -> None:
        """For the drain: end it now if no request is under way or waiting in the socket."""
        if self._phase == "handshake" or (self._phase == "idle" and not has_unread_input(self._transport.sock)):
            self._scope.cancel()

    # --- for requests and bodies -------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        return self._service.draining

    def watch(self, request: Request, seconds: float) -> None:
        """From now to the end of its answer the request is told when the client goes and when the server drains.

        `seconds` from now it is told that its time is over, unless it watches again or is answered before.
        """
        self._until("parked", seconds)
        if self._watched is not request:
            self._watched = request
            self._service.parked.add(request)
            self._service.sweeper.presence.watch(self._transport.sock, self._client_went)

    def probe_gone(self) -> bool:
        return peer_is_gone(self._transport.sock)

    def _client_went(self) -> None:
        request = self._watched
        if request is not None:
            request.mark_gone()
        if self._awaiting_chunk:
            self._scope.cancel()
        elif self._streaming:  # it has something to send: that may still be taken, look again later
            self._service.sweeper.presence.watch(self._transport.sock, self._client_went)
            self._service.sweeper.look_again()  # not at once: it is seen to have gone for as long as that lasts

    def _unwatch(self) -> None:
        self._streaming = False
        request, self._watched = self._watched, None
        if request is not None:
            self._service.parked.discard(request)
            self._service.sweeper.presence.unwatch(self._transport.sock.fileno())

    async def more(self, expected: int) -> bytes:
        self._until("body", self._service.sweeper.times.body)
        data = await self._transport.receive(expected)
        self.deadline = inf
        if not data:
            raise ClientGone
        return data

    async def send_continue(self) -> None:
        await self._send(CONTINUE)

    # --- one request after the other ---------------------------------------------------------------------------

    async def _serve(self) -> None:
        service = self._service
        while True:
            self._answering = False
            try:
                raw = await self._next_head()
                if raw is None:
                    return
                head, length = service.parse_head(raw)
            except HttpError as error:
                await self._send(self._encode_refusal(None, error, without_body=False))
                await self._linger()
                return
            if not await self._exchange(head, length):
                if self._cut or self.buffered or has_unread_input(self._transport.sock):
                    await self._linger()
                return

    async def _next_head(self) -> bytes | None:
        """The bytes of the next head; None when there is none to come. HttpError when it cannot become one."""
        while self._skip:
            data = self.buffered or await self.more(self._skip)
            self.buffered = data[self._skip :]
            self._skip -= min(self._skip, len(data))
        data = self.buffered
        if data:
            await trio.lowlevel.checkpoint()  # pipelined: the others get their turn
        else:
            if self._service.draining and not has_unread_input(self._transport.sock):
                return None
            self._until("idle", self._service.sweeper.times.idle)
            data = await self._transport.receive()
            if not data:
                return None
        end = data.find(END)
        if end < 0 or data[0] in b"\r\n":
            data = await self._complete_head(bytearray(data))
            end = data.find(END)
        self._phase = "handler"
        self.deadline = inf
        end += len(END)
        self.buffered = data[end:]
        return data[:end]

    async def _complete_head(self, data: bytearray) -> bytes:
        self._until("head", self._service.sweeper.times.head)
        searched = 0
        while True:
            while data[:2] == b"\r\n":  # an empty line before a request is allowed, and common after a body
                del data[:2]
            if data.find(END, searched) >= 0:
                return bytes(data)
            if data and data != b"\r":
                check_partial(data, self._service.limits)
            searched = max(0, len(data) - len(END) + 1)
            more = await self._transport.receive()
            if not more:
                raise ClientGone
            data += more

    async def _exchange(self, head: Head, length: int | None) -> bool:
        """Answer one request. True when the connection can carry another."""
        service = self._service
        body = Body(head, length, self)
        request = Request(head, body, connection=self.info, channel=self, max_body=service.limits.max_body)
        without_body = head.method == "HEAD"
        failed = False
        try:
            answer = await service.handler(request)
        except HttpError as error:
            answer = self._render(request, error)
        except ClientGone:
            raise
        except Exception as error:
            refusal = sole_refusal(error)
            if isinstance(refusal, ClientGone):
                raise refusal from error
            failed = refusal is None
            answer = self._internal_error(request, error) if refusal is None else self._render(request, refusal)
        self._phase = "answer"
        self.deadline = inf
        close = head.close or failed or service.draining
        self._cut = not body.complete
        try:
            if isinstance(answer, StreamResponse):  # its chunks may still be made of the body: no going on after that
                close = await self._stream(request, answer, head, close=close or self._cut)
            else:
                if self._cut and not close:
                    close = not self._can_skip(body)
                close = await self._send_whole(request, answer, close=close, without_body=without_body)
        finally:
            if self._watched is not None:
                self._unwatch()
        return not close

    def _can_skip(self, body: Body) -> bool:
        """Whether the next request can be found: an unread rest is dropped when it is short, else it ends things."""
        rest = body.discardable
        if rest is None or rest > self._service.limits.max_discard:
            return False
        self._skip = rest
        return True

    # --- answers -----------------------------------------------------------------------------------------------

    def _render(self, request: Request | None, error: HttpError) -> Response:
        return render_safely(self._service.render_error, request, error)

    def _internal_error(self, request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return self._render(
            request,
            HttpError(503, "internal error", hint="the server's log has the details; the request may be tried again"),
        )

    def _encode_refusal(self, request: Request | None, error: HttpError, *, without_body: bool) -> bytes:
        return encode(self._render(request, error), close=True, without_body=without_body)

    async def _send(self, data: bytes) -> None:
        await self._transport.send(data, self._writing)
        self.deadline = inf

    def _writing(self) -> None:
        self._until("write", self._service.sweeper.times.write)

    async def _send_whole(self, request: Request, answer: Response, *, close: bool, without_body: bool) -> bool:
        """Send a whole answer; returns whether the connection must close."""
        try:
            close = close or answer.close
            apart = len(answer.body) > _TOGETHER and not without_body
            data = encode(answer, close=close, without_body=without_body or apart)
        except Exception as error:  # noqa: BLE001 - whatever the handler made, logged below
            answer, apart, close = self._internal_error(request, error), False, True
            data = encode(answer, close=close, without_body=without_body)
        self._answering = True
        await self._send(data)
        if apart:
            await self._send(answer.body)
        return close

    async def _stream(self, request: Request, answer: StreamResponse, head: Head, *, close: bool) -> bool:
        """Send a streamed answer; returns whether the connection must close."""
        chunks, length = answer.chunks, answer.content_length
        chunked = length is None and head.version == "1.1"
        close = close or (length is None and not chunked)
        try:
            try:
                first = encode_stream_head(
                    answer.status, answer.headers, content_length=length, chunked=chunked, close=close
                )
            except Exception as error:  # noqa: BLE001 - as above
                await self._send(encode(self._internal_error(request, error), close=True, without_body=False))
                return True
            self._answering = True
            await self._send(first)
            if head.method == "HEAD":
                return close
            return await self._send_chunks(request, answer, chunked=chunked) or close
        finally:
            closing = getattr(chunks, "aclose", None)
            if closing is not None:
                await closing()

    async def _send_chunks(self, request: Request, answer: StreamResponse, *, chunked: bool) -> bool:
        chunks, left = answer.chunks, answer.content_length
        if left is None:
            self._streaming = True
            self.watch(request, inf)
        try:
            while True:
                self._awaiting_chunk = left is None
                try:
                    data = await anext(chunks)
                except StopAsyncIteration:
                    break
                finally:
                    self._awaiting_chunk = False
                if not data:
                    continue
                if left is not None:
                    left -= len(data)
                    if left < 0:
                        self._wrong_length(request, "longer than", answer)
                        return True
                await self._send(encode_chunk(data) if chunked else data)
                await trio.lowlevel.checkpoint()  # a source that never waits must not keep the loop to itself
        except ClientGone:
            raise
        except Exception:
            # the status has left: an unfinished body is the only way to say that it failed
            log.exception("%s %s failed while streaming", request.method, request.path)
            return True
        if left:
            self._wrong_length(request, "shorter than", answer)
            return True
        if chunked:
            await self._send(LAST_CHUNK)
        return False

    def _wrong_length(self, request: Request, how: str, answer: StreamResponse) -> None:
        log.error("%s %s: stream %s its %s bytes", request.method, request.path, how, answer.content_length)

    # --- the end -----------------------------------------------------------------------------------------------

    async def _linger(self) -> None:
        """Read on for a while: closing over unread input would reset the connection under our answer."""
        self._until("linger", self._service.sweeper.times.linger)
        await self._transport.end_sending()
        while await self._transport.receive():
            pass

    async def _say_too_slow(self, what: str) -> None:
        error = HttpError(408, f"timed out waiting for the request {what}", hint="send it without pausing")
        with trio.move_on_after(1):
            try:
                await self._transport.send(self._encode_refusal(None, error, without_body=False), lambda: None)
                await self._transport.end_sending()
            except ClientGone:
                pass  # it had gone silent for good

    def _until(self, phase: str, seconds: float) -> None:
        self._phase = phase
        self.deadline = self._service.sweeper.after(seconds)
