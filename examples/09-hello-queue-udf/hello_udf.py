# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""A function through a queue that another process drains: this one only submits and waits.

    lakeshore worker start --queue hello    # in another terminal, or on another machine
    python hello_udf.py

LAKESHORE_URL names the control plane where they meet; its workers must accept a script's functions (--allow-pickled).
Without it they meet in a file of this machine.
"""

import dreamlake.lakeshore as dls


@dls.udf(queue="hello")
def add(a: int, b: int) -> int:
    return a + b


invocation = add.submit(2, 3)
print("invocation:", invocation)
print("result:", dls.SyncQueue("hello").result(invocation, timeout=60))
