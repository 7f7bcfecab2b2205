"""Orders to begin runs whose code is not on the node yet: they wait, while other orders are carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hocket.agent.node.job_code import CodeNeeds, JobCode, needs_of
from hocket.agent.protocol import PrepareRun, RunKey, StartRun

BeginOrder = PrepareRun | StartRun


class OrdersAwaitingCode:
    """Changed under the lock of `Runs` only. If the agent is killed, the controller gives the orders again."""

    def __init__(self, code: JobCode | None, made: Callable[[CodeNeeds, Exception | None], None]) -> None:
        self._code, self._made = code, made
        self._orders: dict[RunKey, BeginOrder] = {}

    def must_wait(self, order: BeginOrder) -> bool:
        """Keep the order if what it needs has to be made first. Raises CodeError."""
        needs = needs_of(order.spec)
        if needs is None or self._code is None or self._code.is_there(needs):
            self._orders.pop(order.run, None)
            return False
        self._orders[order.run] = order
        self._code.make(needs, self._made, lambda: any(True for _ in self._of(needs)))
        return True

    def take(self, needs: CodeNeeds) -> list[BeginOrder]:
        """The orders that waited for this."""
        found = list(self._of(needs))
        self.drop(order.run for order in found)
        return found

    def waiting(self) -> set[RunKey]:
        """The runs that are to begin."""
        return set(self._orders)

    def drop(self, keys: Iterable[RunKey]) -> None:
        """These runs are not wanted any more."""
        for key in list(keys):
            self._orders.pop(key, None)

    def _of(self, needs: CodeNeeds) -> Iterable[BeginOrder]:
        return [order for order in list(self._orders.values()) if needs_of(order.spec) == needs]
