"""The scenarios in which the simulated and the live executor must agree, and how one is run live."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.live.agent import LiveAgent
from tests.live.agreement import Work
from tests.live.controller import LiveController, awaited

_SCRIPT = Path(__file__).with_name("paced_job.py")
_EPOCH_S = 0.5


class Arrival(NamedTuple):
    """A job and when it comes."""

    at_s: float
    job: str
    work: Work
    sizes: tuple[int, ...] = (1,)


class Loss(NamedTuple):
    """Another node's power is cut, and comes back."""

    gpus: int
    at_s: float
    back_s: float | None  # None: never
    lease_s: float = 2.0


class LosableNode(Protocol):
    """The node whose power is cut."""

    def cut(self) -> object:
        """All that runs there is killed."""

    def start(self) -> object:
        """It is there again."""


class Scenario(NamedTuple):
    """What is run."""

    name: str
    options: tuple[str, ...]  # of `hocket up`
    arrivals: tuple[Arrival, ...]
    loss: Loss | None = None


def run_live(scenario: Scenario, root: Path) -> Path:
    """Run it to its end; the journal."""
    lease = () if scenario.loss is None else ("--lease", str(scenario.loss.lease_s))
    with LiveController(root, "--name", "first", *scenario.options, *lease) as controller:
        controller.begin()
        with _second_node(controller, scenario.loss) as second:
            play(scenario, controller, second)
        controller.down()
    return controller.home / "journal.db"


def play(scenario: Scenario, controller: LiveController, other: LosableNode | None) -> None:
    """Everything at its time, until all jobs are over."""
    _go_through(scenario, controller, other)
    awaited(lambda: all(row["ended_s"] is not None for row in controller.jobs().values()), "all over", every_s=0.5)


def _go_through(scenario: Scenario, controller: LiveController, other: LosableNode | None) -> None:
    steps: dict[float, list[Any]] = {}
    for arrival in scenario.arrivals:
        steps.setdefault(arrival.at_s, []).append(arrival)
    if scenario.loss is not None and other is not None:
        steps.setdefault(scenario.loss.at_s, []).append(other.cut)
        if scenario.loss.back_s is not None:
            steps.setdefault(scenario.loss.back_s, []).append(other.start)
    zero_s = time.monotonic()
    for at_s, these in sorted(steps.items()):
        time.sleep(max(zero_s + at_s - time.monotonic(), 0.0))
        jobs = [_spec(step, controller.root) for step in these if isinstance(step, Arrival)]
        if jobs:
            controller.call("POST", "/v1/jobs", {"jobs": jobs})
        for step in these:
            if not isinstance(step, Arrival):
                step()


def _spec(arrival: Arrival, root: Path) -> dict[str, Any]:
    work = arrival.work
    # A folder that all nodes see, as clusters have one for checkpoints.
    words = [sys.executable, "-I", "-S", str(_SCRIPT), str(root / f"{arrival.job}.checkpoint")]
    words += [str(work.epochs), str(_EPOCH_S), *(["--saves"] if work.saves else [])]
    words += [] if work.breaks_at is None else ["--breaks-at", str(work.breaks_at)]
    return {"id": arrival.job, "command": words, "sizes": arrival.sizes, "preempt": "always"}  # It saves when asked.


@contextmanager
def _second_node(controller: LiveController, loss: Loss | None) -> Iterator[LiveAgent | None]:
    if loss is None:
        yield None
        return
    with LiveAgent(controller, "second", "--gpus", str(loss.gpus)) as second:
        second.begin()
        yield second


def arrivals(*rows: tuple[Any, ...]) -> tuple[Arrival, ...]:
    """Rows of (when, job, epochs, sizes) and what else there is to its work."""
    return tuple(Arrival(at_s, job, Work(epochs, *more), sizes) for at_s, job, epochs, sizes, *more in rows)


_ELASTIC = (1, 2, 4)

# Found by simulation: arrivals, ends and faults are some 2 s apart, and other figures change no sequence.
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "preemption",
            ("--gpus", "2", "--policy", "las", "--param", "levels_gpu_s=[6]"),
            arrivals(
                (0.0, "a", 17, (1,)),
                (2.0, "b", 40, (1,)),
                (4.0, "c", 25, (2,)),
                (6.0, "d", 24, (1,)),
                (10.0, "e", 25, (1,)),
                (13.0, "f", 20, (2,)),
                (15.0, "g", 25, (2,)),
                (18.0, "h", 17, (1,)),
            ),
        ),
        Scenario(
            "resize",
            ("--gpus", "4", "--policy", "fair", "--param", "quantum_s=3"),
            arrivals(
                (0.0, "a", 60, (1, 2)),
                (5.0, "b", 35, _ELASTIC),
                (7.0, "c", 40, _ELASTIC),
                (10.5, "d", 46, _ELASTIC),
                (15.5, "e", 43, _ELASTIC),
                (19.5, "f", 36, _ELASTIC),
                (21.5, "g", 16, _ELASTIC),
                (25.5, "h", 27, _ELASTIC),
            ),
        ),
        Scenario(
            "crash",
            ("--gpus", "3", "--policy", "fifo"),
            arrivals(
                (0.0, "a", 30, (1,), True),
                (2.0, "b", 17, (1,), True),
                (6.0, "c", 37, (1,), True),
                (8.0, "d", 20, (1,), True),
                (13.0, "e", 25, (2,), True),
                (17.0, "f", 24, (1,), True, 14.5),
                (19.0, "g", 14, (1,), True, 4.5),
                (22.5, "h", 26, (1,), True),
            ),
        ),
        Scenario(
            "node loss",
            ("--gpus", "2", "--policy", "las", "--param", "levels_gpu_s=[8]"),
            arrivals(
                (0.0, "a", 10, (1,)),
                (3.0, "b", 32, (1,)),
                (7.0, "c", 23, (1,)),
                (9.0, "d", 28, (1,)),
                (12.0, "e", 22, (1,)),
                (18.0, "f", 17, (1,)),
                (20.0, "g", 23, (1,)),
                (22.5, "h", 19, (1,)),
            ),
            Loss(gpus=2, at_s=13.0, back_s=24.0),  # It is noticed after 2 to 3 s, in which nothing else happens.
        ),
        Scenario(
            "long queue",
            ("--gpus", "2", "--policy", "fifo"),
            arrivals(
                *((0.0, f"q{n:02}", epochs, (1,)) for n, epochs in enumerate((10, 5, 9, 16))),
                (0.0, "q04", 15, (2,)),
                *((0.0, f"q{n:02}", epochs, (1,)) for n, epochs in enumerate((7, 18, 5, 10), 5)),
                *((0.0, f"q{n:02}", epochs, (2,)) for n, epochs in enumerate((10, 12, 14), 9)),
            ),
        ),
    )
}
