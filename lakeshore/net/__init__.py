"""The client side of our own protocol: one small HTTP/1.1 connection on h11, with a blocking, an asyncio and a trio
shell.

`http1.py` knows the protocol and does no I/O; `blocking.py`, `aio.py` and `trio_.py` move bytes for it. Nothing is
imported here, so that each caller pays for its own shell only.
"""
