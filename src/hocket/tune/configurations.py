"""The configurations of a study's trials: as its journal has them, or new ones from its sampler."""

from __future__ import annotations

from hocket.tune.definition import Definition
from hocket.tune.promotion import dropped
from hocket.tune.sampling import Sampler
from hocket.tune.space import Drawn, Space, drawn
from hocket.tune.trials import Trials


class Configurations:
    """Asks the sampler, and tells it of each trial that will never go on."""

    def __init__(self, definition: Definition, space: Space, trials: Trials, sampler: Sampler) -> None:
        self._definition, self._space, self._trials, self._sampler = definition, space, trials, sampler
        self.over: set[int] = set()  # trials that will never go on, as the sampler knows

    def drawn(self, number: int) -> Drawn:
        """A trial's configuration: as it is in the journal, or a new one."""
        trial = self._trials.all.get(number)
        if trial is None:
            return self._sampler.ask(number)
        return drawn(self._space, lambda name, _domain: trial.config[name])

    def tell_sampler(self) -> None:
        """Of trials that will never go on."""
        gone = dropped(self._definition.search, self._trials)
        for number in sorted(gone - self.over):
            trial = self._trials.all[number]
            is_complete = trial.units * self._definition.unit_steps == self._definition.most_steps
            self._sampler.tell(trial, self._trials.scores(trial), is_complete)
        self.over |= gone
