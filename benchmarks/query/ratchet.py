"""Ratchet's three questions, answered from measured batches: `python -m benchmarks.query.ratchet [BATCHES.json]`.

When is a state written? Each query is killed at drawn moments and writes its state after a fixed time of work, the same
for all queries, or as the cost model says; what counts is the time lost by writing, by reading and by doing batches
again. How stale is it? So many batches are done again after a kill; none is lost or counted twice, which
`python -m benchmarks.query.suspension` tries with real kills. Where is it kept? Several queries are paused at a time
under one budget of memory: all on disk, all redone, in memory while there is room, by the time that memory saves for
each MiB, or arbitrated: of all choices that fit the one that saves most, by the model's own expectation. The file is
what `benchmarks.query.suspension --json` says; without one the batches are measured first. `--slower` stretches times
of batches, as of more data with as many groups.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.machine import Machine, machine, table
from benchmarks.query.suspension import (
    DRAWS,
    EVERY,
    QUERIES,
    START_S,
    Boundary,
    Choice,
    Lost,
    by_cost_model,
    in_child,
    measured,
    prepared,
    time_lost,
)
from hocket.model.suspension import Suspension, costs_of_keeping, where_to_keep
from hocket.model.view import Tier
from hocket.policies.kit.suspended_states import most_saved
from hocket.reports.mean_interval import MeanInterval, mean_interval

INTERVALS_S = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, inf)  # of work; 0 is after every batch, the last is never
MODEL = "cost model"
PAUSED = 6  # queries at a time
BUDGETS = (0.0, 0.1, 0.25, 0.5, 1.0)  # memory for paused queries, as a share of what all of them hold
RISK = 0.1  # that a suspended process is lost before it goes on
ROUNDS = 200
PROCESS_MIB = 170.0  # of a query's process without its state, where `--process-mib` says no other


class When(Struct, frozen=True):
    """A rule of when to write, over all queries; times as shares of a query's own time."""

    rule: str
    lost: MeanInterval  # over queries
    worst: float  # the query that loses most
    writing: float
    redone: float
    batches: float  # done again for each kill
    best_for: int  # queries for which no other fixed rule loses less
    beyond: MeanInterval | None  # what it loses more than the cost model, by query


class Where(Struct, frozen=True):
    """A rule of where to keep states under a budget; seconds that each pause costs."""

    rule: str
    budget: float
    lost_s: MeanInterval
    beyond_s: MeanInterval | None  # more than the arbitrated rule, by round


class Answers(Struct, frozen=True):
    """All of one run."""

    machine: Machine
    slower: float
    when: list[When]
    where: list[Where]
    by_query: dict[str, dict[str, float]]  # query → rule of when → share of its time that is lost


def after_work(interval_s: float) -> Choice:
    """Write when so much work is unsaved."""
    return lambda _done, _saved, unsaved_s: unsaved_s >= interval_s


def name_of(interval_s: float) -> str:
    """As the table says it."""
    if not interval_s:
        return "after every batch"
    return "never" if interval_s == inf else f"every {interval_s:g} s"


def when(queries: dict[int, list[Boundary]], seed: int) -> tuple[list[When], dict[str, dict[str, float]]]:
    """Each rule against the same kills."""
    rules = [*map(name_of, INTERVALS_S), MODEL]
    shares: dict[str, dict[int, list[tuple[float, float, float, int, int]]]] = {r: {} for r in rules}
    for number, query in queries.items():
        whole_s = sum(b.took_s for b in query)
        for every in EVERY:
            dice = random.Random(f"{seed}/when/{number}/{every}")
            choices: dict[str, Choice] = {name_of(i): after_work(i) for i in INTERVALS_S}
            choices[MODEL] = by_cost_model(query, every * whole_s)
            for _draw in range(DRAWS):
                at_s, times = 0.0, list[float]()
                while len(times) < 4 and (at_s := at_s + dice.expovariate(1.0 / (every * whole_s))) < 4 * whole_s:
                    times.append(at_s)
                for rule, choose in choices.items():
                    lost = time_lost(query, tuple(times), choose)
                    shares[rule].setdefault(number, []).append((*_shares(lost, whole_s), lost.redone, len(times)))
    by_query = {
        r: {n: sum(sum(f[:3]) for f in found) / len(found) for n, found in of.items()} for r, of in shares.items()
    }
    fixed = rules[:-1]
    best = {n: min(fixed, key=lambda rule: by_query[rule][n]) for n in queries}
    found = []
    for rule in rules:
        each = [f for of in shares[rule].values() for f in of]
        lost_by = by_query[rule]
        more = [lost_by[n] - by_query[MODEL][n] for n in queries] if rule != MODEL else []
        interval = mean_interval(list(lost_by.values()))
        assert interval is not None
        found.append(
            When(
                rule, interval, max(lost_by.values()), sum(f[0] for f in each) / len(each),
                sum(f[1] for f in each) / len(each), sum(f[3] for f in each) / max(1, sum(f[4] for f in each)),
                sum(b == rule for b in best.values()), mean_interval(more),
            )
        )  # fmt: skip
    return found, {f"q{n}": {r: round(by_query[r][n], 4) for r in rules} for n in queries}


