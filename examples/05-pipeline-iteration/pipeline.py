# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "../..", editable = true }
# ///
"""Three stages over one plane, and a loop around them until the result is good enough."""

import dreamlake.lakeshore as dls

TOLERANCE = 1e-6

plane = dls.Dispatch(":memory:")
q = dls.SyncQueue("newton", dispatch=plane)


@dls.udf(queue="newton")
def value(x: float, of: float) -> float:
    return x * x - of


@dls.udf(queue="newton")
def slope(x: float) -> float:
    return 2 * x


@dls.udf(queue="newton")
def better(x: float, y: float, rise: float) -> float:
    return x - y / rise


def run(*ids: str) -> list[float]:
    """Drain what was submitted, and resolve it."""
    while dls.run_worker(q, once=True):
        pass
    return [q.result(i, timeout=10) for i in ids]


def main() -> None:
    x, rounds = 1.0, 0
    while True:
        # Two calls of one stage; the next needs both.
        y, rise = run(value.submit(x, of=2.0, _dispatch=plane), slope.submit(x, _dispatch=plane))
        if abs(y) < TOLERANCE:
            break
        (x,) = run(better.submit(x, y, rise, _dispatch=plane))
        rounds += 1
        print(f"round {rounds}: {x:.6f}")
    print(f"the square root of 2 is {x:.6f}")


if __name__ == "__main__":
    main()
