"""Random numbers from explicit keys, with the names of `jax.random`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.random.choice_and_permutation import choice as choice, permutation as permutation
from phalanx.random.continuous_distributions import (
    ball as ball,
    beta as beta,
    cauchy as cauchy,
    chisquare as chisquare,
    dirichlet as dirichlet,
    double_sided_maxwell as double_sided_maxwell,
    exponential as exponential,
    f as f,
    gamma as gamma,
    generalized_normal as generalized_normal,
    gumbel as gumbel,
    laplace as laplace,
    loggamma as loggamma,
    logistic as logistic,
    lognormal as lognormal,
    maxwell as maxwell,
    normal as normal,
    pareto as pareto,
    rayleigh as rayleigh,
    t as t,
    triangular as triangular,
    truncated_normal as truncated_normal,
    wald as wald,
    weibull_min as weibull_min,
)
from phalanx.random.prng_keys import (
    Key as Key,
    PRNGKey as PRNGKey,
    bits as bits,
    clone as clone,
    fold_in as fold_in,
    key as key,
    key_data as key_data,
    key_dtype as key_dtype,
    key_impl as key_impl,
    split as split,
    wrap_key_data as wrap_key_data,
)
from phalanx.random.uniform import (
    bernoulli as bernoulli,
    rademacher as rademacher,
    randint as randint,
    uniform as uniform,
)

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING, whose import would cost time

if TYPE_CHECKING:
    from phalanx.random.discrete_distributions import (
        binomial as binomial,
        categorical as categorical,
        geometric as geometric,
        multinomial as multinomial,
        poisson as poisson,
    )
    from phalanx.random.multivariate_distributions import (
        multivariate_normal as multivariate_normal,
        orthogonal as orthogonal,
    )

__getattr__, __dir__ = _publish(
    globals(),
    lazy={
        "discrete_distributions": "binomial categorical geometric multinomial poisson",
        "multivariate_distributions": "multivariate_normal orthogonal",
    },
)
