"""The page in a real Chromium on a real controller: `python -m benchmarks.page [--quick] [--jobs N] [--json]`.

With a long queue, while a hundred and then a thousand jobs a second change: the CPU time of the browser's main thread
until the list of jobs is shown, how long its tasks and the gaps between its frames are while the list scrolls (by the
browser's own tracing), and the CPU time of the controller by page that is open. Needs Chromium and `pip install
playwright`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.live import Controller, cpu_s
from benchmarks.machine import Machine, machine, table
from hocket.service.page_files import page_files

RATES = (100, 1000)  # jobs that change in a second
PATIENCE_S = 120.0  # for all jobs to be listed
SCROLLED_PX, PX_A_S = 75_000, 15_000  # one stroke of the wheel, as long as it takes: frames are wanted all the while
FLAGS = ["--no-sandbox", "--disable-gpu"]
CATEGORIES = [
    "devtools.timeline",
    "disabled-by-default-devtools.timeline",
    "disabled-by-default-devtools.timeline.frame",
]
# What the browser calls its work on the main thread. A script that calls another or forces a layout counts twice.
COSTS = (
    ("scripts", ("FunctionCall", "EvaluateScript", "RunMicrotasks")),
    ("style", ("UpdateLayoutTree",)),
    ("layout", ("Layout",)),
    ("painting", ("PrePaint", "Paint", "Layerize", "Commit")),
    ("garbage", ("MajorGC", "MinorGC")),
)
WIDTH = {"width": 1280, "height": 900}


class PageFigures(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    jobs: int
    page_kb: float  # of all files, as they are
    sent_kb: float  # compressed
    at_rest: FirstView
    at_rates: list[AtRate]
    load: float  # of the machine, over the last minute


class FirstView(Struct, frozen=True):
    """From a fresh load until all jobs are in the list, in seconds of CPU time of the main thread."""

    cpu_s: float  # scripts, style, layout, painting
    script_s: float


class AtRate(Struct, frozen=True):
    """While so many jobs a second change."""

    wanted_a_s: int
    events_a_s: float  # that there were
    first: FirstView
    task_p99_ms: float  # of CPU time on the main thread, while it scrolls: a frame waits for one at most
    task_longest_ms: float
    frame_cpu_p99_ms: float  # CPU time of the main thread between two frames that it made, while it scrolls
    frame_cpu_longest_ms: float
    costs_ms: dict[str, float]  # that CPU time in all, by what the browser did
    frame_p99_ms: float  # from one frame to the next, in wall time, while it scrolls
    frame_longest_ms: float
    frames: int
    page_share: float  # of a core, that the main thread takes while nothing but the events happens
    controller_alone_share: float  # of a core, with these events and no page
    controller_by_page_share: float  # more, for each page


def main(arguments: list[str]) -> None:
    """Measure, and print a table or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page")
    parser.add_argument("--quick", action="store_true", help="few jobs: half a minute instead of three")
    parser.add_argument("--jobs", type=int, default=10_000, help="in the queue")
    parser.add_argument("--pages", type=int, default=3, help="that are open at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement of the controller")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    jobs, seconds = (500, 4.0) if chosen.quick else (chosen.jobs, chosen.seconds)
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        command = " ".join(["python -m benchmarks.page", *arguments])
        found = measured(Path(folder), jobs, chosen.pages, seconds, command)
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


def measured(home: Path, jobs: int, pages: int, seconds: float, command: str) -> PageFigures:
    """Start a controller and a browser, and look."""
    from playwright.sync_api import sync_playwright

    controller = Controller(home, "--gpus", "4", "--policy", "fifo")
    link = controller.connect()
    try:
        blockers = [{"id": f"blocker{n}", "command": ["sleep", "1000"], "cwd": "/"} for n in range(4)]
        queued = [{"id": f"queued-{n}", "owner": f"team-{n % 7}", "command": ["true"], "cwd": "/"} for n in range(jobs)]
        for first in range(0, jobs + 4, 1000):
            controller.call(link, "POST", "/v1/jobs", {"jobs": [*blockers, *queued][first : first + 1000]})
        with sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            page = opened(browser, controller)
            at_rest = first_view(page, jobs)
            page.context.close()
            at_rates = [at_rate(browser, controller, rate, jobs, pages, seconds) for rate in RATES]
            browser.close()
    finally:
        controller.down()
    files = page_files().values()
    return PageFigures(
        command, machine(), jobs, sum(len(f.body) for f in files) / 1000, sum(len(f.compressed) for f in files) / 1000,
        at_rest, at_rates, os.getloadavg()[0],
    )  # fmt: skip


