"""Operations on bits: the public functions over the tables of `elementwise`."""

from __future__ import annotations

from phalanx.lax import elementwise as p
from phalanx.lax.faces import one, two

# fmt: off
bitwise_and = two(p.and_p, "Bits set in both", "6, 5", "4")
bitwise_or = two(p.or_p, "Bits set in either", "6, 5", "7")
bitwise_xor = two(p.xor_p, "Bits set in one only", "6, 5", "3")
bitwise_not = one(p.not_p, "Bits that are not set", "0", "-1")
shift_left = two(p.shift_left_p, "Bits of x moved up by y, zeros coming in", "3, 2", "12")
shift_right_arithmetic = two(p.shift_right_arithmetic_p, "Bits of x moved down by y, the sign coming in", "6, 2", "1")
shift_right_logical = two(p.shift_right_logical_p, "Bits of x moved down by y, zeros coming in", "6, 2", "1")
population_count = one(p.population_count_p, "The number of bits that are set", "7", "3")
clz = one(p.clz_p, "The number of zero bits before the first one", "1", "31")
# fmt: on
