"""What the simulator plays under an agent's rules is what the agent's own rules do, in a world without noise."""

import random
from dataclasses import dataclass, field

import pytest

from hocket.agent.phase_token_rules import PhaseTokenRules
from hocket.executors.simulated.phases import Phases, interleave
from hocket.model.phase_tokens import Phase, PhaseToken, TokenGranted, TokenPromoted
from hocket.model.phases import SHORT_COMM

HERE = (0,)
ITERATIONS = 200
_WARM_UP = 20


@dataclass
class Tenant:
    """A job on one host that has nothing but its phases."""

    lasts_s: tuple[float, float, float]
    phase: int = 0
    left_s: float = 0.0
    token: PhaseToken | None = None
    shares: bool = False  # the link, as a short COMM
    number: int = 0
    ends_s: list[float] = field(default_factory=list)


def played_by_rules(phases: list[tuple[float, float]]) -> list[float]:
    """Iteration times of jobs that take turns by `PhaseTokenRules`; the link has no gaps."""
    rules, now_s = PhaseTokenRules(), 0.0
    tenants = {str(i): Tenant((comm_s / 2, comp_s, comm_s / 2)) for i, (comp_s, comm_s) in enumerate(phases)}

    def tell(told) -> None:
        for name, message in told:
            match message:
                case TokenGranted(token=token, is_short=is_short):
                    tenants[name].token, tenants[name].shares = token, is_short
                case TokenPromoted():
                    tenants[name].token, tenants[name].shares = PhaseToken.PRIMARY, False

    def ask(name: str) -> None:
        tenant = tenants[name]
        tenant.number += 1
        tenant.left_s = tenant.lasts_s[tenant.phase]
        tell(rules.ask(name, tenant.number, Phase.COMP if tenant.phase == 1 else Phase.COMM, now_s))

    def speed(tenant: Tenant) -> float:
        if tenant.token is PhaseToken.PRIMARY:
            return 0.5 if any(t.shares for t in tenants.values()) else 1.0
        return {None: 0.0, PhaseToken.CPU: 1.0, PhaseToken.SECONDARY: 0.5 * tenant.shares}[tenant.token]

    for name in tenants:
        ask(name)
    while min(len(t.ends_s) for t in tenants.values()) < ITERATIONS:
        speeds = {name: speed(tenant) for name, tenant in tenants.items()}
        step_s = min(tenants[name].left_s / v for name, v in speeds.items() if v)
        now_s += step_s
        for name, v in speeds.items():
            tenants[name].left_s -= step_s * v
        for name in [name for name, v in speeds.items() if v and tenants[name].left_s <= 1e-9]:
            tenant = tenants[name]
            tenant.token, tenant.shares = None, False
            tell(rules.release(name, tenant.number, now_s))
            tenant.phase = (tenant.phase + 1) % 3
            if tenant.phase == 0:
                tenant.ends_s.append(now_s)
            ask(name)
    return [(t.ends_s[-1] - t.ends_s[_WARM_UP]) / (len(t.ends_s) - 1 - _WARM_UP) for t in tenants.values()]


def drawn(seed: int) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    return [(draw.lognormvariate(-0.7, 0.9), draw.lognormvariate(-0.7, 0.9)) for _ in range(draw.randint(2, 4))]


@pytest.mark.parametrize("seed", range(30))
def test_iterations_are_as_long_in_the_simulator_as_under_the_agents_rules(seed):
    phases = drawn(seed)
    tenants = tuple(Phases(comp_s, comm_s, HERE, short=SHORT_COMM) for comp_s, comm_s in phases)
    simulated, by_rules = interleave(tenants, busy=1.0, iterations=ITERATIONS), played_by_rules(phases)
    assert simulated.round_s == pytest.approx(max(by_rules), rel=0.05)
    if not any(0.3 < one / other < 0.4 for _, one in phases for _, other in phases):  # There the first COMMs decide.
        assert simulated.iteration_s == pytest.approx(by_rules, rel=0.05)
