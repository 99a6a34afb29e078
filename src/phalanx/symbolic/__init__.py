"""Symbolic dimensions: sizes that are polynomials in variables, their arithmetic, and what holds for all sizes.

A dimension is an `int` or a `Dim`. `dims` is what the rooms above ask of either, `polynomials` the arithmetic,
`deciding` the answers to comparisons. Builds on the error records; `core` has dimensions in its types, and `export`
makes them.
"""

from phalanx.symbolic.dims import dilate as dilate
from phalanx.symbolic.dims import divide_exactly as divide_exactly
from phalanx.symbolic.dims import is_constant_dim as is_constant_dim
from phalanx.symbolic.dims import is_constant_shape as is_constant_shape
from phalanx.symbolic.dims import is_symbolic as is_symbolic
from phalanx.symbolic.dims import max_dim as max_dim
from phalanx.symbolic.dims import min_dim as min_dim
from phalanx.symbolic.dims import non_negative as non_negative
from phalanx.symbolic.dims import same_dim as same_dim
from phalanx.symbolic.dims import same_shape as same_shape
from phalanx.symbolic.dims import size_of as size_of
from phalanx.symbolic.dims import static_size as static_size
from phalanx.symbolic.dims import windows as windows
from phalanx.symbolic.polynomials import Dim as Dim
from phalanx.symbolic.polynomials import Fact as Fact
from phalanx.symbolic.polynomials import Factor as Factor
from phalanx.symbolic.polynomials import Scope as Scope
from phalanx.symbolic.polynomials import arrays as arrays
from phalanx.symbolic.polynomials import bounds as bounds
from phalanx.symbolic.polynomials import evaluate as evaluate
