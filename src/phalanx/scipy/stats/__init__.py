"""Distributions and statistics with the names of `scipy.stats`.

A distribution is a module of functions of arrays: `norm.logpdf(x, loc, scale)`. They are rows of the tables in
`continuous.py` and `discrete.py`, made by `families.py`; those of vectors are files of their own. `density.py` has the
estimate from samples, `samples.py` the statistics of samples.
"""

from typing import Any

from phalanx.scipy.stats import dirichlet as dirichlet
from phalanx.scipy.stats import multinomial as multinomial
from phalanx.scipy.stats import multivariate_normal as multivariate_normal
from phalanx.scipy.stats.continuous import CONTINUOUS as _CONTINUOUS
from phalanx.scipy.stats.density import gaussian_kde as gaussian_kde
from phalanx.scipy.stats.discrete import DISCRETE as _DISCRETE
from phalanx.scipy.stats.discrete import entropy as _entropy
from phalanx.scipy.stats.families import family_module as _family_module
from phalanx.scipy.stats.samples import mode as mode
from phalanx.scipy.stats.samples import rankdata as rankdata
from phalanx.scipy.stats.samples import sem as sem

_FAMILIES: dict[str, Any] = {
    row.name: _family_module(__name__, row, example, **values) for row, example, values in _CONTINUOUS + _DISCRETE
}
_FAMILIES["poisson"].entropy = _entropy
globals().update(_FAMILIES)

# Where doctest looks for the examples of functions that are made.
__test__ = {
    f"{family}.{name}": function
    for family, module in _FAMILIES.items()
    for name, function in vars(module).items()
    if not name.startswith("_")
}
