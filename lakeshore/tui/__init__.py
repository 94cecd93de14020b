"""What is watched on a whole terminal. Textual on asyncio, never trio; nothing is imported here.

`theme.py` has the colours, `poller.py` asks again and again and keeps the last good answer: they know no daemon.
"""
