"""A PULL or PUSH begins on all hosts of a job at once, by one network token.

If each host waited for a token of its own, they would begin at different times, and what one job's hosts send would
meet what another's receive.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hocket.runtimes.paramserver.host_group import HostGroup
from hocket.runtimes.paramserver.phase_turns import CommOrder, CommTurn, PhaseTurns, TimedTurn


@contextmanager
def comm_of_all_hosts(group: HostGroup, turns: PhaseTurns, point: str) -> Iterator[TimedTurn]:
    """Begin when all hosts have come to a point and host 0 has its token."""
    with ExitStack() as held:
        taken: list[CommTurn] = []

        def take() -> CommOrder:
            turn = held.enter_context(turns.comm())
            taken.append(turn)
            return turn.order

        order = group.exchange(point, None, None if group.host else take)[0]
        yield TimedTurn(taken[0] if taken else held.enter_context(turns.follow_comm(CommOrder(*order))))
