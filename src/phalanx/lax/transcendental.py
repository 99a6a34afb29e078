"""Exponentials, logarithms, circular and hyperbolic functions, roots: the public functions over `elementwise`."""

from __future__ import annotations

from phalanx.lax import elementwise as p
from phalanx.lax.faces import Accuracy as Accuracy
from phalanx.lax.faces import one, two

# fmt: off
exp = one(p.exp_p, "e to the power of each element", "0.0", "1.0", accuracy=True)
exp2 = one(p.exp2_p, "2 to the power of each element", "3.0", "8.0", accuracy=True)
expm1 = one(p.expm1_p, "exp(x) - 1, exact also for small x", "0.0", "0.0", accuracy=True)
log = one(p.log_p, "Natural logarithm of each element", "1.0", "0.0", accuracy=True)
log2 = one(p.log2_p, "Logarithm to base 2 of each element", "8.0", "3.0", accuracy=True)
log1p = one(p.log1p_p, "log(1 + x), exact also for small x", "0.0", "0.0", accuracy=True)
logistic = one(p.logistic_p, "The logistic function 1 / (1 + exp(-x))", "0.0", "0.5", accuracy=True)
sin = one(p.sin_p, "Sine of each element, in radians", "0.0", "0.0", accuracy=True)
cos = one(p.cos_p, "Cosine of each element, in radians", "0.0", "1.0", accuracy=True)
tan = one(p.tan_p, "Tangent of each element, in radians", "0.0", "0.0", accuracy=True)
asin = one(p.asin_p, "Arc sine, in radians", "0.0", "0.0")
acos = one(p.acos_p, "Arc cosine, in radians", "1.0", "0.0")
atan = one(p.atan_p, "Arc tangent, in radians", "0.0", "0.0")
sinh = one(p.sinh_p, "Hyperbolic sine", "0.0", "0.0")
cosh = one(p.cosh_p, "Hyperbolic cosine", "0.0", "1.0")
tanh = one(p.tanh_p, "Hyperbolic tangent", "0.0", "0.0", accuracy=True)
asinh = one(p.asinh_p, "Inverse hyperbolic sine", "0.0", "0.0")
acosh = one(p.acosh_p, "Inverse hyperbolic cosine", "1.0", "0.0")
atanh = one(p.atanh_p, "Inverse hyperbolic tangent", "0.0", "0.0")
atan2 = two(p.atan2_p, "The angle of the point with ordinate x and abscissa y, in radians", "0.0, 1.0", "0.0")
sqrt = one(p.sqrt_p, "Square root of each element", "4.0", "2.0", accuracy=True)
rsqrt = one(p.rsqrt_p, "1 / sqrt(x)", "4.0", "0.5", accuracy=True)
cbrt = one(p.cbrt_p, "Cube root of each element", "0.0", "0.0", accuracy=True)
# fmt: on
