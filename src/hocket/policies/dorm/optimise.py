"""The best allocation that can be found, and a proven bound on what any could be worth.

Small questions are answered exactly by P2 as printed. Others by counts, which are then placed. Where pooled capacity
promised room in vain, servers are told apart, all of them or those that matter, and counts are placed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from hocket.policies.dorm.kinds import ApplicationKind, classes_of, kinds_of, tightened
from hocket.policies.dorm.placement import place
from hocket.policies.dorm.plain_model import solve_plain
from hocket.policies.dorm.problem import (
    TOLERANCE,
    Allocation,
    Problem,
    changed,
    containers,
    standing,
    utilisation,
    violations,
)
from hocket.policies.dorm.relaxation import MANY, Counts, Relaxed, relax
from hocket.policies.dorm.solver import Effort

GOOD = 0.01  # of the bound: closer than that there is no further search
_STOP = 0.004  # of the utilisation: where a search in counts stops
_STOP_MANY = 0.02  # with many kinds one search in counts takes long: it stops earlier, and is not begun again
_SMALL = 64  # applications times servers
_NODES = 2000  # of one search
_NODES_MANY = 30  # with many kinds
_TOO_MANY_KINDS = 100  # no search in counts at all
_NEAR = 360  # applications times servers, for last searches near the best that was found
_NODES_NEAR = 20
_TOO_MANY = "the smallest sizes of all do not fit the cluster together"
_EACH_APART = 32  # servers: so few can be told apart all at once
_APART = (8, 24, 64)  # servers told apart for each tight demand, round by round


class Outcome(Struct, frozen=True):
    """What came out of one question."""

    allocation: Allocation | None  # None: today's partitions stay
    bound: float = inf  # nothing can be worth more
    worth: float = 0.0
    why: str = ""  # there is no allocation

    @property
    def gap(self) -> float:
        """How far below the bound it is, as a share of that."""
        return max(self.bound - self.worth, 0.0) / self.bound if 0 < self.bound < inf else inf if self.bound else 0.0


def optimise(problem: Problem, solver_s: float = inf) -> Outcome:
    """Solve P2; every search may take so many seconds."""
    if not problem.applications:
        return Outcome((), 0.0)
    if not _enough(problem):
        return Outcome(None, why=_TOO_MANY)
    if len(problem.applications) * len(problem.servers) <= _SMALL:
        effort = Effort(nodes=10 * _NODES, seconds=solver_s, tolerance=1e-9)
        found, solved = solve_plain(problem, effort)
        if solved.infeasible:
            return Outcome(None, why=_binding_limit(problem, solver_s))
        if found is None or any(violations(problem, found)):
            return Outcome(None, solved.bound, why=_gave_up(solved.cut_off))
        return Outcome(found, solved.bound, utilisation(problem, found))
    return _by_counts(problem, solver_s)


def _enough(problem: Problem) -> bool:
    """Is there as much of every resource as the smallest sizes of all need? Counting is cheap; a search is not."""
    for k in range(len(problem.totals)):
        least = sum(a.sizes[0] * a.demand[k] for a in problem.applications)
        if least > sum(server[k] for server in problem.servers) * (1 + TOLERANCE):
            return False
    return True


def _effort(problem: Problem, kinds: int, solver_s: float) -> Effort:
    """The objective is a sum of what is there and what may come: what is near enough is counted by the former."""
    least = sum(g * a.sizes[0] for g, a in zip(problem.gains, problem.applications, strict=True))
    stop, nodes = (_STOP, _NODES) if kinds <= MANY else (_STOP_MANY, _NODES_MANY)
    return Effort(stop * max(utilisation(problem, standing(problem)), least), nodes, solver_s)


def _by_counts(problem: Problem, solver_s: float) -> Outcome:
    classes = classes_of(problem)
    kinds = kinds_of(problem, classes)
    effort = _effort(problem, len(kinds), solver_s)
    if len(kinds) > _TOO_MANY_KINDS:
        relaxed = Relaxed(_least(problem, kinds), _ceiling(problem), False, False)
    else:
        relaxed = relax(problem, classes, kinds, effort)
    if relaxed.infeasible:
        return Outcome(None, why=_binding_limit(problem, solver_s))
    best = Outcome(None, relaxed.bound, why=_gave_up(relaxed.cut_off))
    near = _wanted(kinds, relaxed.counts)
    if len(kinds) > MANY:
        best = _placed(problem, best, kinds, relaxed)
    elif len(problem.servers) <= _EACH_APART:
        best = _each_apart(problem, _placed(problem, best, kinds, relaxed), effort)
    else:
        best = _some_apart(problem, best, kinds, relaxed, effort)
    return best if best.gap <= GOOD else _searched(problem, best, near, solver_s)


def _placed(problem: Problem, best: Outcome, kinds: tuple[ApplicationKind, ...], relaxed: Relaxed) -> Outcome:
    """The best of what there is and the ways to make counts true, up to the first that is good."""
    for allocation, _lacking in _placements(problem, kinds, relaxed):
        best = _better(problem, best, allocation)
        if best.gap <= GOOD:
            break
    return best


def _each_apart(problem: Problem, best: Outcome, effort: Effort) -> Outcome:
    """Counts on every server for itself, where pooled ones are not good enough: a better bound, and better counts."""
    if best.gap <= GOOD:
        return best
    classes = tuple(range(len(problem.servers)))
    kinds = kinds_of(problem, classes)
    relaxed = relax(problem, classes, kinds, replace(effort, gap=2 * effort.gap))  # Still below what is good.
    bound = best.bound if relaxed.infeasible else min(best.bound, relaxed.bound)
    return _placed(problem, replace(best, bound=bound), kinds, relaxed)


def _some_apart(
    problem: Problem, best: Outcome, kinds: tuple[ApplicationKind, ...], relaxed: Relaxed, effort: Effort
) -> Outcome:
    """Counts that tell more and more servers apart, where pooled capacity promised room that there is not."""
    tight: tuple[int, ...] = ()
    for apart in (*_APART, 0):
        short: tuple[int, ...] = ()
        for allocation, lacking in _placements(problem, kinds, relaxed):
            best = _better(problem, best, allocation)
            if best.gap <= GOOD:
                return best
            short = lacking
        if not apart or not short:
            break
        known = {problem.applications[i].demand for i in tight}
        tight += tuple({d: i for i in short if (d := problem.applications[i].demand) not in known}.values())
        closer = tightened(problem, tight, apart)
        classes = classes_of(problem, closer.apart)
        kinds = kinds_of(problem, classes, closer)
        relaxed = relax(problem, classes, kinds, effort, closer)
    return best


def _least(problem: Problem, kinds: Sequence[ApplicationKind]) -> Counts:
    """Nothing changes, and newcomers have their smallest sizes; placing gives away what is left."""
    return Counts(
        tuple((0,) * len(kind.groups) for kind in kinds),
        tuple((problem.applications[kind.like].sizes[0],) * len(kind.newcomers) for kind in kinds),
    )


def _ceiling(problem: Problem) -> float:
    """The utilisation if all had what they can use of each resource, or the cluster were full: a simple bound."""
    bound = 0.0
    for k, total in enumerate(problem.totals):
        wanted = sum(a.sizes[-1] * a.demand[k] for a in problem.applications)
        bound += min(sum(server[k] for server in problem.servers), wanted) / total
    return bound


def _better(problem: Problem, best: Outcome, allocation: Allocation | None) -> Outcome:
    """The better one of what there is and an allocation, if that breaks nothing."""
    if allocation is None or any(violations(problem, allocation)):
        return best
    worth = utilisation(problem, allocation)
    if best.allocation is not None and worth <= best.worth:
        return best
    return Outcome(allocation, best.bound, worth)


def _wanted(kinds: Sequence[ApplicationKind], counts: Counts | None) -> set[int]:
    """Newcomers, and those that counts want to change."""
    among = {i for kind in kinds for i in kind.newcomers}
    for kind, moving in zip(kinds, counts.moving if counts else (), strict=False):
        for group, n in zip(kind.groups, moving, strict=True):
            among.update(group.members[len(group.members) - n :])
    return among


def _searched(problem: Problem, best: Outcome, near: set[int], solver_s: float) -> Outcome:
    """The best that P2 as printed knows with all but a few as they stand: what placing by rule of thumb missed."""
    now = standing(problem)
    effort = replace(_effort(problem, 0, solver_s), nodes=_NODES_NEAR)
    most = _NEAR // len(problem.servers)
    if len(near) > most and best.allocation is not None:
        few = set(sorted(near, key=lambda i: (problem.gains[i], i))[:most])  # Small ones fit into what is left over.
        return _better(problem, best, solve_plain(problem, effort, best.allocation, few)[0]) if few else best
    for among in _neighbourhoods(problem, near):
        if best.gap <= GOOD or not 0 < len(among) <= most:
            break
        start = best.allocation
        if start is None or not among.issuperset(changed(problem, start)):
            start = now
        best = _better(problem, best, solve_plain(problem, effort, start, among)[0])
    return best


def _neighbourhoods(problem: Problem, near: set[int]) -> Iterator[set[int]]:
    """Newcomers and as many others as may change: those that counts want, then more and more of the largest instead."""
    newcomers = {i for i, a in enumerate(problem.applications) if a.before is None}
    going = sorted(near - newcomers)
    yield near
    if not problem.change_limit:
        return
    sizes = [problem.gains[i] * containers(a.before or ()) for i, a in enumerate(problem.applications)]
    large = [i for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)) if i not in near]
    for keep in (len(going) // 2, len(going) // 2, 0, 0):
        more, large = large[: problem.change_limit - keep], large[problem.change_limit - keep :]
        yield newcomers.union(going[:keep], more)


def _placements(
    problem: Problem, kinds: tuple[ApplicationKind, ...], relaxed: Relaxed
) -> Iterator[tuple[Allocation | None, tuple[int, ...]]]:
    """Ways to make counts true, each with the applications that got less than they should."""
    counts = relaxed.counts
    if counts is None:
        return
    found = None
    for in_place in (True, False):  # What grows where it stands is disturbed least.
        allocation, short = place(problem, kinds, counts, in_place=in_place)
        found = allocation if found is None else found
        yield allocation, short
    if found is None:
        yield place(problem, kinds, counts, in_place=True, least_first=True)[0], short


def _gave_up(cut_off: bool) -> str:
    return "the solver's time is over" if cut_off else "no placement was found, for what is free lies in pieces"


def _binding_limit(problem: Problem, solver_s: float) -> str:
    """Which limit leaves no allocation: θ = 1 is none at all."""
    fairness = f"the fairness limit ({problem.loss_limit}, theta1={problem.theta1:g})"
    changes = f"the adjustment limit ({problem.change_limit}, theta2={problem.theta2:g})"
    if _possible(replace(problem, theta1=1.0), solver_s):
        return f"{fairness} binds"
    if _possible(replace(problem, theta2=1.0), solver_s):
        return f"{changes} binds"
    if _possible(replace(problem, theta1=1.0, theta2=1.0), solver_s):
        return f"{fairness} and {changes} bind together"
    return _TOO_MANY


def _possible(problem: Problem, solver_s: float) -> bool:
    any_will_do = Effort(inf, _NODES, solver_s)
    if len(problem.applications) * len(problem.servers) <= _SMALL:
        return not solve_plain(problem, any_will_do)[1].infeasible
    classes = classes_of(problem)
    return not relax(problem, classes, kinds_of(problem, classes), any_will_do).infeasible
