"""Public functions of bits. Their primitives are in `elementwise_primitives`."""

from __future__ import annotations

from phalanx.lax.elementwise import elementwise_primitives as p
from phalanx.lax.elementwise.wrappers import binary_wrapper, unary_wrapper

bitwise_and = binary_wrapper(p.and_p, "Bitwise and", "6, 5", "4")
bitwise_or = binary_wrapper(p.or_p, "Bitwise or", "6, 5", "7")
bitwise_xor = binary_wrapper(p.xor_p, "Bitwise exclusive or", "6, 5", "3")
bitwise_not = unary_wrapper(p.not_p, "Bitwise complement", "0", "-1")
shift_left = binary_wrapper(p.shift_left_p, "x shifted left by y bits", "3, 2", "12")
shift_right_arithmetic = binary_wrapper(
    p.shift_right_arithmetic_p, "x shifted right by y bits, filled with the sign bit", "6, 2", "1"
)
shift_right_logical = binary_wrapper(
    p.shift_right_logical_p, "x shifted right by y bits, filled with zeros", "6, 2", "1"
)
population_count = unary_wrapper(p.population_count_p, "The number of one bits", "7", "3")
clz = unary_wrapper(p.clz_p, "The number of leading zero bits", "1", "31")
