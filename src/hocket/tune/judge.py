"""The user's evaluation, watched: a study whose models cannot be told apart ends at the first report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hocket.tune.trials import Trials

UNNAMED = "value"  # the metric where nobody has named one, and evaluate gives one number


class Judge:
    """Calls `evaluate`; stops the study if it does not give the metric, unless some trial has had it before."""

    def __init__(self, evaluate: Callable[..., Any], trials: Trials) -> None:
        self._evaluate, self._trials = evaluate, trials
        self.stop: Callable[[], None] = lambda: None
        self.fault = ""  # why no trial can have a result

    def __call__(self, module: Any, config: Any) -> Any:
        """What `evaluate` gives, as it is."""
        found = self._evaluate(module, config)
        metric = self._trials.metric
        if isinstance(found, Mapping) and metric not in found and metric != "loss" and self._trials.best is None:
            self.fault = _fault(metric, [str(name) for name in found])
            self.stop()
        return found


def _fault(metric: str, names: list[str]) -> str:
    given = f"evaluate gives {', '.join(names) or 'nothing'}"
    if metric == UNNAMED and names:
        return f"{given}: say by metric, or --metric, which of them counts"
    return f"{given}, and not '{metric}', which is the metric"
