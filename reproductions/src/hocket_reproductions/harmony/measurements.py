"""What Harmony's evaluation measures without running a workload: quality and time of one grouping, and spilling."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from random import Random
from time import process_time

from hocket.executors.simulated import memory, phases
from hocket.model.phases import Profile
from hocket.policies.harmony.algorithm_1 import as_printed
from hocket.policies.harmony.oracle import exhaustive
from hocket.policies.harmony.policy import Harmony
from hocket.policies.harmony.schedule import Grouping, Terms, schedule, use_of
from hocket.workloads import harmony as jobs

ERRORS = (0.05, 0.1, 0.2)
INSTANCES = 300
SCALES = ((80, 100), (1_000, 1_000), (8_000, 10_000), (64_000, 64_000))


def all_measurements() -> dict[str, float]:
    """Every number, by name."""
    return {**quality(), **scheduling(), **wrong_phases(), **reloading()}


def instance(rng: Random) -> tuple[list[Profile], int]:
    """A case small enough to look at every grouping."""
    n, machines = rng.randint(3, 7), rng.randint(3, 6)
    return [Profile(rng.lognormvariate(3, 0.8), rng.lognormvariate(2, 0.8)) for _ in range(n)], machines


def quality(instances: int = INSTANCES) -> dict[str, float]:
    """Utilisation, and work done, over the best there is, on random small cases."""
    rng = Random("harmony/quality")
    kept: dict[str, list[float]] = {"quality": [], "printed": [], "work": []}
    for _ in range(instances):
        some, machines = instance(rng)
        best, work = exhaustive(some, machines).use, Terms(_by_work(some).weights)
        kept["quality"].append(schedule(some, machines).use / best)
        kept["printed"].append(as_printed(some, machines).use / best)
        kept["work"].append(schedule(some, machines, work).use / exhaustive(some, machines, work).use)
    means = {f"{name}_mean": sum(shares) / instances for name, shares in kept.items()}
    return {**means, **{f"{name}_worst": min(shares) for name, shares in kept.items()}}


def scheduling(scales: Sequence[tuple[int, int]] = SCALES) -> dict[str, float]:
    """CPU time of one grouping from scratch, once compiled, and the utilisation (equation 4) that it reaches.

    By work done, as is the default, and by utilisation, as the paper has it.
    """
    found: dict[str, float] = {}
    for name in ("work", "use"):
        for n, machines in ((100, 100), (10, 10), *scales):
            line = many(n)
            terms = _by_work(line) if name == "work" else Terms()
            since = process_time()
            grouping: Grouping = schedule(line, machines, terms)
            found[f"{name}_s_{n}"] = process_time() - since
            found[f"{name}_u_{n}"] = use_of(line, grouping, machines)
    return {key: found[key] for key in found if not key.endswith(("_100", "_10"))}


def _by_work(line: Sequence[Profile]) -> Terms:
    """What a grouping of these jobs is worth, as the policy has it by default."""
    price = sum(p.comp_machine_s for p in line) / sum(p.comm_s for p in line)
    return Terms(Harmony().weights._replace(price=price), Harmony().fewer)


def wrong_phases(errors: Sequence[float] = ERRORS, orders: int = 30) -> dict[str, float]:
    """Work that the 80 jobs get done in a second when wrong phases group them, over what it is with the right ones."""
    rng, found = Random("harmony/wrong"), {}
    line = [Profile(s.comp_machine_s, s.comm_s) for s in jobs.settings()]
    terms = _by_work(line)
    for error in errors:
        kept = []
        for _ in range(orders):
            rng.shuffle(line)
            off = [[exp(rng.gauss(-error * error / 2, error)) for _ in range(2)] for _ in line]
            wrong = [Profile(p.comp_machine_s * a, p.comm_s * b) for p, (a, b) in zip(line, off, strict=True)]
            mistaken, right = (schedule(told, jobs.MACHINES, terms) for told in (wrong, line))
            worth = [use_of(line, g, jobs.MACHINES, terms.weights) for g in (mistaken, right)]
            kept.append(worth[0] / worth[1])
        found[f"kept_{error:g}"] = sum(kept) / orders
    return found


def many(n: int) -> list[Profile]:
    """Profiles that spread over decades, as those of Table I do."""
    rng = Random("harmony/many")
    return [Profile(rng.lognormvariate(5, 1), rng.lognormvariate(3, 0.8)) for _ in range(n)]


def reloading(machines: int = 32) -> dict[str, float]:
    """Eight jobs, one of each data set, on 32 machines: the round with α for all alike, and with each its own.

    Here an iteration reads its mini-batch; also as if it read half of all input, for then α matters.
    """
    settings = [s for s in jobs.settings() if s.share == jobs.SETTINGS[4]]
    alone = [phases.Phases(s.comp_machine_s / machines, s.comm_s, (0,)) for s in settings]
    truths = [jobs.truth_of(s) for s in settings]
    found: dict[str, float] = {}
    for name, read in (("alpha", 0.0), ("half", 0.5)):
        kept = [memory.InputInMemory(t.input_mib / machines, t.model_mib / machines, read or t.read) for t in truths]

        def round_s(alphas: Sequence[float], kept: Sequence[memory.InputInMemory] = kept) -> float:
            now = memory.pressed(alone, kept, alphas, jobs.MEM_MIB)
            return phases.interleave(now).round_s if now is not None else float("inf")

        fixed = {alpha / 20: round_s([alpha / 20] * len(alone)) for alpha in range(21)}
        best = min(fixed, key=lambda a: fixed[a])
        now, alphas = memory.settled(alone, kept, jobs.MEM_MIB, phases.interleave)
        found |= {
            f"{name}_fixed_best": best, f"{name}_fixed_s": fixed[best],
            f"{name}_adaptive_s": phases.interleave(now).round_s, f"{name}_mean": sum(alphas) / len(alphas),
        }  # fmt: skip
    return found
