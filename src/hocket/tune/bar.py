"""A bar that shows how far a study is, and the best so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from hocket.tune.study import Study

_EVERY_S = 0.2


@contextmanager
def shown(study: Study, progress: Progress | None = None) -> Iterator[Callable[[int], None]]:
    """Within, the bar is there; give what comes of it to `Study.run`."""
    if progress is None:
        from rich.progress import Progress

        progress = Progress(transient=True)
    name = study.outcome.definition.name
    task = progress.add_task(name, total=study.total_steps, completed=study.steps)
    made, shown_s = 0, 0.0

    def stepped(steps: int) -> None:
        nonlocal made, shown_s
        made += steps
        if (now_s := monotonic()) - shown_s >= _EVERY_S:
            progress.update(task, advance=made, description=f"{name}{_best(study)}")
            made, shown_s = 0, now_s

    with progress:
        yield stepped


def _best(study: Study) -> str:
    best, result = study.best, study.best_result
    if best is None or result is None:
        return ""
    metric = study.outcome.definition.metric
    return f", best {metric} {result.metrics[metric]:.4g} (trial {best.number})"
