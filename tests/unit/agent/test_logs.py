"""Logs: never more on disk than stated, never in the job's way, and readable from any byte on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.agent.logs import Log, log_files, read_log


def on_disk(folder: Path) -> int:
    sizes = []
    for path in folder.glob("log*"):
        with contextlib.suppress(FileNotFoundError):  # renamed or removed meanwhile
            sizes.append(path.stat().st_size)
    return sum(sizes)


def everything(folder: Path) -> bytes:
    return b"".join(Path(path).read_bytes() for _place, path in log_files(str(folder)))


def test_a_small_log_is_one_file(tmp_path: Path) -> None:
    log = Log(str(tmp_path), 100, 2)
    log.write(b"one\n")
    log.write(b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    assert [p.name for p in tmp_path.iterdir()] == ["log"]


def test_full_files_are_named_after_their_first_byte_and_end_with_a_line(tmp_path: Path) -> None:
    log = Log(str(tmp_path), 10, 5)
    log.write(b"12345\n789\nabc\nd")
    log.write(b"ef\n")
    files = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert files == {"log.0": b"12345\n789\n", "log": b"abc\ndef\n"}


def test_the_oldest_go_first_and_a_later_sidecar_goes_on(tmp_path: Path) -> None:
    for n in range(10):
        log = Log(str(tmp_path), 10, 2)
        log.write(b"%d23456789" % n)
        log.close()
    assert [(place, os.path.basename(path)) for place, path in log_files(str(tmp_path))] == [
        (60, "log.60"), (70, "log.70"), (80, "log"),
    ]  # fmt: skip


@given(st.lists(st.binary(max_size=300), max_size=40), st.integers(1, 100), st.integers(1, 4))
def test_whatever_is_written_the_end_of_it_is_kept_and_no_more_than_stated(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], most: int, kept: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = Log(str(folder), most, kept)
    for piece in pieces:
        log.write(piece)
        assert on_disk(folder) <= most * (kept + 1)
    log.close()
    whole = b"".join(pieces)
    there = everything(folder) if whole else b""
    assert whole.endswith(there)
    first = log_files(str(folder))[0][0]
    assert first + len(there) == len(whole)
    if whole:
        place, data = read_log(str(folder), first + len(there) // 2, 1 << 20)
        assert whole[place:].startswith(data)
        assert read_log(str(folder), 0, 5) == (first, whole[first : first + 5][: len(read_log(str(folder), 0, 5)[1])])
    assert read_log(str(folder), len(whole)) == (len(whole), b"")


def test_a_reader_follows_through_every_renaming(tmp_path: Path) -> None:
    log, place, seen = Log(str(tmp_path), 50, 3), 0, b""
    for n in range(100):
        log.write(b"line %d\n" % n)
        begin, data = read_log(str(tmp_path), place)
        assert begin == place
        seen, place = seen + data, place + len(data)
    while data := read_log(str(tmp_path), place)[1]:
        seen, place = seen + data, place + len(data)
    assert seen == b"".join(b"line %d\n" % n for n in range(100))


def test_a_log_that_cannot_be_written_raises_nothing_and_says_later_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    log = Log(str(tmp_path), 1000, 2)
    log.write(b"lost\n")
    log.write(b"lost too\n")
    assert log.trouble == "No space left on device"
    log.close()
    (tmp_path / "log").unlink()
    log.write(b"there is room again\n")
    assert log.trouble == ""
    assert (tmp_path / "log").read_text() == (
        "\n[hocket: 14 bytes are missing here: No space left on device]\nthere is room again\n"
    )


def test_a_job_goes_on_though_its_log_cannot_be_written(prepared_run: Any) -> None:
    job = prepared_run("sh", "-c", "yes | head -c 1000000; exit 3")
    (job.folder / "log").symlink_to("/dev/full")
    end = job.launch().finish()
    assert end["code"] == 3
    assert [e["about"] for e in job.events("warning")] == ["the log cannot be written: No space left on device"]


def peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


@pytest.mark.parametrize("text", ["y", "x" * 100_000], ids=["short lines", "long lines"])
def test_hundreds_of_megabytes_of_output_take_neither_disk_nor_memory(run: Any, until: Any, text: str) -> None:
    fields = {"log_bytes": 1 << 20, "log_kept": 3}
    job = run("sh", "-c", f"yes {text} | head -c 200000000; echo; echo the end; touch printed; sleep 600", **fields)
    most_on_disk = 0

    def printed() -> bool:
        nonlocal most_on_disk
        most_on_disk = max(most_on_disk, on_disk(job.folder))
        return (job.folder.parent / "printed").exists()

    until(printed)
    job.wait_for_text("the end\n")
    printed()
    assert 3 << 20 < most_on_disk <= 4 << 20
    assert peak_mib(job.pid) < 20
    job.send("kill")
    job.finish()
    place, data = read_log(str(job.folder), 200_000_000 - 1)
    assert (place, data) == (200_000_000 - 1, b"\n\nthe end\n" if text == "y" else f"{text[:1]}\nthe end\n".encode())