def at_rate(browser: Any, controller: Controller, rate: int, jobs: int, pages: int, seconds: float) -> AtRate:
    """All of it while so many jobs a second change."""
    with Changes(controller, rate, jobs) as changes:
        page = opened(browser, controller)
        first = first_view(page, jobs)
        tasks, frames, by_frame, costs = scrolling(browser, page)
        page_share = busy_share(page, seconds)
        page.context.close()
        shares = controller_shares(browser, controller, pages, seconds)
        reached = changes.rate()
    gaps = sorted(1000 * (b - a) for a, b in pairwise(sorted(frames)))
    tasks.sort()
    return AtRate(
        rate, reached, first, quantile(tasks, 0.99), tasks[-1],
        quantile(sorted(by_frame), 0.99), max(by_frame), costs, quantile(gaps, 0.99), gaps[-1], len(frames),
        page_share, shares[0], (shares[1] - shares[0]) / pages,
    )  # fmt: skip


def opened(browser: Any, controller: Controller) -> Any:
    """A page of a browser that is signed in, in a session of its own."""
    place = (controller.home / "url").read_text().strip()
    path = controller.call(controller.connect(), "POST", "/v1/page/links", {})["path"]
    page = browser.new_context(viewport=WIDTH).new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{place}{path}")
    page.wait_for_selector(".tile")
    return page


def first_view(page: Any, jobs: int) -> FirstView:
    """What the main thread was busy with, from a fresh load until all jobs are in the list."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # CPU time, not wall time
    place = page.url.partition("#")[0]
    page.goto("about:blank")
    page.goto(f"{place}#/jobs")
    loaded = "many => Number(document.querySelector('.chip .many')?.textContent.replaceAll(',', '') ?? 0) >= many"
    until = time.monotonic() + PATIENCE_S
    while not page.evaluate(loaded, jobs):
        if time.monotonic() > until:
            shown = page.evaluate("document.querySelector('#app').innerText.slice(0, 500)")
            raise TimeoutError(f"not all {jobs:,} jobs are listed within {PATIENCE_S:g} s, but: {shown}")
        page.wait_for_timeout(20)
    found = metrics_of(session)
    return FirstView(found["TaskDuration"], found["ScriptDuration"])


def metrics_of(session: Any) -> dict[str, float]:
    """Seconds of CPU time of the main thread so far, by what it did."""
    return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}


def busy_share(page: Any, seconds: float) -> float:
    """The part of a core that the page's main thread takes."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before, began = metrics_of(session)["TaskDuration"], time.monotonic()
    page.wait_for_timeout(1000 * seconds)
    return (metrics_of(session)["TaskDuration"] - before) / (time.monotonic() - began)


def scrolling(browser: Any, page: Any) -> tuple[list[float], list[float], list[float], dict[str, float]]:
    """While the list scrolls: tasks of the main thread in milliseconds of CPU time, when frames came in seconds, the
    CPU time of the main thread by frame that it made, and what that was spent on."""
    box = page.locator(".virtual").bounding_box()
    at = {"x": box["x"] + 200, "y": box["y"] + 200}
    page.mouse.move(**at)
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.context.new_cdp_session(page).send(
        "Input.synthesizeScrollGesture",
        {**at, "yDistance": -SCROLLED_PX, "speed": PX_A_S, "gestureSourceType": "mouse", "preventFling": True},
    )
    events = json.loads(browser.stop_tracing())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"].get("name") for e in events if e["name"] == "thread_name"}
    renderers = {key for key, name in names.items() if name == "CrRendererMain"}
    busiest = max(renderers, key=lambda key: sum(e.get("dur", 0) for e in events if (e["pid"], e["tid"]) == key))
    of_page = [e for e in events if e["pid"] == busiest[0]]
    # In CPU time: on a busy machine, what else runs would count.
    tasks = [e["tdur"] / 1000 for e in of_page if e["name"] == "RunTask" and e["tid"] == busiest[1] and "tdur" in e]
    frames = [e["ts"] / 1e6 for e in of_page if e["name"] == "DrawFrame"]
    of_thread = [e for e in of_page if e["tid"] == busiest[1]]
    made = sorted(e["ts"] for e in of_thread if e["name"] == "Commit")
    by_frame = [0.0] * (len(made) + 1)
    for e in of_thread:
        if e["name"] == "RunTask" and "tdur" in e:
            by_frame[bisect_right(made, e["ts"])] += e["tdur"] / 1000
    costs = {
        name: sum(e["tdur"] / 1000 for e in of_thread if e["name"] in kinds and "tdur" in e) for name, kinds in COSTS
    }
    return tasks, frames, by_frame[1:-1], costs


