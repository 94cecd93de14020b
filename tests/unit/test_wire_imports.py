"""What importing the wire costs, seen in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_after(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(out.stdout.split())


@pytest.mark.inventory("P-170", "P-182", "P-057")
def test_importing_the_wire_and_packing_plain_values_loads_no_array_library() -> None:
    mods = loaded_after(
        "from lakeshore.wire import *; import lakeshore.wire.names, lakeshore.wire.states, lakeshore.wire.messages\n"
        "assert unpack(pack({'a': (1, 2)})) == {'a': (1, 2)}\n"
        "try: pack([object()])\nexcept TypeError: pass"
    )
    assert "msgpack" in mods
    assert not mods & {"numpy", "torch", "PIL", "trio", "httpx", "h11", "sqlite3"}


def test_names_states_and_messages_load_no_msgpack() -> None:
    mods = loaded_after(
        "import lakeshore.wire\n"
        "import lakeshore.wire.names, lakeshore.wire.states, lakeshore.wire.messages, lakeshore.wire.errors"
    )
    assert "msgpack" not in mods
    assert {m for m in mods if m.startswith("lakeshore.wire.")} == {
        f"lakeshore.wire.{name}" for name in ("names", "states", "messages", "errors", "values")
    }


def test_every_public_name_is_there() -> None:
    from lakeshore import wire

    assert all(getattr(wire, name) is not None for name in wire.__all__)
    assert set(wire.__all__) <= set(dir(wire))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wire.nothing  # noqa: B018 - the look-up is the test