def _shares(lost: Lost, whole_s: float) -> tuple[float, float, float]:
    """Writing, redone, reading; a new process takes the same by any rule, and is left out."""
    return lost.writing_s / whole_s, lost.redone_s / whole_s, (lost.starting_s - lost.starts * START_S) / whole_s


# -- where ------------------------------------------------------------------------------------------------------------

Rule = Callable[[Sequence[Suspension], float], list[Tier]]  # states, budget in MiB → where each is kept


def first_come(states: Sequence[Suspension], budget_mib: float) -> list[Tier]:
    """In memory while there is room, and else on disk."""
    found = []
    for state in states:
        fits = state.process_mib <= budget_mib
        budget_mib -= state.process_mib if fits else 0.0
        found.append(Tier.MEMORY if fits else Tier.DISK)
    return found


def arbitrated(states: Sequence[Suspension], budget_mib: float) -> list[Tier]:
    """As `rotary` does with `suspend=arbitrated`: memory where it saves most time in all."""
    found = [where_to_keep(_without_memory(state)) for state in states]
    saved = []
    for state, tier in zip(states, found, strict=True):
        costs = costs_of_keeping(state)
        saved.append((costs[tier] - costs[Tier.MEMORY], state.process_mib))
    for n in most_saved(saved, budget_mib):
        found[n] = Tier.MEMORY
    return found


def by_worth(states: Sequence[Suspension], budget_mib: float) -> list[Tier]:
    """Memory to the states for which it saves most for each MiB, one after the other: as it was arbitrated before."""
    found = [where_to_keep(_without_memory(state)) for state in states]
    worths = []
    for n, state in enumerate(states):
        costs = costs_of_keeping(state)
        worths.append((-(costs[found[n]] - costs[Tier.MEMORY]) / state.process_mib, n))
    for worth, n in sorted(worths):
        if worth < 0 and states[n].process_mib <= budget_mib:
            budget_mib -= states[n].process_mib
            found[n] = Tier.MEMORY
    return found


def _without_memory(state: Suspension) -> Suspension:
    return replace(state, memory_mib=0.0)


def _cost_s(states: Sequence[Suspension], tiers: Sequence[Tier]) -> float:
    return sum(costs_of_keeping(state)[tier] for state, tier in zip(states, tiers, strict=True))


RULES: dict[str, Rule] = {
    "all redone": lambda states, _budget: [Tier.NONE] * len(states),
    "all on disk": lambda states, _budget: [Tier.DISK] * len(states),
    "in memory while there is room, else on disk": first_come,
    "by what memory saves for each MiB": by_worth,
    "arbitrated": arbitrated,
}


def where(queries: dict[int, list[Boundary]], seed: int, process_mib: float = PROCESS_MIB) -> list[Where]:
    """Rounds of pauses: some queries at a time, each after one of its batches."""
    dice = random.Random(f"{seed}/where")
    able = [query for query in queries.values() if len(query) > 1]
    rounds = [[_paused(dice.choice(able), dice, process_mib) for _ in range(PAUSED)] for _ in range(ROUNDS)]
    found = []
    for budget in BUDGETS:
        lost = {
            rule: [
                _cost_s(states, choose(states, budget * sum(s.process_mib for s in states))) / PAUSED
                for states in rounds
            ]
            for rule, choose in RULES.items()
        }
        for rule, values in lost.items():
            more = [a - b for a, b in zip(values, lost["arbitrated"], strict=True)] if rule != "arbitrated" else []
            mean = mean_interval(values)
            assert mean is not None
            found.append(Where(rule, budget, mean, mean_interval(more)))
    return found


