"""An integer program in rows and columns, and HiGHS to solve it: the same answer to the same question, every time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct


class Effort(Struct, frozen=True):
    """When a search may stop. Nodes are counted, so that an answer does not depend on the machine; seconds are not."""

    gap: float = 0.0  # of the objective, absolute
    nodes: int = 0  # of the search tree; 0 for no limit
    seconds: float = inf
    tolerance: float = 1e-6  # by which rows may be missed: rounded values must be checked


class Solved(Struct, frozen=True):
    """What a search came to."""

    values: Sequence[float] | None  # of the columns; None when nothing was found
    bound: float  # no solution has a larger objective; -inf when there is none at all
    infeasible: bool = False
    cut_off: bool = False  # by the seconds


class Program:
    """Maximise, over columns with bounds, under rows with bounds."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._least: list[float] = []
        self._most: list[float] = []
        self._whole: list[bool] = []
        self._from: list[float] = []
        self._to: list[float] = []
        self._starts: list[int] = [0]
        self._columns: list[int] = []
        self._factors: list[float] = []
        self.offset = 0.0

    def column(self, gain: float = 0.0, least: float = 0.0, most: float = inf, whole: bool = True) -> int:
        """A new variable; its number."""
        self._cost.append(gain)
        self._least.append(least)
        self._most.append(most)
        self._whole.append(whole)
        return len(self._cost) - 1

    def row(self, entries: Iterable[tuple[int, float]], least: float = -inf, most: float = inf) -> int:
        """A new constraint: what these columns, times these factors, add up to; its number."""
        for column, factor in entries:
            self._columns.append(column)
            self._factors.append(factor)
        self._starts.append(len(self._columns))
        self._from.append(least)
        self._to.append(most)
        return len(self._from) - 1

    def solve(self, effort: Effort, start: Sequence[float] | None = None) -> Solved:
        """The best values that the effort finds, and the best bound that it proves."""
        import highspy
        import numpy as np

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self._cost), len(self._from)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = (np.array(v) for v in (self._cost, self._least, self._most))
        lp.row_lower_, lp.row_upper_ = np.array(self._from), np.array(self._to)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._starts)
        lp.a_matrix_.index_ = np.array(self._columns)
        lp.a_matrix_.value_ = np.array(self._factors)
        lp.integrality_ = [
            highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous for whole in self._whole
        ]
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.offset_ = self.offset
        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 1),
            ("mip_allow_restart", False),  # Root work again costs more than it saves in programs this small.
            ("mip_rel_gap", 0.0),
            ("mip_pool_soft_limit", 100),  # So do more cuts,
            ("mip_heuristic_run_feasibility_jump", False),  # and a heuristic that the others make needless.
            ("mip_abs_gap", max(effort.gap, 1e-9)),
            ("mip_feasibility_tolerance", effort.tolerance),
            ("primal_feasibility_tolerance", effort.tolerance / 10),
            ("mip_max_nodes", effort.nodes or 2**31 - 1),
            ("time_limit", effort.seconds),
        ):
            highs.setOptionValue(name, value)
        highs.passModel(lp)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = list(start)
            highs.setSolution(solution)
        highs.run()
        status, info = highs.getModelStatus(), highs.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Solved(None, -inf, infeasible=True)
        found = info.primal_solution_status == 2  # a feasible one
        values = list(highs.getSolution().col_value) if found else None
        cut_off = status == highspy.HighsModelStatus.kTimeLimit
        return Solved(values, info.mip_dual_bound, cut_off=cut_off)
