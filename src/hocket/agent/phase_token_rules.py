"""Which job gets a phase token next: the rules, without sockets and clocks.

A host has one CPU token, one primary and one secondary network token. COMMs are served in the order in which they
asked. When the primary COMM ends, the secondary one becomes the primary, and the next that waits the secondary. A
secondary COMM that is short beside the primary need not give way: that costs the primary little, and a job that mostly
computes would wait for long phases of others twice in each iteration, while the CPU idles.

Of the COMPs that wait, the one goes first that has waited longest beside what it usually takes: a short COMP, of a job
that mostly communicates, need not wait for two long ones, and a long one does not wait for ever.

A job that holds a token for much longer than its phases usually take hangs, or is stopped: it loses the token, and what
it says of it later is ignored. The secondary COMM is not looked at: it has to wait for the primary, and when that ends
or loses its token, it is the primary itself.
"""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median

from msgspec import Struct

from hocket.model.phase_tokens import Phase, PhaseToken, TokenGranted, TokenLost, TokenPromoted
from hocket.model.phases import SHORT_COMM

FLOOR_S = 30.0  # No token is lost sooner.
_TIMES_LONGER = 10.0  # than the median of the job's last phases
_LAST_PHASES = 9
_LEAST_S = 1e-6

Notice = tuple[str, TokenGranted | TokenPromoted | TokenLost]  # tenant → what it is told


class _Held(Struct):
    """A token that a tenant has."""

    tenant: str
    number: int
    since_s: float  # for a COMM, since when it need not give way
    gives_way: bool = False


class _Waiting(Struct, frozen=True):
    """A tenant that waits for a token."""

    tenant: str
    number: int
    since_s: float


