"""Distributions and statistics with the names of `scipy.stats`.

A distribution is a module of functions of arrays, such as `norm.logpdf(x, loc, scale)`. The univariate ones are made
from the rows of the table in `univariate_distributions`; multivariate ones have a file each.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.scipy.stats.kernel_density import gaussian_kde as gaussian_kde
from phalanx.scipy.stats.summary_statistics import mode as mode, rankdata as rankdata, sem as sem
from phalanx.scipy.stats.univariate_distributions import DISTRIBUTIONS as _DISTRIBUTIONS

globals().update(_DISTRIBUTIONS)
_MULTIVARIATE = "dirichlet multinomial multivariate_normal"
__getattr__, __dir__ = _publish(globals(), modules=" ".join((_MULTIVARIATE, *_DISTRIBUTIONS)))

# The functions of a distribution are made at run time; doctest finds their examples in this mapping.
__test__ = {
    f"{distribution}.{name}": function
    for distribution, module in _DISTRIBUTIONS.items()
    for name, function in vars(module).items()
    if not name.startswith("_")
}