def _paused(query: list[Boundary], dice: random.Random, process_mib: float) -> Suspension:
    """A query that leaves after a batch; nothing of it is on disk."""
    done = dice.randrange(1, len(query))
    at, redo_s = query[done - 1], sum(b.took_s for b in query[:done])
    return Suspension(
        at.state_mib, redo_s, at.write_s, at.read_s, START_S, RISK, leaves=True, process_mib=process_mib + at.state_mib
    )  # fmt: skip


# -- all of it --------------------------------------------------------------------------------------------------------


def answers(queries: dict[int, list[Boundary]], slower: float, seed: int, process_mib: float = PROCESS_MIB) -> Answers:
    """All three, of batches that take so much longer."""
    stretched = {n: [b._replace(took_s=slower * b.took_s) for b in query] for n, query in queries.items()}
    rules, by_query = when(stretched, seed)
    return Answers(machine(), slower, rules, where(stretched, seed, process_mib), by_query)


def batches_from(path: Path) -> dict[int, list[Boundary]]:
    """Those of `benchmarks.query.suspension --json`."""
    said = json.loads(path.read_text())
    return {int(n): [Boundary(*b) for b in query] for n, query in said.get("batches", said).items()}


def measured_batches(scale: float) -> dict[int, list[Boundary]]:
    """All queries, measured now, each in a process of its own."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, texts = in_child(partial(prepared, folder, scale))
        for number in QUERIES:
            sql = texts[str(number)]
            found[number] = [Boundary(*b) for b in in_child(partial(measured, sql, Path(data), folder / f"q{number}"))]
            print(f"Q{number} measured", file=sys.stderr, flush=True)
    return found


def text(found: Answers) -> str:
    """Two tables, each with its sentence."""
    here = found.machine
    lines = [f"{here.cores} cores, load {here.load}, {here.date}; batches take {found.slower:g} times as long", ""]
    rows: list[tuple[str, ...]] = [
        (
            w.rule, _percent(w.lost), f"{w.worst:.0%}", f"{w.writing:.1%}", f"{w.redone:.1%}", f"{w.batches:.2f}",
            "" if w.rule == MODEL else str(w.best_for), "" if w.beyond is None else _percent(w.beyond),
        )
        for w in found.when
    ]  # fmt: skip
    titles = (
        "a state is written", "lost of a query's time", "worst query", "writing", "redone", "batches redone a kill",
        "best for queries", "more than the cost model",
    )  # fmt: skip
    lines += [*table(titles, rows), "", in_words(found), ""]
    rows = [
        (
            w.rule, f"{w.budget:.0%}", f"{w.lost_s.mean:.3f} ± {w.lost_s.half_width or 0.0:.3f}",
            "" if w.beyond_s is None else f"{w.beyond_s.mean:.3f} ± {w.beyond_s.half_width or 0.0:.3f}",
        )
        for w in found.where
    ]  # fmt: skip
    lines += table(("a paused state is kept", "memory", "s lost a pause", "more than arbitrated"), rows)
    return "\n".join(lines)


def in_words(found: Answers) -> str:
    """Whether one interval suits all, in a sentence."""
    fixed = [w for w in found.when if w.rule != MODEL]
    used = [w for w in fixed if w.best_for]
    least, model = min(fixed, key=lambda w: w.lost.mean), found.when[-1]
    said = f"{len(used)} fixed rules are each the best for some query: " if len(used) > 1 else "One rule suits all: "
    said += ", ".join(f"{w.rule} for {w.best_for}" for w in used)
    return (
        f"{said}. The best single one, {least.rule}, loses {least.lost.mean:.1%}, the cost model {model.lost.mean:.1%}."
    )


def _percent(of: MeanInterval) -> str:
    return f"{100 * of.mean:.1f} ± {100 * (of.half_width or 0.0):.1f} %"


def main(arguments: list[str] | None = None) -> int:
    """Measure or read, replay, and print."""
    import msgspec

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="?", type=Path)
    parser.add_argument("--scale", type=float, default=0.1, help="scale factor, where batches are measured")
    parser.add_argument("--slower", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--process-mib", type=float, default=PROCESS_MIB,
        help=f"of a query's process without its state ({PROCESS_MIB:g}); `benchmarks.rotary_live` measures it",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.batches is not None and not options.batches.is_file():
        parser.error(f"'{options.batches}' must be a file that exists")
    queries = batches_from(options.batches) if options.batches is not None else measured_batches(options.scale)
    found = answers(queries, options.slower, options.seed, options.process_mib)
    print(msgspec.json.encode(found).decode() if options.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
