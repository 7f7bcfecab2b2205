"""Short windows of work that a policy trains on, or is judged by: generated ones, and parts of the Philly table.

A window has some dozens of jobs, as the workload of MLFS has them, on as many servers of four GPUs as it says. Its
arrivals are stretched so that the work that comes, over what the cluster can do in that time, is the load. A window of
the table keeps the pattern of the table's arrivals, and the sizes and run times of its jobs.

Which weeks and virtual clusters of the table are for training and which for judging is fixed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import log
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from hocket.model.resources import Node
from hocket.workloads.errors import WorkloadError
from hocket.workloads.mlfs import GPUS, MlfsOptions, as_whole, mlfs_submissions, servers
from hocket.workloads.muri import read_muri
from hocket.workloads.philly import read_philly
from hocket.workloads.selection import Selection
from hocket.workloads.truth import Submission, Workload

WEEK_S = 604800.0
LIMIT = 0.9  # h_r: what of a GPU's time is given away
MEDIAN_S, SIGMA = 3600.0, 1.0  # run times of generated jobs
SHORTEST_S, LONGEST_S = 60.0, 86400.0  # run times of the table's jobs that are taken
GPUS_OF_A_SERVER = 4
WINDOW_JOBS = 140  # generated ones at load 1: about two days of twenty GPUs
TRAINING_WEEKS, OTHER_WEEKS = (6, 7, 8, 9), (12, 13, 14, 15, 16)
TRAINING_CLUSTERS, OTHER_CLUSTERS = ("6214e9", "11cb48", ""), ("6c71a0", "b436b2")
SECOND_WEEKS = (("6214e9", 5), ("11cb48", 10), ("", 11), ("6214e9", 18), ("", 17))  # of none of the weeks above
SECOND_CLUSTERS = (("103959", 12), ("ed69ec", 11), ("0e4a51", 9), ("103959", 16), ("0e4a51", 12))
LONG_QUEUES = 4
LOADS = (0.7, 0.9, 1.1, 1.3, 1.5)  # of windows for judging
Row = tuple[str, str, float, int, float]  # job, owner, when, GPUs, run time


class Window(Struct, frozen=True):
    """A part of a workload, and the cluster it runs on. `trace` is a path, or empty for a generated one."""

    name: str
    seed: int
    jobs: int
    servers: int
    load: float
    trace: str = ""
    kind: str = "philly"  # of the trace
    cluster: str | None = None  # virtual cluster of the table; None for all
    week: int = 0
    beliefs: str = "noisy:0.11"

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The servers."""
        return servers((self.servers, GPUS_OF_A_SERVER))


def training_windows(trace: str, seed: int, generation: int, count: int) -> list[Window]:
    """Windows of one generation. Over the generations one in four is of the table; one in three is longer.

    In longer ones queues grow as they do in days of work. One in twelve has large jobs.
    """
    return [_training_window(trace, f"{seed}/{generation}/{n}", generation * count + n) for n in range(count)]


def _training_window(trace: str, name: str, number: int) -> Window:
    rng = Random(f"learn/windows/{name}")
    if number % 12 == 11:
        jobs, count = rng.randint(35, 45), 16
    elif number % 3 == 2:
        jobs, count = rng.randint(70, 120), rng.randint(3, 5)
    else:
        jobs, count = rng.randint(28, 40), rng.randint(2, 4)
    window = Window(
        name, rng.randrange(1 << 30), jobs, count, round(rng.uniform(0.8, 1.6), 3),
        beliefs="learned" if rng.random() < 0.25 else "noisy:0.11",
    )  # fmt: skip
    if not trace or number % 4 != 1:
        return window
    cluster, week = rng.choice(TRAINING_CLUSTERS), rng.choice(TRAINING_WEEKS)
    return replace(window, trace=trace, cluster=cluster, week=week)


def validation_windows(trace: str, seed: int, count: int) -> list[Window]:
    """Windows of the training's weeks by which a training chooses among its own weights, and β is searched."""
    return training_windows(trace, seed, -1, count)


def long_queue_windows(seed: int) -> list[Window]:
    """Windows with far longer queues than those of the training, which are too slow to train on.

    By these it is decided how far the guard lets the network decide.
    """
    found = []
    for n in range(LONG_QUEUES):
        rng = Random(f"learn/long queues/{seed}/{n}")
        jobs, count, load = rng.randint(300, 1000), rng.randint(3, 8), round(rng.uniform(2.0, 6.0), 3)
        found.append(Window(f"long queue {seed}/{n}", rng.randrange(1 << 30), jobs, count, load))
    return found


