"""Celery's tasks: Redis as broker and result store, at CELERY_REDIS. Everything else as Celery comes."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bench", broker=os.environ["CELERY_REDIS"], backend=os.environ["CELERY_REDIS"])
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(a: int, b: int) -> int:
    """The smallest task."""
    return a + b


@app.task
def size(data: bytes) -> int:
    """A large argument, a small answer."""
    return len(data)
