"""Special functions with the names of `scipy.special`."""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.scipy.special.error_functions import (
    dawsn as dawsn,
    erfcx as erfcx,
    fresnel as fresnel,
    owens_t as owens_t,
    wofz as wofz,
)
from phalanx.scipy.special.exponential_integrals import (
    exp1 as exp1,
    expi as expi,
    expn as expn,
    sici as sici,
    spence as spence,
)
from phalanx.scipy.special.gamma_functions import (
    betainc as betainc,
    comb as comb,
    factorial as factorial,
    multigammaln as multigammaln,
    poch as poch,
    polygamma as polygamma,
)
from phalanx.scipy.special.hypergeometric import (
    bernoulli as bernoulli,
    bessel_jn as bessel_jn,
    hyp1f1 as hyp1f1,
    hyp2f1 as hyp2f1,
    sph_harm_y as sph_harm_y,
)
from phalanx.scipy.special.log_sum_exp import log_softmax as log_softmax, logsumexp as logsumexp, softmax as softmax
from phalanx.scipy.special.special_ufuncs import (
    beta as beta,
    betaln as betaln,
    boxcox as boxcox,
    boxcox1p as boxcox1p,
    digamma as digamma,
    entr as entr,
    erf as erf,
    erfc as erfc,
    erfcinv as erfcinv,
    erfinv as erfinv,
    expit as expit,
    gamma as gamma,
    gammainc as gammainc,
    gammaincc as gammaincc,
    gammaln as gammaln,
    gammasgn as gammasgn,
    i0 as i0,
    i0e as i0e,
    i1 as i1,
    i1e as i1e,
    kl_div as kl_div,
    log_ndtr as log_ndtr,
    loggamma as loggamma,
    logit as logit,
    ndtr as ndtr,
    ndtri as ndtri,
    rel_entr as rel_entr,
    xlog1py as xlog1py,
    xlogy as xlogy,
    zeta as zeta,
)

__getattr__, __dir__ = _publish(globals())
