# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""A function that is decorated and called, and runs right here: no queue, no worker, no network."""

import random

import dreamlake.lakeshore as dls


@dls.udf
def train(seed: int) -> dict:
    """A stand-in for training: the loss is drawn, always the same for a seed."""
    random.seed(seed)
    return {"seed": seed, "loss": random.random()}


print(train(seed=42))
print(train(seed=7))
print(train.local(seed=1))  # stays an ordinary call if the decorator is ever given a queue
