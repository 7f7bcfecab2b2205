"""Jobs as the controller lists them, and which of them a user means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from hocket.cli.live.client import Client, ControllerAnswer

LIVE = (
    "running",
    "ending",
    "pausing",
    "starting",
    "paused",
    "held",
    "waiting",
)  # in the order in which tables show them
WELL = ("finished", "attained")
FAILED = "failed"
MISSED = "missed"
T = TypeVar("T")


class ListedJob(Struct, frozen=True):
    """A line about a job (`JobRow` in docs/api.md)."""

    id: str
    owner: str = ""
    state: str = ""
    size: int = 0
    gpus: list[str] = []
    submitted_s: float = 0.0
    started_s: float | None = None
    ended_s: float | None = None
    waited_s: float = 0.0
    ran_s: float = 0.0
    epoch: float = 0
    metrics: dict[str, Any] = {}
    until: str | None = ""
    attempts: int = 0
    reason: str = ""
    saved_s: float | None = None
    lost_s: float = 0.0
    lost_epochs: int = 0
    step: int = 0
    lost_steps: int = 0
    kind: str = "training"
    kept: str = ""

    @property
    def is_over(self) -> bool:
        """It has a verdict, whatever that is."""
        return self.state not in LIVE


class _Rows(Struct, frozen=True):
    jobs: list[ListedJob]


def rows(client: Client, *, everything: bool = False, owner: str = "", limit: int = 0) -> list[ListedJob]:
    """The live jobs; with `everything`, those that are over as well."""
    return rows_in(client.get("/v1/jobs", all=everything or "", owner=owner, limit=limit or ""))


def rows_in(answer: ControllerAnswer) -> list[ListedJob]:
    """The jobs in an answer of the controller."""
    import msgspec

    return msgspec.json.decode(answer.body, type=_Rows).jobs


def in_order(found: Iterable[ListedJob]) -> list[ListedJob]:
    """What matters most first: what runs, what is about to, the queue from its head, and what was over last."""
    place = {state: n for n, state in enumerate(LIVE)}

    def key(row: ListedJob) -> tuple[int, float]:  # Those that are alike stay as the controller lists them.
        if row.is_over:
            return len(LIVE), -(row.ended_s or 0.0)
        return place[row.state], row.submitted_s

    return sorted(found, key=key)


def job_path(job_id: str, *more: str) -> str:
    """The address of a job, whatever characters its name has."""
    from urllib.parse import quote

    return "/".join(("/v1/jobs", quote(job_id, safe=""), *more))


def named(client: Client, job_id: str, ask: Callable[[], T]) -> T:
    """Ask something about a job; if there is none of that name, an error that names the nearest."""
    from hocket.cli.live.client import ControllerRefused

    try:
        return ask()
    except ControllerRefused as error:
        if error.status != 404:
            raise
        raise unknown(job_id, [row.id for row in rows(client, everything=True)]) from None


def shown(client: Client, job_id: str) -> dict[str, Any]:
    """All about one job."""
    found = named(client, job_id, lambda: client.get(job_path(job_id))).json()
    return found if isinstance(found, dict) else {}


def row_in(found: dict[str, Any]) -> ListedJob:
    """The line about the job in what `shown` found."""
    import msgspec

    return msgspec.convert(found, ListedJob, strict=False)


def unknown(job_id: str, known: Sequence[str]) -> Exception:
    """There is no such job; perhaps another was meant."""
    from difflib import get_close_matches

    from hocket.cli.live.client import ControllerRefused

    near = get_close_matches(job_id[:100], known, n=1, cutoff=0.6)
    hint = f"; did you mean '{near[0]}'?" if near else "; see `hocket jobs --all`"
    return ControllerRefused(404, f"there is no job '{job_id}'{hint}")


def send_job_request(
    client: Client, request: str, names: Sequence[str], *, every: bool = False, owner: str = ""
) -> list[dict[str, str]]:
    """Pause, resume or stop jobs by names and patterns, or all; what the controller answers for each."""
    from hocket.cli.live.client import login

    body = {"request": request, "jobs": list(names), "all": every, "owner": owner, "by": login()}
    found: list[dict[str, str]] = client.post("/v1/job-requests", body).json()["jobs"]
    return found
