"""Reshape's two algorithms against an enumeration of all that they may choose from, written from the paper alone.

Ends are reckoned here from what the instances were made of, not by the policy's own code.
"""

from itertools import product
from random import Random

import pytest
from msgspec import Struct

from hocket.model import Beliefs, Curve, Estimate, Job, Node, Plan, Point
from hocket.model.event import JobSubmitted
from hocket.model.view import Costs
from hocket.policies import Draft, find
from hocket.testing.harness import Harness

INSTANCES = 100
KINDS = ("v100", "p100", "k80")


class Known(Struct):
    """What an instance knows of one job."""

    job: Job
    beliefs: Beliefs
    costs: Costs
    started_s: float = 0.0
    size: int = 0
    node: str = ""  # empty where jobs may span nodes

    def speed(self, size: int, node: str) -> float:
        return self.beliefs.speed.at(size).mean * self.beliefs.kinds.get(node, 1.0)

    def end_s(self) -> float:
        return self.started_s + self.beliefs.run_s.mean / self.speed(self.size, self.node)

    def restart_s(self, cold: bool) -> float:
        costs = self.costs
        whole = costs.checkpoint_s + costs.stop_s + costs.start_s
        return whole + costs.prepare_s if cold else whole


def drawn(dice: Random, name: str, one_node: bool) -> Known:
    sizes = tuple(sorted(dice.sample((1, 2, 3, 4, 6, 8), dice.randint(1, 4))))
    speeds = {1: 1.0} | {n: n ** dice.uniform(0.3, 1.05) for n in sizes if n > 1}
    beliefs = Beliefs(
        Estimate(dice.uniform(50, 5000)),
        speed=Curve(tuple(Point(float(n), v) for n, v in sorted(speeds.items()))),
        kinds={k: dice.uniform(0.1, 2.0) for k in KINDS} if one_node else {},
    )
    costs = Costs(dice.uniform(0, 100), dice.uniform(0, 30), dice.uniform(0, 10), dice.uniform(0, 5))
    job = Job(name, sizes=sizes, max_nodes=1 if one_node else 0, warm=dice.random() < 0.5)
    return Known(job, beliefs, costs)


class Instance:
    """A cluster on which some jobs run, each started at a time of its own."""

    def __init__(self, seed: int, one_node: bool) -> None:
        self.dice = Random(seed)
        self.one_node = one_node
        if one_node:  # A node of each kind, named after it: where a job goes is then settled by the kind.
            self.nodes = [Node(k, self.dice.randint(2, 8), k) for k in KINDS[: self.dice.randint(1, 3)]]
        else:
            self.nodes = [Node(f"n{i}", self.dice.randint(1, 8)) for i in range(self.dice.randint(1, 3))]
        self.policy = find("reshape").bound()
        self.decide = self.at_random
        self.harness = Harness(lambda s: self.decide(s), self.nodes, self.policy.order)
        self.known: dict[str, Known] = {}
        for i in range(self.dice.randint(1, 7)):
            self.submit(drawn(self.dice, f"j{i}", one_node), self.harness.now_s + self.dice.uniform(1, 60))
            self.settle()
        for view in self.harness.snapshot.jobs.values():
            known = self.known[view.id]
            if view.size:
                known.size, known.started_s = view.size, view.started_s
                known.node = view.tenancies[0].holding.slices[0].node if one_node else ""
        self.waiting = [k for k in self.known.values() if not k.size]
        self.running = [k for k in self.known.values() if k.size]

    def at_random(self, snapshot):
        draft = Draft(snapshot)
        for view in draft.candidates():
            draft.start(view, "starts", self.dice.choice(view.job.sizes))
        draft.reasons["*"] = "waits"
        return draft.plan()

    def submit(self, known: Known, at_s: float) -> None:
        self.known[known.job.id] = known
        self.harness.tell(JobSubmitted(at_s, known.job, known.beliefs, known.costs))

    def settle(self) -> None:
        while self.harness.pending:
            self.harness.answer()

    def idle(self) -> dict[str, int]:
        free = {n.id: f.gpus.bit_count() for n, f in self.harness.snapshot.capacity}
        return free if self.one_node else {"": sum(free.values())}

    def ask(self, *events):
        """What there is a while later, and the plan of the policy itself for it."""
        self.decide = lambda _snapshot: Plan()
        self.harness.tell(*events, at_s=self.harness.now_s + self.dice.uniform(0, 500))
        snapshot = self.harness.snapshot
        return snapshot, self.policy.decide(snapshot)


def close(a, b):
    return all(abs(x - y) <= 1e-6 * max(1.0, abs(x)) for x, y in zip(a, b, strict=True))


# -- Algorithm 1 --------------------------------------------------------------------------------------------


def worth(running, newcomer, now_s, size, node, donor, removed):
    """(makespan, sum of ends, GPUs removed) if the newcomer gets this size, with so many of a donor's GPUs."""
    ends = {k.job.id: k.end_s() for k in running}
    delay_s = 0.0
    if donor is not None:
        wait_s = newcomer.costs.prepare_s if newcomer.job.warm else 0.0
        delay_s = donor.restart_s(cold=not donor.job.warm)
        left = (ends[donor.job.id] - now_s - wait_s) * donor.speed(donor.size, donor.node)
        if left > 0:
            less = donor.speed(donor.size - removed, donor.node)
            ends[donor.job.id] = now_s + wait_s + delay_s + left / less
    costs = newcomer.costs
    work_s = newcomer.beliefs.run_s.mean / newcomer.speed(size, node)
    ends[newcomer.job.id] = now_s + costs.prepare_s + delay_s + costs.start_s + work_s
    return max([now_s, *ends.values()]), sum(ends.values()), removed