def controller_shares(browser: Any, controller: Controller, pages: int, seconds: float) -> tuple[float, float]:
    """The part of a core that the controller takes: without a page, and with so many."""
    alone = share(controller, seconds)
    open_pages = [opened(browser, controller) for _ in range(pages)]
    time.sleep(2.0)  # They have loaded.
    beside = share(controller, seconds)
    for page in open_pages:
        page.context.close()
    return alone, beside


def share(controller: Controller, seconds: float) -> float:
    """CPU time over wall time."""
    began, used = time.monotonic(), cpu_s(controller.process.pid)
    time.sleep(seconds)
    return (cpu_s(controller.process.pid) - used) / (time.monotonic() - began)


class Changes:
    """Has so many jobs of the queue a second held and released, some at a time, all the while."""

    def __init__(self, controller: Controller, rate: int, jobs: int) -> None:
        self._controller, self._over, self._done = controller, threading.Event(), 0
        self._rate, self._names = rate, [f"queued-{n}" for n in range(min(jobs, rate // 5))]
        self._thread = threading.Thread(target=self._change, daemon=True)

    def __enter__(self) -> Changes:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def rate(self) -> float:
        """Changes a second so far."""
        return self._done / (time.monotonic() - self._began)

    def _change(self) -> None:
        link = self._controller.connect()
        names, due = self._names, time.monotonic()
        for turn in range(10**9):
            due = max(due + len(names) / self._rate, time.monotonic() - 1.0)  # What it is behind, it does not make up.
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            request = "resume" if turn % 2 else "pause"
            self._controller.call(link, "POST", "/v1/job-requests", {"request": request, "jobs": names})
            self._done += len(names)


def quantile(ascending: list[float], share_: float) -> float:
    """The value that so many are at most."""
    return ascending[min(len(ascending) - 1, int(share_ * len(ascending)))]


def first_row(when: str, jobs: int, first: FirstView) -> tuple[str, str, str]:
    """A line of the table."""
    what = f"{when}: first view of {jobs:,} jobs, CPU of the main thread"
    return what, f"{first.cpu_s:.2f} s", f"{first.script_s:.2f} s in scripts"


def text(found: PageFigures) -> str:
    """One page."""
    here = found.machine
    rows = [
        ("all files of the page", f"{found.page_kb:.0f} kB", f"{found.sent_kb:.0f} kB compressed"),
        first_row("nothing changes", found.jobs, found.at_rest),
    ]
    for at in found.at_rates:
        events = f"{at.events_a_s:.0f} events a second"
        rows += [
            first_row(events, found.jobs, at.first),
            (
                f"{events}: tasks while scrolling, CPU, p99",
                f"{at.task_p99_ms:.1f} ms",
                f"longest {at.task_longest_ms:.1f} ms",
            ),
            (
                f"{events}: main thread by frame while scrolling, CPU, p99",
                f"{at.frame_cpu_p99_ms:.1f} ms",
                f"longest {at.frame_cpu_longest_ms:.1f} ms",
            ),
            (f"{events}: in all meanwhile", ", ".join(f"{name} {ms:.0f} ms" for name, ms in at.costs_ms.items()), ""),
            (
                f"{events}: from frame to frame while scrolling, wall time, p99 of {at.frames:,}",
                f"{at.frame_p99_ms:.1f} ms",
                f"longest {at.frame_longest_ms:.1f} ms",
            ),
            (f"{events}: the page's main thread", f"{at.page_share:.1%} of a core", ""),
            (
                f"{events}: controller, for each open page",
                f"{at.controller_by_page_share:.2%} of a core",
                f"{at.controller_alone_share:.1%} without a page",
            ),
        ]
    head = f"{found.command} · {here.cores} cores, Python {here.python}, {here.date}, load {found.load:.0f}"
    return "\n".join([head, *table(("", "", ""), rows)])


if __name__ == "__main__":
    main(sys.argv[1:])