class PhaseTokenRules:
    """The tokens of one host. A tenant is a job; every method gives what tenants are to be told, in order."""

    def __init__(self, floor_s: float = FLOOR_S) -> None:
        self._floor_s = floor_s
        self._held: dict[PhaseToken, _Held] = {}  # Invariant: there is no secondary without a primary.
        self._waiting: dict[Phase, list[_Waiting]] = {phase: [] for phase in Phase}  # in the order in which they asked
        self._lasted_s: dict[tuple[str, Phase], deque[float]] = {}  # of phases that ended
        self._lost: dict[tuple[str, int], tuple[Phase, float]] = {}  # not released yet → since when it was held
        self._shared_s: dict[str, float] = {}  # tenant → for how long its COMMs have shared the link, not taken yet
        self._noted_s = 0.0  # until when

    def holder(self, token: PhaseToken) -> tuple[str, int] | None:
        """The tenant that has a token, and the number under which it asked for it."""
        held = self._held.get(token)
        return None if held is None else (held.tenant, held.number)

    def waiting(self, phase: Phase) -> list[tuple[str, int]]:
        """The tenants that wait, in the order in which they asked."""
        return [(each.tenant, each.number) for each in self._waiting[phase]]

    def ask(self, tenant: str, number: int, phase: Phase, now_s: float) -> list[Notice]:
        """A tenant wants a token. Raises ValueError if it has or awaits one for this phase already."""
        if any(each.tenant == tenant for each in self._waiting[phase]) or any(
            held.tenant == tenant and _phase(token) is phase for token, held in self._held.items()
        ):
            raise ValueError(f"job '{tenant}' asks for a {phase} token, and has or awaits one already")
        self._note_sharing(now_s)
        self._waiting[phase].append(_Waiting(tenant, number, now_s))
        return self._serve(now_s)

    def release(self, tenant: str, number: int, now_s: float) -> list[Notice]:
        """A tenant's phase has ended; nothing comes of it if it has lost the token."""
        self._note_sharing(now_s)
        if (lost := self._lost.pop((tenant, number), None)) is not None:
            phase, since_s = lost
            self._learn(tenant, phase, now_s - since_s)
            return []
        for token, held in self._held.items():
            if (held.tenant, held.number) == (tenant, number):
                if not held.gives_way:  # Else it has waited in between.
                    self._learn(tenant, _phase(token), now_s - held.since_s)
                return self._free(token, now_s)
        for waiting in self._waiting.values():  # It was asked for, and is not wanted any more.
            waiting[:] = [each for each in waiting if (each.tenant, each.number) != (tenant, number)]
        return []

    def leave(self, tenant: str, now_s: float) -> list[Notice]:
        """A tenant is gone, with all that it had and waited for."""
        self._note_sharing(now_s)
        self._shared_s.pop(tenant, None)
        for phase in Phase:
            self._waiting[phase] = [each for each in self._waiting[phase] if each.tenant != tenant]
            self._lasted_s.pop((tenant, phase), None)
        for key in [key for key in self._lost if key[0] == tenant]:
            del self._lost[key]
        told: list[Notice] = []
        for token in PhaseToken:
            if (held := self._held.get(token)) is not None and held.tenant == tenant:
                told += self._free(token, now_s)
        return told

    def expire(self, now_s: float) -> list[Notice]:
        """Take tokens away that were held for too long."""
        self._note_sharing(now_s)
        told: list[Notice] = []
        for token in _EXPIRING:
            if (held := self._held.get(token)) is not None and now_s >= self._expires_s(token, held):
                self._lost[held.tenant, held.number] = _phase(token), held.since_s
                told += [(held.tenant, TokenLost(held.number)), *self._free(token, now_s)]
        return told

    def take_shared_s(self, tenant: str, now_s: float) -> float:
        """For how long COMMs of a tenant had half of the link only since this was asked last: none gave way."""
        self._note_sharing(now_s)
        return self._shared_s.pop(tenant, 0.0)

    def next_expiry_s(self) -> float | None:
        """When to call `expire` next, unless something changes before; None if no tenant holds a token."""
        times = [self._expires_s(token, held) for token, held in self._held.items() if token in _EXPIRING]
        return min(times, default=None)

    def limit_s(self, tenant: str, phase: Phase) -> float:
        """How long a tenant may hold a token."""
        lasted_s = self._lasted_s.get((tenant, phase))
        return max(self._floor_s, _TIMES_LONGER * median(lasted_s)) if lasted_s else self._floor_s

    def _expires_s(self, token: PhaseToken, held: _Held) -> float:
        return held.since_s + self.limit_s(held.tenant, _phase(token))

    def _learn(self, tenant: str, phase: Phase, lasted_s: float) -> None:
        self._lasted_s.setdefault((tenant, phase), deque(maxlen=_LAST_PHASES)).append(lasted_s)

    def _note_sharing(self, now_s: float) -> None:
        second = self._held.get(PhaseToken.SECONDARY)
        if second is not None and not second.gives_way:
            for tenant in (second.tenant, self._held[PhaseToken.PRIMARY].tenant):
                self._shared_s[tenant] = self._shared_s.get(tenant, 0.0) + now_s - self._noted_s
        self._noted_s = now_s

    def _free(self, token: PhaseToken, now_s: float) -> list[Notice]:
        del self._held[token]
        told: list[Notice] = []
        if token is PhaseToken.PRIMARY and (second := self._held.pop(PhaseToken.SECONDARY, None)) is not None:
            if second.gives_way:
                second.since_s, second.gives_way = now_s, False
            self._held[token] = second
            told.append((second.tenant, TokenPromoted(second.number)))
        return told + self._serve(now_s)

    def _serve(self, now_s: float) -> list[Notice]:
        """Give what is free to those that wait."""
        told: list[Notice] = []
        for token in PhaseToken:  # The primary before the secondary.
            waiting = self._waiting[_phase(token)]
            if waiting and token not in self._held:
                first = waiting[0] if _phase(token) is Phase.COMM else self._first_comp(waiting, now_s)
                waiting.remove(first)
                is_short = token is PhaseToken.SECONDARY and self._is_short(first.tenant)
                gives_way = token is PhaseToken.SECONDARY and not is_short
                self._held[token] = _Held(first.tenant, first.number, now_s, gives_way)
                told.append((first.tenant, TokenGranted(first.number, token, is_short)))
        return told

    def _first_comp(self, waiting: list[_Waiting], now_s: float) -> _Waiting:
        """The one that has waited longest beside what it usually takes; one that was never seen before all others."""

        def urgency(each: _Waiting) -> float:
            lasted_s = self._lasted_s.get((each.tenant, Phase.COMP))
            return (now_s - each.since_s) / max(_LEAST_S, median(lasted_s)) if lasted_s else inf

        return max(waiting, key=urgency)

    def _is_short(self, tenant: str) -> bool:
        """Does its COMM usually take little of the time that the primary one's does?"""
        own = self._lasted_s.get((tenant, Phase.COMM))
        primary = self._lasted_s.get((self._held[PhaseToken.PRIMARY].tenant, Phase.COMM))
        return own is not None and primary is not None and median(own) <= SHORT_COMM * median(primary)


_EXPIRING = (PhaseToken.CPU, PhaseToken.PRIMARY)


def _phase(token: PhaseToken) -> Phase:
    return Phase.COMP if token is PhaseToken.CPU else Phase.COMM
