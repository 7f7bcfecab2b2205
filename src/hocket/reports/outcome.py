"""What one run shows of itself, small enough to be sent from one process to another."""

from __future__ import annotations

from msgspec import Struct

from hocket.reports.account import Account
from hocket.reports.series import Series, jct_curve, series
from hocket.reports.summary import Summary


class Outcome(Struct, frozen=True):
    """A run in a comparison."""

    label: str  # the policy, with its parameters where they were given
    summary: Summary
    jct_curve: tuple[tuple[float, float], ...]  # (seconds, share of jobs)
    series: Series
    stuck: tuple[str, ...] = ()  # why the first unfinished jobs do not go on
    refused: str = ""  # why the first job was that was not let in


def outcome(label: str, account: Account, summary: Summary, stuck: tuple[str, ...] = ()) -> Outcome:
    """The run behind an account."""
    refused = next((reason or job_id for job_id, reason in account.refusals), "")
    return Outcome(label, summary, jct_curve(account), series(account), stuck, refused)