def choices(running, newcomer, idle):
    """Every triple of Algorithm 1, on every node where that matters: (size, node, donor, GPUs removed)."""
    for (node, free), size in product(idle.items(), newcomer.job.sizes):
        if size <= free:
            yield size, node, None, 0
            continue
        for donor in running:
            if donor.node == node and donor.size - (size - free) in donor.job.sizes:
                yield size, node, donor, size - free


@pytest.mark.parametrize("one_node", [True, False], ids=["one node", "any nodes"])
def test_a_newcomer_gets_the_best_of_all_choices_there_are(one_node):
    met = donated = 0
    seed = 0
    while met < INSTANCES:
        seed += 1
        made = Instance(seed, one_node)
        if made.waiting:
            continue  # The newcomer shall be the only one.
        newcomer = drawn(made.dice, "new", one_node)
        idle = made.idle()
        snapshot, plan = made.ask(JobSubmitted(0.0, newcomer.job, newcomer.beliefs, newcomer.costs))
        if "new" not in snapshot.jobs:
            continue  # refused: no size of it fits the cluster
        met += 1
        running, now_s = made.running, snapshot.now_s
        found = [worth(running, newcomer, now_s, *choice) for choice in choices(running, newcomer, idle)]
        put = {p.id: p for p in plan.put}
        if not found:
            assert "new" not in put, f"instance {seed}"
            continue
        shrunk = [k for k in running if k.job.id in put and put[k.job.id].gpus < k.size]
        grown = [k for k in running if k.job.id in put and put[k.job.id].gpus > k.size]
        assert len(shrunk) <= 1, f"instance {seed}"
        donor = shrunk[0] if shrunk else None
        removed = donor.size - put[donor.job.id].gpus if donor else 0
        node = put["new"].slices[0].node if one_node else ""
        mine = worth(running, newcomer, now_s, put["new"].gpus, node, donor, removed)
        assert close(mine, min(found)), f"instance {seed}: {mine} instead of {min(found)}"
        assert not (shrunk and grown) or one_node, f"instance {seed}: takes from one and gives to another"
        donated += bool(shrunk)
    assert donated > INSTANCES / 20, "too few instances are about what they should be about"


# -- Algorithm 2 --------------------------------------------------------------------------------------------


def growths(known: Known, size: int, now_s: float, ends_s: float, idle: dict[str, int], one_node: bool):
    """Where a job could have a larger size, and when it ends then: on its node if that has room, else elsewhere."""
    work = (ends_s - now_s) * known.speed(known.size, known.node)
    if size - known.size <= idle[known.node]:
        warm = known.job.warm if one_node else None
        yield known.node, now_s + known.restart_s(cold=not warm) + work / known.speed(size, known.node)
        return
    for node, free in idle.items():
        if size <= free:
            yield node, now_s + known.restart_s(cold=True) + work / known.speed(size, node)


def enumerated(made: Instance, now_s: float) -> dict[str, int]:
    """The sizes after repeatedly growing the job that makes (makespan, sum of ends, GPUs moved) smallest."""
    idle, sizes = made.idle(), {}
    ends = {k.job.id: k.end_s() for k in made.running}
    while True:
        best = (max([now_s, *ends.values()]), sum(ends.values()), 0), None
        for known in made.running:
            if known.job.id in sizes or ends[known.job.id] <= now_s:
                continue
            for size in (n for n in known.job.sizes if n > known.size):
                for node, then_s in growths(known, size, now_s, ends[known.job.id], idle, made.one_node):
                    if then_s < ends[known.job.id] - 1e-6:
                        after = {**ends, known.job.id: then_s}
                        value = max([now_s, *after.values()]), sum(after.values()), size - known.size
                        if value < best[0]:
                            best = value, (known, size, node, then_s)
        if best[1] is None:
            return sizes
        known, size, node, then_s = best[1]
        sizes[known.job.id] = size
        ends[known.job.id] = then_s
        if node == known.node:
            idle[node] -= size - known.size
        else:
            idle[node] -= size
            idle[known.node] += known.size


def test_idle_gpus_go_where_the_best_of_all_choices_has_them():
    met = grown = moved = 0
    seed = 10_000
    while met < INSTANCES:
        seed += 1
        made = Instance(seed, one_node=True)
        if made.waiting or not sum(made.idle().values()):
            continue
        met += 1
        snapshot, plan = made.ask()
        expected = enumerated(made, snapshot.now_s)
        assert {p.id: p.gpus for p in plan.put} == expected, f"instance {seed}"
        grown += bool(expected)
        moved += any(p.slices[0].node != made.known[p.id].node for p in plan.put)
    assert grown > INSTANCES / 10, "too few instances are about what they should be about"
    assert moved, "no instance grows across hosts"
