"""Public functions of complex numbers. Their primitives are in `elementwise_primitives`."""

from __future__ import annotations

from phalanx.lax.elementwise import elementwise_primitives as p
from phalanx.lax.elementwise.wrappers import binary_wrapper, unary_wrapper

real = unary_wrapper(p.real_p, "Real part of each element", "1 + 2j", "1.0", result="float")
imag = unary_wrapper(p.imag_p, "Imaginary part of each element", "1 + 2j", "2.0", result="float")
complex = binary_wrapper(
    p.complex_p, "Complex numbers with real part x and imaginary part y", "1.0, 2.0", "(1+2j)", result="complex"
)
conj = unary_wrapper(p.conj_p, "Complex conjugate of each element", "1 + 2j", "(1-2j)", result="complex")
