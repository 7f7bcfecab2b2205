"""How often OptStop is wrong, on curves of models it has never seen: `python -m benchmarks.convergence CURVES.csv …`.

Each model is held out whole, all its batch sizes: the weights of the curve families are learned from the other models.
Along every curve of it, for goals from 80 % to 140 % of the way that the curve goes, we ask after each epoch if the
goal is out of reach, as load control does. A stop is false if the curve reaches the goal later. `--leaps` is load
control's knob: how readily metrics are taken to leap unforeseen.

A second table sets it for each model by the other models alone, and so that what is expected of one model more is no
more than allowed: the least value at which the shares of reachable goals that were given up, summed over the other
models with 1 for the one to come, are at most 1 - confidence of all models (conformal risk control, Angelopoulos et
al., 2022). For 95 % that takes 19 models; with fewer it never stops. `--shipped` takes the weights that are shipped,
for curves that had no part in them (`benchmarks.learning_curves`). `--plot FOLDER` draws the calibration, `--json`
prints one object.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from math import inf, sqrt
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.machine import Machine, machine
from hocket.estimators import convergence
from hocket.estimators.convergence import ENOUGH, EQUAL, FAMILIES, Outlook, learned, outlook
from hocket.policies.mlfs_c import with_leaps
from hocket.reports.figure_style import drawing, save
from hocket.workloads.fields import Number
from hocket.workloads.learning_curves import read_curves

GOALS = (0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.4)  # of the way from its first value to its best
LEAPS = (0.0, 0.05, 0.1, 0.2)
FINER = (0.0, 0.02, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, inf)  # inf: never stop
BINS = 10


class Measurement(Struct, frozen=True):
    """A curve: the metric after each epoch."""

    model: str
    batch_size: int
    values: tuple[float, ...]

    @property
    def rises(self) -> bool:
        """Is more better? By where it went."""
        return self.values[-1] > self.values[0]

    @property
    def best(self) -> float:
        """The best it ever was."""
        return max(self.values) if self.rises else min(self.values)

    def points(self, epochs: int) -> list[tuple[float, float]]:
        """What was seen after so many epochs."""
        return [(float(k), v) for k, v in enumerate(self.values[:epochs], 1)]


class Asked(Struct, frozen=True):
    """What was believed of one goal after one epoch."""

    epoch: int
    foreseen: float  # the probability that it is reached, without leaps


class Case(Struct, frozen=True):
    """One goal on one curve."""

    model: str
    batch_size: int
    epochs: int
    reached: int  # at this epoch; 0: never
    asked: tuple[Asked, ...]  # until it was reached

    def chances(self, leaps: float) -> list[float]:
        """How likely it was taken to be that the goal is reached, as it was asked."""
        return [with_leaps(a.foreseen, a.epoch, self.epochs, leaps) for a in self.asked]

    def stop(self, leaps: float, confidence: float) -> int:
        """The epoch after which it is stopped as hopeless; 0: never."""
        chances = zip(self.asked, self.chances(leaps), strict=True)
        return next((a.epoch for a, chance in chances if chance < 1.0 - confidence), 0)


class Tally(Struct, frozen=True):
    """How it went with one setting of the knob, for one model or for all."""

    model: str
    leaps: float
    goals_reached: int  # of the cases, those whose goal is reached if they are not stopped
    false_stops: int  # of these
    goals_missed: int
    stops: int  # of these: rightly
    false_share: float  # false stops among all stops
    false_of_reachable: float
    curves_wrong: tuple[
        int, float, float
    ]  # curves with a false stop for any goal, and the 95 % interval of their share
    models_wrong: tuple[int, float, float]  # likewise: few models, wide intervals
    saved: float  # iterations saved where the goal is never reached, as a share of them


class Bin(Struct, frozen=True):
    """Cases whose goal was believed to be reached with about the same probability."""

    believed: float
    happened: float
    count: int


class Measured(Struct, frozen=True):
    """All of one run."""

    command: str
    machine: Machine
    confidence: float
    models: dict[str, int]  # and how many curves each has
    weights: dict[str, float]  # of the families, learned from all models
    tallies: list[Tally]
    leaps: float | None  # as all models set the knob; none with weights that are shipped
    blind: list[Tally]  # the knob set by the other models alone; none with weights that are shipped
    calibration: dict[str, list[Bin]]  # by `leaps`


def read(*paths: str) -> list[Measurement]:
    """The curves of the files that are long enough; one that stands in it twice counts once."""
    curves = {Measurement(*curve): None for path in paths for curve in read_curves(path, Number(low=-1e15))}
    return [c for c in curves if len(c.values) >= 2 * ENOUGH]


def whole(curve: Measurement) -> tuple[list[tuple[float, float]], float, bool]:
    """A curve to learn from: all of it, with one epoch to come."""
    epochs = len(curve.values)
    return curve.points(epochs), epochs + 1.0, curve.rises


def taught(curves: Sequence[Measurement]) -> convergence.Weights:
    """The weights of the families that these curves teach."""
    return learned([[whole(c) for c in curves if c.model == m] for m in sorted({c.model for c in curves})])


@cache
def outlooks(curve: Measurement) -> dict[int, Outlook]:
    """What was to be seen after each epoch, with all families alike."""
    last = len(curve.values)
    found = {epoch: outlook(curve.points(epoch), float(last), curve.rises, EQUAL) for epoch in range(ENOUGH, last)}
    return {epoch: o for epoch, o in found.items() if o is not None}


def cases(curve: Measurement, prior: convergence.Weights) -> list[Case]:
    """Every goal on a curve."""
    first, last = curve.values[0], len(curve.values)
    targets = [curve.best if share == 1.0 else first + share * (curve.best - first) for share in GOALS]
    seen = {epoch: found.weighed(prior).reaches(targets).tolist() for epoch, found in outlooks(curve).items()}
    made = []
    for i, target in enumerate(targets):
        met = (v >= target if curve.rises else v <= target for v in curve.values)
        reached = next((k for k, there in enumerate(met, 1) if there), 0)
        asked = [Asked(k, chances[i]) for k, chances in seen.items() if not reached or k < reached]
        made.append(Case(curve.model, curve.batch_size, last, reached, tuple(asked)))
    return made


def tally(model: str, made: Sequence[Case], leaps: float, confidence: float) -> Tally:
    """Count one setting of the knob."""
    reachable, others = [c for c in made if c.reached], [c for c in made if not c.reached]
    false = sum(c.stop(leaps, confidence) > 0 for c in reachable)
    ends = [(c.stop(leaps, confidence), c.epochs) for c in others]
    right = sum(stop > 0 for stop, _epochs in ends)
    saved = sum(epochs - stop for stop, epochs in ends if stop) / max(sum(epochs for _s, epochs in ends), 1)
    share = false / len(reachable) if reachable else 0.0
    wrong = {(c.model, c.batch_size) for c in reachable if c.stop(leaps, confidence)}
    curves = {(c.model, c.batch_size) for c in made}
    models = {m for m, _size in curves}
    return Tally(
        model, leaps, len(reachable), false, len(others), right, false / max(false + right, 1), share,
        (len(wrong), *wilson(len(wrong), len(curves))),
        (len({m for m, _size in wrong}), *wilson(len({m for m, _size in wrong}), len(models))),
        saved,
    )  # fmt: skip


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    z, p = 1.96, hits / of
    middle, half = p + z * z / (2 * of), z * sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(1.0, (middle + half) / (1 + z * z / of))


def calibration(made: Sequence[Case], leaps: float) -> list[Bin]:
    """Of all that was believed, how often it came true: every epoch of every case counts."""
    rows = [(chance, bool(c.reached)) for c in made for chance in c.chances(leaps)]
    bins = []
    for i in range(BINS):
        inside = [(p, y) for p, y in rows if i / BINS <= p < (i + 1) / BINS or (p == 1.0 and i == BINS - 1)]
        if inside:
            n = len(inside)
            bins.append(Bin(sum(p for p, _y in inside) / n, sum(y for _p, y in inside) / n, n))
    return bins


def held_out(curves: Sequence[Measurement], model: str, also: str = "") -> list[Case]:
    """The cases of a model, by weights that know neither it nor the other one."""
    prior = taught([c for c in curves if c.model not in (model, also)])
    return [case for c in curves if c.model == model for case in cases(c, prior)]


def risks(made: Sequence[Case], leaps: float, confidence: float) -> dict[str, float]:
    """By model: of its goals that are reached if it is not stopped, the share that was given up."""
    found: dict[str, list[bool]] = {}
    for case in made:
        if case.reached:
            found.setdefault(case.model, []).append(case.stop(leaps, confidence) > 0)
    return {model: sum(wrong) / len(wrong) for model, wrong in found.items()}


def set_by(made: Sequence[Case], confidence: float) -> float:
    """The knob as these models teach it: what is to be expected of one more is within what is allowed."""
    for leaps in FINER:
        found = risks(made, leaps, confidence).values()
        if (sum(found) + 1.0) / (len(found) + 1.0) <= 1.0 - confidence:
            break
    return leaps


def blind(curves: Sequence[Measurement], confidence: float) -> list[Tally]:
    """Each model with the knob as the others set it, by weights that know neither of them."""
    models = sorted({c.model for c in curves})
    found = []
    for model in models:
        others = [case for other in models if other != model for case in held_out(curves, other, model)]
        found.append(tally(model, held_out(curves, model), set_by(others, confidence), confidence))
    return found


def measured(
    paths: Sequence[str], confidence: float, leaps: Sequence[float], command: str, shipped: bool = False
) -> Measured:
    """Hold out each model in turn, or judge all by the weights that are shipped."""
    curves = read(*paths)
    models = sorted({c.model for c in curves})
    made: list[Case] = []
    for model in models:
        made += (
            [case for c in curves if c.model == model for case in cases(c, convergence.PRIOR)]
            if shipped
            else held_out(curves, model)
        )
    tallies = [
        tally(name, [c for c in made if name in (c.model, "all")], each, confidence)
        for each in leaps
        for name in (*models, "all")
    ]
    weights = dict(zip(FAMILIES, convergence.PRIOR if shipped else taught(curves), strict=True))
    counts = {m: sum(c.model == m for c in curves) for m in models}
    return Measured(
        command,
        machine(),
        confidence,
        counts,
        weights,
        tallies,
        None if shipped else set_by(made, confidence),
        [] if shipped or len(models) < 3 else blind(curves, confidence),
        {f"{each:g}": calibration(made, each) for each in leaps},
    )


def plot(found: Measured, folder: Path) -> list[Path]:
    """Draw what was believed against what happened."""
    with drawing() as figure:
        sheet = figure((5.2, 5.0))
        axes = sheet.add_subplot()
        axes.plot([0, 1], [0, 1], linewidth=0.8, linestyle=":", color="grey")
        for leaps, bins in found.calibration.items():
            axes.plot([b.believed for b in bins], [b.happened for b in bins], marker="o", label=f"leaps {leaps}")
        axes.set_xlabel("believed probability that the goal is reached")
        axes.set_ylabel("share that reached it")
        axes.set_title("OptStop on models held out", loc="left")
        axes.legend()
        return save(sheet, folder, "convergence")


def text(found: Measured) -> str:
    """One page."""
    here = found.machine
    lines = [
        f"{found.command}",
        f"{here.cores} cores, {here.memory_gib:g} GiB, Python {here.python}, {here.date}",
        "",
        f"curves: {', '.join(f'{m} {n}' for m, n in found.models.items())}; confidence {found.confidence:.0%}",
        f"weights of the families: {', '.join(f'{f} {w:.3f}' for f, w in found.weights.items())}",
        "",
        "| leaps | model | false stops | of goals reached | of all stops | curves with one (95 % interval) | "
        "right stops | of goals missed | iterations saved there |",
        "| --: | --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for t in found.tallies:
        wrong, low, high = t.curves_wrong
        lines.append(
            f"| {t.leaps:g} | {t.model} | {t.false_stops} | {t.goals_reached} ({t.false_of_reachable:.1%}) | "
            f"{t.false_share:.1%} | {wrong} ({low:.0%} to {high:.0%}) | {t.stops} | {t.goals_missed} | {t.saved:.0%} |"
        )
    lines.append("")
    for t in found.tallies:
        if t.model == "all":
            wrong, low, high = t.models_wrong
            share = f"{wrong} of {len(found.models)} models have a false stop (95 % interval {low:.0%} to {high:.0%})"
            lines.append(f"leaps {t.leaps:g}: {share}")
    if found.blind:
        false, right = sum(t.false_stops for t in found.blind), sum(t.stops for t in found.blind)
        wrong = sum(t.false_stops > 0 for t in found.blind)
        low, high = wilson(wrong, len(found.blind))
        lines += ["", f"leaps set by all models: {found.leaps:g}; by the other models alone:"]
        lines += [
            f"{t.model}: {t.leaps:g}, {t.false_stops} false stops, {t.stops} right ones, {t.saved:.0%} saved"
            for t in found.blind
        ]
        lines.append(
            f"all: {false} of {false + right} stops are false ({false / max(false + right, 1):.1%}), of {wrong} of "
            f"{len(found.blind)} models (95 % interval {low:.0%} to {high:.0%}); "
            f"{sum(t.saved for t in found.blind) / len(found.blind):.0%} saved, each model alike"
        )
    lines += ["", "calibration (believed → happened, of so many):"]
    for leaps, bins in found.calibration.items():
        row = ", ".join(f"{b.believed:.2f} → {b.happened:.2f} ({b.count})" for b in bins)
        lines.append(f"leaps {leaps}: {row}")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Measure, and print one page or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=(__doc__ or "").split(":")[0])
    parser.add_argument("curves", nargs="+", help="a CSV with the columns app, batch_size and metric, a row an epoch")
    parser.add_argument("--confidence", type=float, default=0.95)
    parser.add_argument("--leaps", type=float, nargs="+", default=list(LEAPS))
    parser.add_argument("--shipped", action="store_true", help="judge by the weights that are shipped")
    parser.add_argument("--plot", type=Path, metavar="FOLDER")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    command = " ".join(["python -m benchmarks.convergence", *arguments])
    found = measured(chosen.curves, chosen.confidence, chosen.leaps, command, chosen.shipped)
    if chosen.plot is not None:
        for path in plot(found, chosen.plot):
            print(f"wrote {path}", file=sys.stderr)
    print(msgspec.json.encode(found).decode() if chosen.json else text(found))


if __name__ == "__main__":
    main(sys.argv[1:])
