# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""A pending call is a string, from one call to a graph that finds its own shape.

Teaches: L0 one call, L1 many, L2 stages, L3 a second wave whose width the first one decides, with its edges kept as
pairs of ids; `_key` gives back the same id, so that submitting again after a crash adds nothing; an id that was written
down is as good tomorrow as it is now.

Needs nothing but Python.
"""

import tempfile
from pathlib import Path

import dreamlake.lakeshore as dls

plane = dls.Dispatch(":memory:")
q = dls.SyncQueue("ids", dispatch=plane)


@dls.udf(queue="ids")
def square(x: int) -> int:
    return x * x


@dls.udf(queue="ids")
def add(a: int, b: int) -> int:
    return a + b


def drain() -> None:
    """A worker that stops at the end of the queue."""
    while dls.run_worker(q, once=True):
        pass


def main() -> None:
    one = square.submit(7, _dispatch=plane)
    drain()
    print("L0 one call:", type(one).__name__, "->", q.result(one))

    ids = [square.submit(x, _dispatch=plane) for x in range(5)]
    drain()
    squares = [q.result(i) for i in ids]
    print("L1 many:", squares)

    last = add.submit(squares[3], squares[4], _dispatch=plane)
    drain()
    print("L2 stages:", q.result(last))

    # An edge is a pair of strings: it goes into a file or a database as it is.
    edges = [
        (parent, square.submit(value, _dispatch=plane))
        for parent, value in zip(ids, squares, strict=True)
        if value > 5  # known only now
    ]
    drain()
    print("L3 second wave:", [q.result(child) for _, child in edges], f"over {len(edges)} edges")

    first = square.submit(12, _key="scene7/x", _dispatch=plane)
    again = square.submit(12, _key="scene7/x", _dispatch=plane)
    queued = len(q)
    drain()
    print("keys: the same id:", first == again, "- jobs queued:", queued)

    with tempfile.TemporaryDirectory() as directory:
        note = Path(directory, "invocation.txt")
        note.write_text(first)
        print("from a file:", q.result(note.read_text()))


if __name__ == "__main__":
    main()
