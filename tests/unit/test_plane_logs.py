"""The files of what bodies print: bounded, torn, sent twice, found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeshore.plane.logs import FILE_BYTES, LAST_FILES, Log, Logs

ONE = Log(attempt=1, claim=1)


def text(logs: Logs, seq: int, log: Log = ONE, position: int = 0) -> bytes:
    data = b""
    while True:
        parts, whole = logs.read(seq, log, position)
        data += b"".join(part.data for part in parts)
        if whole:
            return data
        position = parts[-1].position + len(parts[-1].data)


def test_two_streams_are_one_sequence_of_positions(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "logs")
    assert logs.append(7, ONE, [("stdout", 0, b"ab"), ("stderr", 0, b"X"), ("stdout", 2, b"cd")], 1.0) == 5
    parts, whole = logs.read(7, ONE, 1)
    assert whole
    assert [(part.stream, part.offset, part.position, part.data) for part in parts] == [
        ("stdout", 1, 1, b"b"),
        ("stderr", 0, 2, b"X"),
        ("stdout", 2, 3, b"cd"),
    ]
    assert logs.read(7, ONE, 5) == ([], True)
    assert next((tmp_path / "logs").glob("*/*")).stat().st_mode & 0o777 == 0o600


def test_what_is_sent_again_is_stored_once_by_this_process_and_by_the_next(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    for again in (logs, logs, Logs(tmp_path)):
        again.append(7, ONE, [("stdout", 0, b"abc"), ("stderr", 0, b"E")], 1.0)
    Logs(tmp_path).append(7, ONE, [("stdout", 1, b"bcd")], 2.0)
    assert text(logs, 7) == b"abcEd"
    assert Logs(tmp_path).append(7, ONE, [("stderr", 1, b"F")], 3.0) == 6


@pytest.mark.parametrize("cut", [1, 5, 36, 40])
def test_a_record_that_was_cut_is_not_read_and_is_written_over(tmp_path: Path, cut: int) -> None:
    Logs(tmp_path).append(7, ONE, [("stdout", 0, b"whole ")], 1.0)
    Logs(tmp_path).append(7, ONE, [("stdout", 6, b"torn off")], 1.0)
    (file,) = tmp_path.glob("*/*")
    file.write_bytes(file.read_bytes()[:-cut])
    assert text(Logs(tmp_path), 7) == b"whole "
    Logs(tmp_path).append(7, ONE, [("stdout", 6, b"again")], 2.0)
    assert text(Logs(tmp_path), 7) == b"whole again"


def test_of_very_much_the_beginning_and_the_end_stay_and_what_is_missing_shows(tmp_path: Path) -> None:
    logs, piece = Logs(tmp_path), b"x" * 65536
    for number in range(100):
        logs.append(7, ONE, [("stdout", number * len(piece), piece)], 1.0)
    assert len(list(tmp_path.glob("*/*"))) == 1 + LAST_FILES
    assert logs.bytes() < (1 + LAST_FILES) * (FILE_BYTES + len(piece) + 1000)
    parts, position = [], 0
    whole = False
    while not whole:
        some, whole = logs.read(7, ONE, position)
        parts += some
        position = parts[-1].position + len(parts[-1].data)
    assert (parts[0].offset, position) == (0, 100 * len(piece))
    ends = [part.offset + len(part.data) for part in parts]
    gaps = [after.offset - end for end, after in zip(ends, parts[1:], strict=False) if after.offset != end]
    assert len(gaps) == 1
    assert gaps[0] == position - sum(len(part.data) for part in parts)


def test_bytes_that_were_given_up_are_a_gap_and_not_a_loss_of_what_follows(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append(7, ONE, [("stdout", 0, b"a"), ("stdout", 1000, b"z"), ("stderr", 0, b"E")], 1.0)
    assert [(part.offset, part.position) for part in logs.read(7, ONE, 0)[0]] == [(0, 0), (1000, 1000), (0, 1001)]
    assert text(logs, 7, position=500) == b"zE"


def test_logs_are_of_an_attempt_and_a_claim_and_go_with_their_invocation(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    second = Log(attempt=2, claim=5)
    for seq, log in ((7, second), (7, ONE), (8, ONE), (1007, ONE)):
        logs.append(seq, log, [("stdout", 0, f"{seq} {log.claim}".encode())], 1.0)
    assert logs.of(7) == [ONE, second]
    assert text(logs, 7, second) == b"7 5"
    assert logs.shards() == {0: {7, 8}, 1: {1007}}
    logs.forget([7, 1007, 9999])
    assert (logs.of(7), logs.of(8), logs.of(1007)) == ([], [ONE], [])
    logs.append(7, ONE, [("stdout", 0, b"anew")], 1.0)
    assert text(logs, 7) == b"anew"


def test_a_disk_without_room_takes_nothing_of_a_chunk(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append(7, ONE, [("stdout", 0, b"kept")], 1.0)
    (file,) = tmp_path.glob("*/*")
    file.rename(tmp_path / "aside")
    file.symlink_to("/dev/full")  # refused, as a link; and as full when it is followed
    with pytest.raises(OSError):
        logs.append(7, ONE, [("stdout", 4, b" lost")], 1.0)
    file.unlink()
    (tmp_path / "aside").rename(file)
    logs.append(7, ONE, [("stdout", 4, b" later")], 1.0)
    assert text(logs, 7) == b"kept later"


def test_a_file_that_is_no_log_is_let_be(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "logs")
    logs.append(7, ONE, [("stdout", 0, b"text")], 1.0)
    for name in ("7.1.1.swp", "7.1.1.²", ".7.1.1", "notes"):
        (tmp_path / "logs" / "0" / name).write_text("of somebody")
    (tmp_path / "logs" / "²").mkdir()
    assert Logs(tmp_path / "logs").of(7) == [ONE]
    assert text(logs, 7) == b"text"
    assert logs.shards() == {0: {7}}
