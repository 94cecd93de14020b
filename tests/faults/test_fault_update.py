"""A daemon's update onto a disk that is full: nothing changes, and the next try is like the first."""

from __future__ import annotations

import hashlib
from pathlib import Path

import kept as k
import programs as p
import pytest
from disks import small_disk
from net_scripted import Served as Connection
from net_scripted import scripted

from lakeshore.nymph.transport import Transport
from lakeshore.nymph.update import Program, UpdateError, install


@pytest.mark.inventory("N-171", "N-173")
def test_on_a_full_disk_the_old_program_stays_and_nothing_is_left(tmp_path: Path) -> None:
    data = p.program("2.0.0", "#" + "x" * (1 << 20))
    digest = hashlib.sha256(data).hexdigest()

    def serve(connection: Connection) -> None:
        while connection.read_request() is not None:
            connection.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(data) + data)

    with small_disk(tmp_path / "disk", megabytes=4) as disk, scripted(serve) as server:
        target = p.put(disk.root / "lakeshore", before := p.program("1.0.0"))
        program = Program(path=target, arguments=())

        async def update() -> None:
            transport = Transport(server.target, token=None)
            try:
                await install(transport, program, "01J", version="2.0.0", url="/file", sha256=digest)
            finally:
                transport.close()

        async def refused() -> None:
            with pytest.raises(UpdateError, match="No space left on device"):
                await update()

        disk.fill(leave=512 << 10)
        k.run(refused)
        assert target.read_bytes() == before
        assert sorted(one.name for one in disk.root.iterdir()) == ["ballast", "lakeshore"]
        disk.empty()
        k.run(update)
        assert target.read_bytes() == data
        assert (disk.root / ".lakeshore.previous").read_bytes() == before
