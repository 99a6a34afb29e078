"""Public functions: exponentials, logarithms, trigonometric and hyperbolic functions, roots."""

from __future__ import annotations

from phalanx.lax.elementwise import elementwise_primitives as p
from phalanx.lax.elementwise.wrappers import Accuracy as Accuracy, binary_wrapper, unary_wrapper

exp = unary_wrapper(p.exp_p, "e to the power of each element", "0.0", "1.0", accuracy=True)
exp2 = unary_wrapper(p.exp2_p, "2 to the power of each element", "3.0", "8.0", accuracy=True)
expm1 = unary_wrapper(p.expm1_p, "exp(x) - 1, accurate also for small x", "0.0", "0.0", accuracy=True)
log = unary_wrapper(p.log_p, "Natural logarithm of each element", "1.0", "0.0", accuracy=True)
log2 = unary_wrapper(p.log2_p, "Logarithm to base 2 of each element", "8.0", "3.0", accuracy=True)
log1p = unary_wrapper(p.log1p_p, "log(1 + x), accurate also for small x", "0.0", "0.0", accuracy=True)
logistic = unary_wrapper(p.logistic_p, "The logistic function 1 / (1 + exp(-x))", "0.0", "0.5", accuracy=True)
sin = unary_wrapper(p.sin_p, "Sine of each element, in radians", "0.0", "0.0", accuracy=True)
cos = unary_wrapper(p.cos_p, "Cosine of each element, in radians", "0.0", "1.0", accuracy=True)
tan = unary_wrapper(p.tan_p, "Tangent of each element, in radians", "0.0", "0.0", accuracy=True)
asin = unary_wrapper(p.asin_p, "Arc sine, in radians", "0.0", "0.0")
acos = unary_wrapper(p.acos_p, "Arc cosine, in radians", "1.0", "0.0")
atan = unary_wrapper(p.atan_p, "Arc tangent, in radians", "0.0", "0.0")
sinh = unary_wrapper(p.sinh_p, "Hyperbolic sine", "0.0", "0.0")
cosh = unary_wrapper(p.cosh_p, "Hyperbolic cosine", "0.0", "1.0")
tanh = unary_wrapper(p.tanh_p, "Hyperbolic tangent", "0.0", "0.0", accuracy=True)
asinh = unary_wrapper(p.asinh_p, "Inverse hyperbolic sine", "0.0", "0.0")
acosh = unary_wrapper(p.acosh_p, "Inverse hyperbolic cosine", "1.0", "0.0")
atanh = unary_wrapper(p.atanh_p, "Inverse hyperbolic tangent", "0.0", "0.0")
atan2 = binary_wrapper(
    p.atan2_p,
    "Angle of the point (y, x) in the plane, in radians: the arc tangent of x / y in the right quadrant",
    "0.0, 1.0",
    "0.0",
)
sqrt = unary_wrapper(p.sqrt_p, "Square root of each element", "4.0", "2.0", accuracy=True)
rsqrt = unary_wrapper(p.rsqrt_p, "1 / sqrt(x)", "4.0", "0.5", accuracy=True)
cbrt = unary_wrapper(p.cbrt_p, "Cube root of each element", "0.0", "0.0", accuracy=True)
