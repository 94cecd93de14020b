# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""Each result as soon as it is there, instead of after the slowest.

lakeshore worker start --queue compute --procs 2
python fan_out_stream.py
"""

import asyncio
import time

import dreamlake.lakeshore as dls


@dls.udf(queue="compute")
def slow_square(x: int, delay: float) -> int:
    time.sleep(delay)
    return x * x


async def main(n: int = 6) -> None:
    q = dls.Queue("compute")
    ids = [slow_square.submit(x, delay=0.05 * (n - x)) for x in range(n)]

    async def one(x: int, invocation: str) -> tuple[int, int]:
        return x, await q.result(invocation, timeout=60)

    for finished in asyncio.as_completed([one(x, i) for x, i in enumerate(ids)]):
        x, squared = await finished
        print(f"finished: slow_square({x}) = {squared}")


if __name__ == "__main__":
    asyncio.run(main())