def held_out_windows(trace: str = "", other_trace: str = "") -> list[Window]:
    """Windows that no training sees: other seeds, other weeks, other virtual clusters, loads from 0.7 to 1.5.

    Two days of 20 GPUs at load 1 have about 140 generated jobs; of the table 200 in a row are taken, or as many as
    there are: in two weeks of `b436b2` these are 6 and 10.
    """
    found = _generated(900_000)
    if trace:
        for n, (week, load) in enumerate(zip(OTHER_WEEKS, LOADS, strict=True)):
            cluster = TRAINING_CLUSTERS[n % 2]
            found.append(_of_table(f"Philly week {week}", 910_000 + n, load, trace, cluster, week))
        for n, (week, load) in enumerate(zip((7, 8, 9, 12, 14), LOADS, strict=True)):
            cluster = OTHER_CLUSTERS[n % 2]
            found.append(_of_table(f"Philly cluster {cluster}", 920_000 + n, load, trace, cluster, week))
    if other_trace:
        for n, load in enumerate((0.8, 1.2)):
            found.append(Window("another trace: Muri", 930_000 + n, 200, 5, load, other_trace, "muri"))
    return found


def second_held_out_windows(trace: str = "") -> list[Window]:
    """Windows that neither a training nor a choice among trainings sees: the first ones have been looked at before.

    Other seeds, other weeks and other virtual clusters than those of the training and of the first set; all of the
    table have 200 jobs.
    """
    found = _generated(950_000)
    for name, seed, parts in (("week", 960_000, SECOND_WEEKS), ("cluster", 970_000, SECOND_CLUSTERS)):
        for n, ((cluster, week), load) in enumerate(zip(parts, LOADS, strict=True) if trace else ()):
            shown = f"Philly week {week}" if name == "week" else f"Philly cluster {cluster}"
            found.append(_of_table(shown, seed + n, load, trace, cluster, week))
    return found


def _generated(seed: int) -> list[Window]:
    """Two generated windows at each load."""
    return [
        Window(f"generated {'ab'[k]}", seed + 10 * n + k, round(WINDOW_JOBS * load), 5, load)
        for n, load in enumerate(LOADS)
        for k in range(2)
    ]


def _of_table(name: str, seed: int, load: float, trace: str, cluster: str | None, week: int) -> Window:
    return Window(name, seed, 200, 5, load, trace, cluster=cluster, week=week)


def large_windows(trace: str = "") -> list[Window]:
    """Ten times the jobs and the servers of the training."""
    found = [Window("ten times, generated", 940_000 + n, 340, 30, load) for n, load in enumerate((0.9, 1.2))]
    if trace:
        found.append(Window("ten times, Philly week 13", 940_010, 340, 30, 1.2, trace, week=13))
    return found


def workload_of(window: Window, whole: bool = False) -> Workload:
    """The jobs of a window; `whole` for policies that place no tasks."""
    rng = Random(f"{window.seed}/window")
    most = window.servers * GPUS_OF_A_SERVER // 2
    rows = _drawn(window, rng, most) if not window.trace else _cut(window, rng, most)
    found = tuple(mlfs_submissions(rows, MlfsOptions(), window.seed))
    work_gpu_s = sum(_gpu_load(s) * s.truth.run_s for s in found)
    over_s = work_gpu_s / (window.servers * GPUS_OF_A_SERVER * LIMIT * window.load)
    begin_s, length_s = found[0].at_s, max(found[-1].at_s - found[0].at_s, 1e-9)
    found = tuple(replace(s, at_s=round((s.at_s - begin_s) / length_s * over_s, 3)) for s in found)
    if whole:
        found = tuple(as_whole(s) for s in found)
    return Workload(window.name, found, window.nodes)


def _gpu_load(submission: Submission) -> float:
    graph = submission.job.tasks
    assert graph is not None
    return sum(t.demand.gpu_load for t in graph.tasks)


def _drawn(window: Window, rng: Random, most: int) -> list[Row]:
    sizes = [n for n in GPUS if n <= most]
    times = list(accumulate(rng.expovariate(1.0) for _ in range(window.jobs)))
    runs = [round(min(max(rng.lognormvariate(log(MEDIAN_S), SIGMA), 60.0), LONGEST_S), 3) for _ in times]
    return [(f"j{n:04d}", "", time, rng.choice(sizes), runs[n]) for n, time in enumerate(times)]


def _cut(window: Window, rng: Random, most: int) -> list[Row]:
    """As many jobs in a row as the window has, from a random moment of its week."""
    rows = _rows(window.trace, window.kind, window.cluster, window.week)
    fitting = [r for r in rows if r[3] <= most]
    if len(fitting) < 2:
        raise WorkloadError(f"{window.trace}: week {window.week} of '{window.cluster}' must have 2 jobs that fit")
    first = rng.randrange(max(1, len(fitting) - window.jobs + 1))
    return fitting[first : first + window.jobs]


@lru_cache(maxsize=64)
def _rows(trace: str, kind: str, cluster: str | None, week: int) -> Sequence[Row]:
    return [
        r
        for r in _table(trace, kind)
        if (kind != "philly" or int(r[2] // WEEK_S) == week) and (cluster is None or r[1] == cluster)
    ]


@lru_cache(maxsize=2)
def _table(trace: str, kind: str) -> Sequence[Row]:
    selection = Selection(owner_option="vc")
    read = (read_philly(trace, selection) if kind == "philly" else read_muri(trace, Selection())).submissions
    return [
        (s.job.id, s.job.owner, s.at_s, s.truth.reference_size, s.truth.run_s)
        for s in read
        if SHORTEST_S <= s.truth.run_s <= LONGEST_S
    ]
