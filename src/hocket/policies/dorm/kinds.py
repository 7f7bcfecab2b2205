"""What is alike: applications that want the same, and run in the same way, on servers that are the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from hocket.policies.dorm.problem import TOLERANCE, Application, Problem, left_over, standing

Classes = tuple[int, ...]  # the class of each server
_FEW = 8  # servers that are told apart


class Group(Struct, frozen=True):
    """Applications of one kind that run alike."""

    by_class: tuple[int, ...]  # containers on the servers of each class
    opens: int  # how many containers of a tight demand fit where one of these leaves, and did not before
    members: tuple[int, ...]


class ApplicationKind(Struct, frozen=True):
    """Applications that want the same."""

    like: int  # one of them
    newcomers: tuple[int, ...]
    groups: tuple[Group, ...]


class Tight(Struct, frozen=True):
    """Demands that pooled capacity promised room for and servers did not have it."""

    like: tuple[int, ...]  # an application for each
    room: int  # containers of any of them that fit as things are
    opens: dict[int, int]  # application that runs → how many more fit without it
    apart: frozenset[int]  # servers with next to no room, which count for themselves


def classes_of(problem: Problem, apart: Collection[int] = ()) -> Classes:
    """Servers that are alike, one class; those apart, each its own.

    Where only some servers have a resource at all, those with some of it idle are no longer like the others: others'
    containers on them may be in the way.
    """
    free = left_over(problem, standing(problem))
    rare = [k for k in range(len(problem.totals)) if any(not server[k] for server in problem.servers)]
    idle = [j for j, row in enumerate(free) if any(row[k] > TOLERANCE for k in rare)]
    own = {*apart, *(idle if len(idle) <= _FEW else ())}
    seen: dict[tuple[object, ...], int] = {}
    accepted = dict.fromkeys(a.servers for a in problem.applications)
    classes = []
    is_idle = set(idle)
    for j, server in enumerate(problem.servers):
        key = (server, j in is_idle, j if j in own else -1, *(mask >> j & 1 for mask in accepted))
        classes.append(seen.setdefault(key, len(seen)))
    return tuple(classes)


def tightened(problem: Problem, like: tuple[int, ...], apart_each: int) -> Tight:
    """Where there is room for demands like these: as things are, and where an application leaves."""
    free = left_over(problem, standing(problem))
    there: dict[int, list[int]] = {}
    for i, application in enumerate(problem.applications):
        for server, _n in application.before or ():
            there.setdefault(server, []).append(i)
    near = []
    for i in like:
        ranked = []
        for j, has in enumerate(problem.servers):
            if _room(problem, i, j, has) and not _room(problem, i, j, free[j]):
                ranked.append((_leavers(problem, i, j, free[j], there.get(j, [])), j))
        near += [j for _n, j in sorted(ranked)[:apart_each]]
    apart = frozenset(near)
    rooms = [[_room(problem, i, j, row) for j, row in enumerate(free)] for i in like]
    opens = {}
    for number, application in enumerate(problem.applications):
        more = [0] * len(like)
        for server, n in application.before or ():
            if server not in apart:
                without = tuple(f + n * d for f, d in zip(free[server], application.demand, strict=True))
                for at, i in enumerate(like):
                    more[at] += _room(problem, i, server, without) - rooms[at][server]
        opens[number] = min(more)
    return Tight(like, min(sum(r for j, r in enumerate(row) if j not in apart) for row in rooms), opens, apart)


def _room(problem: Problem, i: int, server: int, free: Sequence[float]) -> int:
    return problem.room(i, free) if problem.applications[i].servers >> server & 1 else 0


def _leavers(problem: Problem, i: int, server: int, free: Sequence[float], there: Sequence[int]) -> int:
    """How many of those on a server must leave, largest first, before one container of an application fits."""
    rest = tuple(free)
    held = [(dict(problem.applications[o].before or ())[server], problem.applications[o].demand) for o in there]
    held.sort(key=lambda h: -sum(h[0] * d for d in h[1]))
    for gone, (n, demand) in enumerate(held):
        if problem.room(i, rest):
            return gone
        rest = tuple(f + n * d for f, d in zip(rest, demand, strict=True))
    return len(held)


def kinds_of(problem: Problem, classes: Classes, tight: Tight | None = None) -> tuple[ApplicationKind, ...]:
    """The applications by what they want, and of those that run by where."""
    found: dict[tuple[object, ...], tuple[list[int], dict[tuple[tuple[int, ...], int], list[int]]]] = {}
    how_many = max(classes, default=-1) + 1
    for i, application in enumerate(problem.applications):
        newcomers, groups = found.setdefault(_key(application), ([], {}))
        if application.before is None:
            newcomers.append(i)
            continue
        by_class = [0] * how_many
        for server, n in application.before:
            by_class[classes[server]] += n
        groups.setdefault((tuple(by_class), tight.opens[i] if tight else 0), []).append(i)
    return tuple(
        ApplicationKind(
            (newcomers or next(iter(groups.values())))[0],
            tuple(newcomers),
            tuple(Group(by_class, opens, tuple(members)) for (by_class, opens), members in groups.items()),
        )
        for newcomers, groups in found.values()
    )


def _key(a: Application) -> tuple[object, ...]:
    return a.demand, a.sizes, a.weight, a.servers, a.max_servers, a.owner
