"""Operations that return their operand and restrict its use: `optimization_barrier`, `stop_gradient`, `copy`, `stage`.

They restrict the compiler, differentiation, the reuse of buffers and constant folding; `dce_sink` has no result, and
restricts dead code elimination.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.core import ZERO, Effect, Effects, Identity, Primitive, Ref, ShardingRule, Zero, get_aval, read_p, write_p
from phalanx.engine.mlir import hlo
from phalanx.lax.elementwise import dtype_kind
from phalanx.lax.shape import dim_names
from phalanx.runtime import Array, LoweringContext, put
from phalanx.tree import tree_flatten, tree_map, tree_unflatten
from phalanx.typing import ArrayLike


class OptimizationBarrier(Primitive, name="optimization_barrier", multiple=True):
    """The operands. The compiler computes all of them before any use, and moves no computation across."""

    def abstract_eval(self, *xs: Any) -> list:
        return list(xs)

    def sharding_rule(self, *xs: Any) -> ShardingRule:
        names = [dim_names(x.ndim, f"operand{i}_") for i, x in enumerate(xs)]
        return ShardingRule(names, names)

    def lower(self, ctx: LoweringContext, *xs: Any) -> list:
        return list(hlo.OptimizationBarrierOp(list(xs)).results) if xs else []

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple:
        ys = self(*primals)
        # Symbolic zeros need no barrier; the other tangents pass through a second one, as the primals do.
        passed = iter(self(*[t for t in tangents if type(t) is not Zero]))
        return ys, [t if type(t) is Zero else next(passed) for t in tangents]

    def transpose(self, y_bars: Sequence[Any], *xs: Any) -> tuple:
        passed = iter(self(*[y for y in y_bars if type(y) is not Zero]))
        return tuple(y if type(y) is Zero else next(passed) for y in y_bars)

    def batch(self, *args: Any) -> tuple:
        n = len(args) // 2
        return self(*args[:n]), list(args[n:])


optimization_barrier_p = OptimizationBarrier()


class StopGradient(Identity, name="stop_gradient"):
    """`x`, with a zero derivative."""

    jvp = ZERO
    transpose = Primitive.transpose

    def run(self, x: ArrayLike) -> Any:
        """Evaluate eagerly, without compiling: there is nothing to compute."""
        return x if type(x) is Array else put(x)


stop_gradient_p = StopGradient()


class Copy(Identity, name="copy"):
    """`x`, in a new buffer, and so its cotangent: either may be donated without the other."""

    def transpose(self, y_bar: Any, x: Any) -> tuple:
        return (self(y_bar),)


copy_p = Copy()

# An effect keeps the equation through dead code elimination.
_kept = Effect("Kept", recomputed=True)


class DceSink(Primitive, name="dce_sink", multiple=True):
    """A use of its operands without results, which keeps the equations that compute them."""

    def abstract_eval(self, *xs: Any) -> list:
        return []

    def sharding_rule(self, *xs: Any) -> ShardingRule:
        return ShardingRule([dim_names(x.ndim, f"operand{i}_") for i, x in enumerate(xs)], [])

    def effects(self, *xs: Any) -> Effects:
        return frozenset((_kept,))

    def lower(self, ctx: LoweringContext, *xs: Any) -> list:
        return []

    jvp = ZERO

    def batch(self, *args: Any) -> tuple:
        return self(*args[: len(args) // 2]), []


dce_sink_p = DceSink()


def optimization_barrier(operand: ArrayLike, /) -> Any:
    """Prevent the compiler from moving or merging computations across this point.

    Args:
      operand: a pytree of arrays and mutable array references.

    Returns:
      The same pytree; all of its leaves are computed before any of them is used.

    Examples:
      >>> from phalanx import lax
      >>> float(lax.optimization_barrier(2.0))
      2.0
    """
    flat, tree = tree_flatten(operand)
    out = optimization_barrier_p(*[read_p(x) if isinstance(x, Ref) else x for x in flat])
    for i, x in enumerate(flat):
        if isinstance(x, Ref):
            write_p(x, out[i])
            out[i] = x
    return tree_unflatten(tree, out)


def stop_gradient(x: ArrayLike) -> Any:
    """Treat a value as a constant in differentiation.

    Args:
      x: a pytree of arrays.

    Returns:
      The same pytree, with zero derivatives.

    Examples:
      >>> import phalanx
      >>> from phalanx import lax
      >>> float(phalanx.grad(lambda x: x * lax.stop_gradient(x))(3.0))
      3.0
    """
    return _stop_leaf(x) if hasattr(x, "aval") else tree_map(_stop_leaf, x)


def _stop_leaf(x: ArrayLike) -> Any:
    return stop_gradient_p(x) if dtype_kind(get_aval(x).dtype) in ("float", "complex") else x


def stage(x: ArrayLike, /) -> Any:
    """Turn a value into an array of the current trace.

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
      val: a pytree of arrays.
      prevent_mlir_dce: also prevent the compiler from removing it.

    Examples:
      >>> from phalanx import lax
      >>> lax.dce_sink(2.0)
    """
    flat, _ = tree_flatten(val)
    flat = optimization_barrier_p(*flat) if prevent_mlir_dce else flat
    dce_sink_p(*flat)
