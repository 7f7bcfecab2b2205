"""What every progress reader can do. The sidecar knows no more of them than this."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.agent.progress.epoch_counter import EpochCounter

Report = tuple[int, dict[str, float]]  # an epoch that is over, numbered by how many are done, and all known of it


class Reader:
    """Watches one attempt of a job, and says nothing of it: the readers beside this file say more.

    Reports come in the order in which they were found. Several of one epoch may follow each other, each with all that
    is known of it by then, so the last suffices: `dict(reports)` has it.
    """

    def __init__(self, epochs: EpochCounter | None = None) -> None:
        self._epochs = epochs

    @property
    def first_epoch(self) -> int | None:
        """How the job's own count begins (0 or 1), once that is known: the next attempt's configuration wants it."""
        return self._epochs.first_epoch if self._epochs else None

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
