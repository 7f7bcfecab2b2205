"""What makes one choice better than another."""

from __future__ import annotations

from msgspec import Struct

Key = tuple[float, float, int]  # smaller is better


class Objective(Struct, frozen=True):
    """The latest end of all jobs, as in the paper, or their mean."""

    mean: bool = False

    def key(self, last_s: float, sum_s: float, moved: int) -> Key:
        """The latest end, what the choice adds to the sum of all ends, and how many GPUs change hands."""
        return (sum_s, last_s, moved) if self.mean else (last_s, sum_s, moved)
