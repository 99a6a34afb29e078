"""Operations that leave values as they are: `optimization_barrier`, `stop_gradient`, `copy`, `stage`, `dce_sink`."""

from __future__ import annotations

from typing import Any

from phalanx.core.aval import aval_of
from phalanx.core.effects import Effect, Effects
from phalanx.core.primitive import ZERO, Identity, Primitive, Roles
from phalanx.core.tangent import Zero
from phalanx.engine.mlir import hlo
from phalanx.lax.broadcast import dim_names
from phalanx.lax.family import kind_of
from phalanx.runtime.array import Array
from phalanx.runtime.placement import put
from phalanx.tree import tree_flatten, tree_map, tree_unflatten


class OptimizationBarrier(Primitive, name="optimization_barrier", multiple=True):
    """The operands, all computed before any use of one, and never moved or merged by the compiler."""

    def result(self, *xs: Any) -> list:
        return list(xs)

    def roles(self, *xs: Any) -> Roles:
        names = [dim_names(x.ndim, f"operand{i}_") for i, x in enumerate(xs)]
        return Roles(names, names)

    def lower(self, ctx: Any, *xs: Any) -> list:
        return list(hlo.OptimizationBarrierOp(list(xs)).results) if xs else []

    def jvp(self, primals: Any, tangents: Any) -> tuple:
        ys = self(*primals)
        some = [t for t in tangents if type(t) is not Zero]
        passed = iter(self(*some))
        return ys, [t if type(t) is Zero else next(passed) for t in tangents]

    def transpose(self, y_bars: Any, *xs: Any) -> tuple:
        passed = iter(self(*[y for y in y_bars if type(y) is not Zero]))
        return tuple(y if type(y) is Zero else next(passed) for y in y_bars)

    def batch(self, *args: Any) -> tuple:
        n = len(args) // 2
        return self(*args[:n]), list(args[n:])


optimization_barrier_p = OptimizationBarrier()


class StopGradient(Identity, name="stop_gradient"):
    """`x`, as a constant to differentiation."""

    jvp = ZERO
    transpose = Primitive.transpose

    def run(self, x: Any) -> Any:
        """At once there is nothing to compute."""
        return x if type(x) is Array else put(x)


stop_gradient_p = StopGradient()


class Copy(Identity, name="copy"):
    """`x`, in a buffer of its own."""


copy_p = Copy()

_kept = Effect("Kept", recomputed=True)


class DceSink(Primitive, name="dce_sink", multiple=True):
    """A use of `x` without result, so that what computes it is not dropped."""

    def result(self, *xs: Any) -> list:
        return []

    def roles(self, *xs: Any) -> Roles:
        return Roles([dim_names(x.ndim, f"operand{i}_") for i, x in enumerate(xs)], [])

    def effects(self, *xs: Any) -> Effects:
        return frozenset((_kept,))

    def lower(self, ctx: Any, *xs: Any) -> list:
        return []

    jvp = ZERO

    def batch(self, *args: Any) -> tuple:
        return self(*args[: len(args) // 2]), []


dce_sink_p = DceSink()


def optimization_barrier(operand: Any, /) -> Any:
    """Keep the compiler from moving or merging computations across a line.

    Args:
      operand: a tree of arrays.

    Returns:
      The same tree; all of it is computed before any of it is used.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.optimization_barrier(2.0))
      2.0
    """
    flat, tree = tree_flatten(operand)
    return tree_unflatten(tree, optimization_barrier_p(*flat))


def stop_gradient(x: Any) -> Any:
    """Make a value a constant to differentiation.

    Args:
      x: a tree of arrays.

    Returns:
      The same tree, with zero derivative.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> float(phalanx.grad(lambda x: x * lax.stop_gradient(x))(3.0))
      3.0
    """
    return _stop_leaf(x) if hasattr(x, "aval") else tree_map(_stop_leaf, x)


def _stop_leaf(x: Any) -> Any:
    return stop_gradient_p(x) if kind_of(aval_of(x).dtype) in ("float", "complex") else x


def stage(x: Any, /) -> Any:
    """Give a value to the trace it is used in.

    Args:
      x: an array or scalar.

    Returns:
      The same value as an array.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.stage(2.0))
      2.0
    """
    return x if hasattr(x, "aval") else copy_p(x)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Keep a value in the program although nothing reads it.

    Args:
      val: a tree of arrays.
      prevent_mlir_dce: keep it from the compiler's own clean-up as well.

    Examples:
      >>> from phalanx import lax
      >>> lax.dce_sink(2.0)
    """
    flat, _ = tree_flatten(val)
    if prevent_mlir_dce:
        flat = optimization_barrier_p(*flat)
    dce_sink_p(*flat)
