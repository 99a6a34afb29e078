"""Symbolic dimensions: sizes that are polynomials in variables.

A size is an `int` or a `Dim` (`symbolic_dimension`). `dim_queries` has the questions of other packages about sizes.
`Dim` builds on `dim_polynomials` (representation, sums and products), `simplex` and `linear_bounds` (bounds and
comparisons), `dim_division`, `dim_extrema` (maxima and minima) and `dim_printing`, each of which builds only on modules
named before it. `core` has sizes in its types, and `export` makes variables for them.
"""

from phalanx.symbolic.dim_polynomials import Factor as Factor, bounds as bounds, evaluate as evaluate
from phalanx.symbolic.dim_queries import (
    dilate as dilate,
    divide_exactly as divide_exactly,
    is_constant_shape as is_constant_shape,
    is_symbolic as is_symbolic,
    max_dim as max_dim,
    min_dim as min_dim,
    non_negative as non_negative,
    same_dim as same_dim,
    same_shape as same_shape,
    size_of as size_of,
    static_size as static_size,
    windows as windows,
)
from phalanx.symbolic.symbolic_dimension import Dim as Dim, Fact as Fact, Scope as Scope, arrays as arrays
