# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""Four kinds of body, one decorator.

Teaches: `@udf` looks at the function once. A plain call of a sync body gives its value, of an async body an awaitable,
of a generator an iterator, of an async generator an async iterator. On a queue all four run in the same worker: async
bodies are awaited there, and what a generator yields arrives as a stream while it runs.

Needs nothing but Python.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import dreamlake.lakeshore as dls


@dls.udf(queue="kinds")
def plain(n: int) -> int:
    return n * n


@dls.udf(queue="kinds")
async def waits(n: int) -> int:
    await asyncio.sleep(0.01)  # where real input and output would be
    return n * n


@dls.udf(queue="kinds")
def yields(n: int) -> Iterator[dict]:
    for i in range(n):
        yield {"i": i, "square": i * i}


@dls.udf(queue="kinds")
async def both(n: int) -> AsyncIterator[dict]:
    for i in range(n):
        await asyncio.sleep(0)
        yield {"i": i, "square": i * i}


async def here() -> None:
    """`.local` is an ordinary call, queue or not."""
    print("here:")
    print("  sync           ", plain.local(3))
    print("  async          ", await waits.local(3))
    print("  generator      ", [item["square"] for item in yields.local(3)])
    print("  async generator", [item["square"] async for item in both.local(3)])


def through_a_queue(plane: dls.Dispatch) -> None:
    q = dls.SyncQueue("kinds", dispatch=plane)
    ids = {udf.__name__: udf.submit(3, _dispatch=plane) for udf in (plain, waits, yields, both)}
    for _ in ids:
        dls.run_worker(q, once=True)
    print("through a queue:")
    print("  sync           ", q.result(ids["plain"]))
    print("  async          ", q.result(ids["waits"]))
    print("  generator      ", [item["square"] for item in q.stream(ids["yields"])])
    print("  async generator", [item["square"] for item in q.stream(ids["both"])])


def main() -> None:
    asyncio.run(here())
    through_a_queue(dls.Dispatch(":memory:"))


if __name__ == "__main__":
    main()
