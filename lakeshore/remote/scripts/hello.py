"""What `lakeshore providers test` runs: Python's standard library is all that it needs, from 3.7 on."""

from __future__ import annotations

import platform
import socket
import sys


def gpu() -> str:
    """What torch says of them."""
    try:
        import torch  # wall: whether it is there is the question
    except ImportError:
        return "(torch not installed)"
    except Exception as error:  # noqa: BLE001  (a broken installation is an answer)
        return f"(torch does not load: {error})"
    if not torch.cuda.is_available():
        return "(none that torch sees)"
    return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))


if __name__ == "__main__":
    sys.stdout.write(
        f"hostname: {socket.gethostname()}\n"
        f"python: {platform.python_version()}\n"
        f"platform: {platform.platform()}\n"
        f"gpu: {gpu()}\n"
        "ok\n"
    )
