"""What the progress reader finds, as events: never more than so many a second, and whatever is wrong with a reader."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hocket.agent.progress.reader import Reader, Report, StepReport
    from hocket.agent.sidecar.events_writer import Events
    from hocket.agent.sidecar.spec import Spec

_POLL_S = 1.0  # between looks at files
_WITHOUT_FILES = ("stdout", "report")
_MOST_PER_S = 100  # A job that prints faster has its last epochs reported, not all.
_STEPS_AT_ONCE = 20  # Steps are many: after the first, the last of each second is reported, with what others had said.


class Reporting:
    """One attempt's progress."""

    def __init__(self, folder: str, spec: Spec, events: Events, now_s: float) -> None:
        self._events = events
        self._reader: Reader | None = None
        self._channel = -1  # to wait at; the reader reads for itself
        self._polls = False
        self._pending: dict[int, dict[str, float]] = {}
        self._second, self._said = now_s, 0
        self._step: tuple[int, dict[str, float]] | None = None  # to be said
        self._steps_left, self._steps_s = float(_STEPS_AT_ONCE), now_s  # that may be said at once, as of then
        self.last_s = now_s  # when progress came last
        self.next_s: float | None = None  # when to poll
        self.first_epoch: int | None = None
        if spec.progress is not None:
            self._open(folder, spec, spec.progress, now_s)

    def _open(self, folder: str, spec: Spec, config: dict[str, object], now_s: float) -> None:
        channel = os.path.join(folder, "report")
        try:
            from hocket.agent import progress  # Only jobs that report pay for it.

            checkpoints = spec.checkpoint_dir or ""
            self._reader = progress.open_reader(config, spec.cwd, checkpoints, channel, spec.counts_steps)
            self._channel = os.open(channel, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except Exception as error:
            self._give_up(error)
            return
        self._polls = config.get("kind", "stdout") not in _WITHOUT_FILES
        self.next_s = now_s + _POLL_S if self._polls else None

    @property
    def is_on(self) -> bool:
        """Whether progress is looked for."""
        return self._reader is not None

    @property
    def reader(self) -> Reader | None:
        """What looks for it."""
        return self._reader

    def env(self) -> dict[str, str]:
        """What the job's environment needs for it."""
        try:
            return {} if self._reader is None else self._reader.env()
        except Exception as error:
            self._give_up(error)
            return {}

    def sources(self) -> dict[int, Callable[[float], None]]:
        """What to do, with the time, when this can be read."""
        return {} if self._channel < 0 else {self._channel: self.poll}

    def feed(self, data: bytes, now_s: float) -> None:
        """The job printed this."""
        self._take(self._found(lambda reader: reader.feed(data)), now_s)

    def poll(self, now_s: float) -> None:
        """Look at whatever else reports."""
        self._take(self._found(lambda reader: reader.poll()), now_s)
        self.next_s = now_s + _POLL_S if self._pending or self._step or (self._polls and self.is_on) else None

    def close(self, finished: bool, now_s: float) -> None:
        """Say all that is left to say."""
        self.poll(now_s)
        self._second -= 1.0  # What comes last is said in any case.
        self._steps_left = float(_STEPS_AT_ONCE)
        self._take(self._found(lambda reader: reader.close(finished)), now_s)
        if self._reader is not None:
            self.first_epoch = self._reader.first_epoch
        self._hang_up()

    def _found(self, look: Callable[[Reader], list[Report]]) -> list[Report]:
        try:
            return [] if self._reader is None else look(self._reader)
        except Exception as error:
            self._give_up(error)
            return []

    def _take(self, found: list[Report], now_s: float) -> None:
        self._steps_left = min(float(_STEPS_AT_ONCE), self._steps_left + now_s - self._steps_s)
        self._steps_s = now_s
        for report in found:
            self.last_s = now_s
            if not isinstance(report, tuple):
                self._take_step(report)
                continue
            epoch, metrics = report
            self._pending.pop(epoch, None)  # The last place for the last word: a job may go back to an epoch.
            self._pending[epoch] = metrics
        if now_s - self._second >= 1.0:
            self._second, self._said = now_s, 0
        if self._step is not None and self._steps_left >= 1:
            self._say_step(*self._step)
        if self._pending:
            self._say(_MOST_PER_S - self._said)
        if (self._pending or self._step is not None) and self.next_s is None:
            self.next_s = now_s + _POLL_S

    def _take_step(self, report: StepReport) -> None:
        before = self._step[1] if self._step is not None else {}
        self._step = report.step, {**before, **report.metrics}
        if self._steps_left >= 2:  # One is kept for the last.
            self._say_step(*self._step)

    def _say_step(self, step: int, metrics: dict[str, float]) -> None:
        self._events.add("progress", step=step, metrics=metrics)
        self._step = None
        self._steps_left -= 1

    def _say(self, most: int) -> None:
        while len(self._pending) > _MOST_PER_S:
            del self._pending[next(iter(self._pending))]
        # A job that counts from 0 is known by that, and the next attempt must know it too.
        shown = {"first_epoch": 0} if self._reader is not None and self._reader.first_epoch == 0 else {}
        for epoch in list(self._pending)[:most]:
            self._events.add("progress", epoch=epoch, metrics=self._pending.pop(epoch), **shown)
            self._said += 1

    def _give_up(self, error: Exception) -> None:
        self._hang_up()
        self._events.add("warning", about=f"progress is no longer read: {type(error).__name__}: {error}")

    def _hang_up(self) -> None:
        self._reader = self.next_s = None
        if self._channel >= 0:
            os.close(self._channel)
            self._channel = -1
