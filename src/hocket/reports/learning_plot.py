"""The curves of a training, and what a network makes of each feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hocket.reports.figure_style import colour, drawing, save


def draw_learning(
    folder: Path,
    generations: Sequence[int],
    rewards: Sequence[float],
    validation: Sequence[tuple[int, float]],
    weights: Mapping[str, tuple[float, float]],
) -> list[Path]:
    """Reward by generation, gain over MLF-H on other windows, and each feature's pull, before and at the end."""
    with drawing() as figure:
        sheet = figure((11.0, 4.2))
        left, middle, right = sheet.subplots(1, 3)
        left.plot(generations, rewards, color=colour(0))
        left.set_xlabel("generation")
        left.set_ylabel("reward of its windows, discounted")
        middle.axhline(0.0, color="0.7", linewidth=0.8)
        middle.plot([n for n, _gain in validation], [100 * gain for _n, gain in validation], "o-", color=colour(1))
        middle.set_xlabel("generation")
        middle.set_ylabel("reward over MLF-H on the validation's windows (%)")
        names = list(weights)
        for k, label in enumerate(("after imitation", "at the end")):
            at = [n + (k - 0.5) * 0.38 for n in range(len(names))]
            right.barh(at, [weights[name][k] for name in names], height=0.36, color=colour(k), label=label)
        right.set_yticks(range(len(names)), names)
        right.invert_yaxis()
        right.axvline(0.0, color="0.7", linewidth=0.8)
        right.set_xlabel("what one deviation of a feature adds to a score")
        right.legend()
        return save(sheet, folder, "learning")
