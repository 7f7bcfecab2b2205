"""What every progress reader can do. The sidecar knows no more of them than this."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.progress.epoch_counter import EpochCounter


class StepReport:
    """What a job that names no epochs said at a step; of one that does, that it is at this step, without values."""

    __slots__ = ("metrics", "step")

    def __init__(self, step: int, metrics: dict[str, float]) -> None:
        self.step = step
        self.metrics = metrics  # all known of the step; never edited

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepReport) and (self.step, self.metrics) == (other.step, other.metrics)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StepReport({self.step}, {self.metrics})"


EpochReport = tuple[int, dict[str, float]]  # an epoch that is over, numbered by how many are done, and all known of it
Report = EpochReport | StepReport


class Reader:
    """Watches one attempt of a job, and says nothing of it: the readers beside this file say more.

    Reports come in the order in which they were found. Several of one epoch may follow each other, each with all that
    is known of it by then, so the last suffices.
    """

    def __init__(self, epochs: EpochCounter | None = None) -> None:
        self._epochs = epochs

    @property
    def first_epoch(self) -> int | None:
        """How the job's own count begins (0 or 1), once that is known: the next attempt's configuration wants it."""
        return self._epochs.first_epoch if self._epochs else None

    @property
    def is_counted(self) -> bool:
        """Whether an epoch or a step was named so far."""
        return self._epochs is not None and (self._epochs.current is not None or self._epochs.step is not None)

    @property
    def names(self) -> set[str]:
        """The metrics that were read so far, also within an epoch that is not over."""
        return self._epochs.names if self._epochs else set()

    def feed(self, data: bytes) -> list[Report]:  # noqa: ARG002
        """What these next bytes of the job's output report."""
        return []

    def poll(self) -> list[Report]:
        """What files and the report channel have brought since the last time."""
        return []

    def env(self) -> dict[str, str]:
        """What the job's environment needs beside its own."""
        return {}

    def close(self, finished: bool = False) -> list[Report]:
        """Let go of everything, and say what was still to come; of a job that `finished`, the last epoch too."""
        reports = self._rest()
        return reports + self._epochs.finish() if finished and self._epochs else reports

    def _rest(self) -> list[Report]:
        """What was still to come."""
        return []
