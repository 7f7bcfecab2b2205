"""The picture of `hocket top`."""

from __future__ import annotations

from rich.console import Console

from hocket.cli.live.cluster_view import Overview, pictured
from hocket.cli.live.job_rows import ListedJob


def printed(now: Overview, height: int | None) -> list[str]:
    page = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with page.capture() as captured:
        page.print(pictured(now, 120, height))
    return captured.get().splitlines()


def test_where_there_is_no_screen_a_page_of_the_jobs_is_printed_however_many_there_are() -> None:
    jobs = [ListedJob(f"r{n}", state="running") for n in range(3)]
    jobs += [ListedJob(f"q{n}", state="waiting", reason="waits for 1 GPU: none is free") for n in range(2_000)]
    lines = printed(Overview({"policy": "fifo", "jobs": {"waiting": 2_000}}, [], jobs), None)
    assert len(lines) < 120
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in ("r0", "r2", "q0", "q90"))
    assert lines[-1] == "… and 1,905 more (`hocket jobs` lists all)"


def test_a_node_that_is_drained_or_reserved_says_so_below_its_devices() -> None:
    gpus = [{"index": 0, "job": None}]
    booked = {"owners": ["ana", "bo"], "holds": True, "from_s": 0.0, "until_s": None}
    nodes = [
        {"id": "here", "gpus": gpus, "drained": True, "cleared": True},
        {"id": "there", "gpus": gpus, "reservations": [booked]},
        {"id": "free", "gpus": gpus, "drained": False, "reservations": []},
    ]
    _headline, *lines = printed(Overview({"policy": "fifo"}, nodes, []), None)
    assert [" ".join(line.split()) for line in lines] == [
        "here 0 ·", "drained (being cleared)", "there 0 ·", "reserved for ana, bo", "free 0 ·",
    ]  # fmt: skip
