"""How far the policy's own model is from what real groups did: the time of a round, foreseen and measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

from msgspec import Struct

from benchmarks.machine import table
from benchmarks.paramserver.groups.recorded_groups import PlayedTenant, RecordedGroup
from hocket.executors.simulated.phases import foresee
from hocket.model.partition import Sharing
from hocket.model.phases import SHORT_COMM, Profile, predict

_GOALS = (0.05, 0.10)  # mean, 95th percentile


class RoundErrors(Struct, frozen=True):
    """Foreseen over measured round, less 1, of each group of two jobs and more that took turns."""

    before: list[float]  # by what was believed when the group was formed
    meanwhile: list[float]  # by the phases as they were while it lasted: what the model lacks, and not the profiles
    equation_1: list[float]  # the same by equation 1

    def lines(self) -> list[str]:
        """As a table."""
        rows = [
            (name, _share(_mean_of(errors)), _share(_p95_of(errors)), _signed(errors), f"{len(errors)}")
            for name, errors in (
                ("believed before", self.before), ("measured meanwhile", self.meanwhile),
                ("measured meanwhile, equation 1", self.equation_1),
            )
        ]  # fmt: skip
        said = f"PREDICTED ROUNDS of groups (goal: mean {_GOALS[0]:.0%}, 95th percentile {_GOALS[1]:.0%})"
        return [said, *table(("error by phases as", "mean", "p95", "with its sign", "groups"), rows)]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            name: {"mean": _mean_of(errors), "p95": _p95_of(errors), "groups": len(errors)}
            for name, errors in (
                ("before", self.before), ("meanwhile", self.meanwhile), ("equation_1", self.equation_1),
            )
        }  # fmt: skip


def round_errors(groups: Sequence[RecordedGroup]) -> RoundErrors:
    """Of all groups whose jobs took turns."""
    before, meanwhile, equation_1 = [], [], []
    for group in groups:
        if group.sharing is not Sharing.INTERLEAVED or len(group.tenants) < 2:
            continue
        machines = len(group.nodes)
        now = [profile_meanwhile(tenant) for tenant in group.tenants]
        meanwhile.append(foresee(now, machines, SHORT_COMM).round_s / group.round_s - 1)
        equation_1.append(predict(now, machines).iteration_s.mean / group.round_s - 1)
        then = [tenant.before for tenant in group.tenants if tenant.before is not None]
        if len(then) == len(group.tenants):
            before.append(foresee(then, machines, SHORT_COMM).round_s / group.round_s - 1)
    return RoundErrors(before, meanwhile, equation_1)


def profile_meanwhile(tenant: PlayedTenant) -> Profile:
    """The phases of a job as they were while its group lasted."""
    machines = len(tenant.nodes)
    barrier = max(0.0, tenant.slowest - 1) / log(machines) if machines > 1 else 0.0
    return Profile(
        tenant.comp_s * machines, tenant.comm_s, tenant.comp_sd * machines, tenant.comm_sd, barrier, tenant.link,
        tenant.meeting_s,
    )  # fmt: skip


def _mean_of(errors: Sequence[float]) -> float | None:
    return sum(map(abs, errors)) / len(errors) if errors else None


def _p95_of(errors: Sequence[float]) -> float | None:
    return sorted(map(abs, errors))[min(len(errors) - 1, int(0.95 * len(errors)))] if errors else None


def _signed(errors: Sequence[float]) -> str:
    """Below 0: real rounds are longer."""
    return f"{sum(errors) / len(errors):+.1%}" if errors else "–"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
