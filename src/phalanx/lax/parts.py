"""Complex numbers and their parts: the public functions over the tables of `elementwise`."""

from __future__ import annotations

from phalanx.lax import elementwise as p
from phalanx.lax.faces import one, two

real = one(p.real_p, "Real part of each element", "1 + 2j", "1.0", result="float")
imag = one(p.imag_p, "Imaginary part of each element", "1 + 2j", "2.0", result="float")
complex = two(
    p.complex_p, "Complex numbers with real part x and imaginary part y", "1.0, 2.0", "(1+2j)", result="complex"
)
conj = one(p.conj_p, "Complex conjugate of each element", "1 + 2j", "(1-2j)", result="complex")
