"""Why there was no answer, in a few words, for a line on a screen."""

from __future__ import annotations

from lakeshore.net.errors import ConnectFailed, ConnectionLost, NetError, ProtocolViolation, Timeout


def reason(error: NetError, patience_s: float) -> str:
    """Of a request that was given `patience_s` seconds."""
    if isinstance(error, Timeout):
        return f"no answer within {patience_s:g} s"
    if isinstance(error, ConnectionLost):
        return "the connection ended before the answer"
    if isinstance(error, ProtocolViolation):
        return "it does not answer as HTTP"
    cause = error.__cause__
    if isinstance(error, ConnectFailed) and isinstance(cause, TimeoutError):
        return f"no connection within {patience_s:g} s"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    return (cause.strerror if isinstance(cause, OSError) else None) or str(error)
