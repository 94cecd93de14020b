# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""A function through a queue and back, in one process and with nothing set up.

Teaches: `@udf(queue=...)`, `submit` gives an id, a worker drains, `result` takes the id.

The plane is `Dispatch(":memory:")`: the whole queue lives in this process and is gone with it. Everything else is as it
would be against a server.
"""

import dreamlake.lakeshore as dls


@dls.udf(queue="hello")
def add(a: int, b: int) -> int:
    return a + b


def main() -> None:
    plane = dls.Dispatch(":memory:")
    q = dls.SyncQueue("hello", dispatch=plane)

    invocation = add.submit(2, 3, _dispatch=plane)  # queued: nothing has run yet
    print("invocation:", invocation)

    dls.run_worker(q, once=True)  # takes one job and runs it, here
    print("result:", q.result(invocation, timeout=10))


if __name__ == "__main__":
    main()
