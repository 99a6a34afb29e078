"""Linear programming in exact integers: a fraction-free simplex method.

All numbers of the tableau are integers over one common denominator, the last pivot (Edmonds 1967, Bareiss 1968), so no
precision is lost and no fraction is reduced. Bland's rule excludes cycles; the number of pivots is limited, because the
programs may come from artifacts of others.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_MAX_PIVOTS: Final = 400


class WorkLimitError(Exception):
    """Decisions about symbolic dimensions took more work than `limit_work` allows."""


_work_left: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar(
    "phalanx.symbolic.work_left", default=None
)


@contextlib.contextmanager
def limit_work(entries: int) -> Iterator[None]:
    """Limit the linear programming inside a `with` block, where dimensions come from files of unknown origin.

    A block inside another one shares its limit.

    Args:
      entries: the number of entries of tableaus that may be computed, about three million in a second.

    Raises:
      WorkLimitError: inside the block, if more are needed.
    """
    token = _work_left.set(_work_left.get() or [entries])
    try:
        yield
    finally:
        _work_left.reset(token)


def _spend(entries: int) -> None:
    left = _work_left.get()
    if left is not None:
        left[0] -= entries
        if left[0] < 0:
            raise WorkLimitError


def minimize(rows: list[list[int]], costs: list[int]) -> tuple[int, int]:
    """Minimize the cost of non-negative multipliers that solve a system of linear equations.

    Args:
      rows: for each equation the coefficients of the multipliers, then the right side, which is not negative.
      costs: the cost of each multiplier.

    Returns:
      Minus the minimum as a fraction (numerator, denominator); (1, 0) if the cost has no lower bound; (-1, 0) if there
      is no solution, or none was found within the limit of pivots.
    """
    height, width = len(rows), len(costs)
    _spend(height * (height + width))
    rows = [[*row[:-1], *(int(i == j) for j in range(height)), row[-1]] for i, row in enumerate(rows)]
    # First phase: one artificial multiplier for each equation; minimize their sum, which is 0 if there is a solution.
    objective = [-sum(row[j] for row in rows) for j in range(width)] + [0] * height + [-sum(row[-1] for row in rows)]
    tableau = _Tableau([*rows, objective], list(range(width, width + height)))
    if not tableau.minimize(width) or tableau.rows[-1][-1] != 0:
        return -1, 0
    tableau.drop_artificial(width)
    tableau.rows[-1] = tableau.reduce_costs([*costs, *[0] * height, 0])
    if not tableau.minimize(width):
        return (1, 0) if tableau.is_unbounded else (-1, 0)
    return tableau.rows[-1][-1], tableau.denominator


@dataclass
class _Tableau:
    """A simplex tableau of integers over one denominator, whose last row is the objective."""

    rows: list[list[int]]
    basis: list[int]
    denominator: int = 1
    is_unbounded: bool = False

    def minimize(self, width: int) -> bool:
        """Pivot until the objective is minimal; False if it is unbounded or the limit of pivots is reached."""
        for _ in range(_MAX_PIVOTS):
            objective = self.rows[-1]
            # Bland's rule: the first column that improves the objective, and of rows with equal ratios the first basis
            # variable. It may take more steps than the steepest column, but never cycles.
            column = next((j for j in range(width) if objective[j] < 0), None)
            if column is None:
                return True
            rows = zip(self.rows[:-1], self.basis, strict=True)
            # The smallest ratio keeps all multipliers non-negative after the pivot.
            ratios = [(Fraction(row[-1], row[column]), b, i) for i, (row, b) in enumerate(rows) if row[column] > 0]
            if not ratios:
                self.is_unbounded = True
                return False
            self.pivot(min(ratios)[-1], column)
        return False

    def pivot(self, at: int, column: int) -> None:
        """Enter `column` into the basis at row `at`."""
        chosen = self.rows[at]
        _spend(len(self.rows) * len(chosen))
        if chosen[column] < 0:
            chosen = self.rows[at] = [-v for v in chosen]
        p, d = chosen[column], self.denominator
        for i, row in enumerate(self.rows):
            if i != at:
                q = row[column]
                # The division is exact: every entry is a subdeterminant of the original tableau (Bareiss 1968).
                self.rows[i] = [(v * p - q * c) // d for v, c in zip(row, chosen, strict=True)]
        self.denominator = p
        self.basis[at] = column

    def drop_artificial(self, width: int) -> None:
        """Remove the artificial multipliers, which are 0 now, from the basis; a row with no others is redundant."""
        for i in reversed(range(len(self.basis))):
            if self.basis[i] >= width:
                column = next((j for j in range(width) if self.rows[i][j]), None)
                if column is None:
                    del self.rows[i], self.basis[i]
                else:
                    self.pivot(i, column)

    def reduce_costs(self, costs: list[int]) -> list[int]:
        """The objective row in terms of the columns outside the basis."""
        objective = [c * self.denominator for c in costs]
        for row, column in zip(self.rows, self.basis, strict=False):
            if costs[column]:
                objective = [g - costs[column] * v for g, v in zip(objective, row, strict=True)]
        return objective
