"""The modules of univariate distributions, such as `phalanx.scipy.stats.norm`, made from the tables of distributions.

Builds on `distribution`; the `__init__` of this package adds the modules to its namespace.
"""

from __future__ import annotations

from typing import Any

from phalanx.scipy.stats.continuous_distributions import CONTINUOUS
from phalanx.scipy.stats.discrete_distributions import DISCRETE, entropy
from phalanx.scipy.stats.distribution import distribution_module

DISTRIBUTIONS: dict[str, Any] = {
    row.name: distribution_module("phalanx.scipy.stats", row, example, **values)
    for row, example, values in CONTINUOUS + DISCRETE
}
DISTRIBUTIONS["poisson"].entropy = entropy
