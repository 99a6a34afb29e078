"""Calls of user-supplied kernels, functions of C or CUDA that are registered with XLA: the primitive `ffi_call`.

Kernels are registered by `ffi_registration`; `phalanx.ffi` has the public functions of both. Builds on
`LoweringContext.custom_call`; a call is batched by the methods of `callback`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import (
    ArgumentError,
    Effects,
    Primitive,
    RuleError,
    ShapedArray,
    ShapeError,
    ShardingRule,
    Undefined,
    io_effect,
    no_effects,
)
from phalanx.lax.callback import LEGACY, VMAP_METHODS, batch_by_method, check_vmap_method, result_aval
from phalanx.lax.composite import attribute_to_mlir, freeze_attributes
from phalanx.runtime import Layout, LoweringContext
from phalanx.transforms.batching import AxisData
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.typing import PyTree

# A kernel infers the number of batch dimensions from the shapes, so that every operand must have them.
METHODS = tuple([method for method in VMAP_METHODS if method != LEGACY])


class FfiCall(Primitive, name="ffi_call", multiple=True):
    """Call a kernel over `num_batch` leading dimensions: (*operands) -> results of the declared types."""

    jvp = Undefined("the derivative of a kernel is unknown; wrap the call in a custom_jvp or custom_vjp function")
    transpose = Undefined("the transpose of a kernel is unknown; wrap the call in a custom_vjp function")

    def abstract_eval(self, *xs: Any, results: tuple, num_batch: int, **_: Any) -> list:
        # An operand that is not mapped has size 1 in a batch dimension.
        batch = [next((x.shape[d] for x in xs if x.shape[d] != 1), 1) for d in range(num_batch)]
        return [r.with_shape((*batch, *r.shape)) for r in results]

    def effects(self, *_: Any, has_side_effect: bool, **__: Any) -> Effects:
        return frozenset({io_effect}) if has_side_effect else no_effects

    def sharding_rule(self, *xs: Any, results: tuple, num_batch: int, **params: Any) -> ShardingRule:
        outs = self.abstract_eval(*xs, results=results, num_batch=num_batch, **params)
        batch = outs[0].shape[:num_batch] if outs else ()

        # A dimension of size 1 in a batch position belongs to an operand that is not mapped, and is not sharded.
        def names(kind: str, i: int, shape: Sequence) -> list:
            is_batch = (d < num_batch and size == batch[d] for d, size in enumerate(shape))
            return [("batch", d) if is_one else (kind, i, d) for d, is_one in enumerate(is_batch)]

        operands = [names("operand", i, x.shape) for i, x in enumerate(xs)]
        given = [names("result", i, x.shape) for i, x in enumerate(outs)]
        whole = [name for dims in (*operands, *given) for name in dims if name[0] != "batch"]
        return ShardingRule(operands, given, whole=whole)

    def batch_axis(
        self,
        axis: AxisData,
        args: Sequence[Any],
        dims: Sequence[int],
        *,
        target: str,
        method: str | None,
        num_batch: int,
        **params: Any,
    ) -> tuple:
        if method is None:
            raise RuleError(
                f"vmap of ffi_call {target!r}",
                expected="a vmap_method",
                got="None",
                fix='pass vmap_method="sequential", or "expand_dims"/"broadcast_all" if the kernel takes batches',
            )

        def called(*operands: Any, is_batch: bool) -> list:
            return self(*operands, target=target, method=method, num_batch=num_batch + is_batch, **params)

        out = batch_by_method(method, axis, args, dims, called)
        return out, [0] * len(out)

    def lower(
        self,
        ctx: LoweringContext,
        *operands: Any,
        target: str,
        attributes: tuple,
        has_side_effect: bool,
        layouts: tuple,
        aliases: tuple,
        num_batch: int,
        version: int,
        config: str | None,
        **_: Any,
    ) -> list:
        # Batch dimensions are the most major ones; the layouts of the declaration follow, shifted past them.
        def orders(side: Sequence) -> list:
            return [(*(d + num_batch for d in order), *reversed(range(num_batch))) for order in side]

        return ctx.custom_call(
            target,
            operands,
            attributes={key: attribute_to_mlir(value) for key, value in attributes},
            has_side_effect=has_side_effect,
            operand_layouts=orders(layouts[0]),
            result_layouts=orders(layouts[1]),
            aliases={result: operand for operand, result in aliases},
            api_version=version,
            backend_config=config,
        )


ffi_call_p = FfiCall()


def ffi_call(
    target_name: str,
    result_shape_dtypes: PyTree,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: PyTree = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable:
    """Make a function of arrays from a registered kernel.

    Args:
      target_name: the name under which the kernel is registered.
      result_shape_dtypes: the types of the results, a pytree of `ShapeDtypeStruct`s or arrays.
      has_side_effect: whether to keep the call even if its results are not used.
      vmap_method: the batching rule. "sequential" calls the kernel for each example in a loop, "sequential_unrolled"
        without a loop. "expand_dims" and "broadcast_all" call it once, with a leading dimension on mapped arguments; on
        the other arguments this dimension has size 1, or is broadcast. A mesh may shard the leading dimension.
      input_layouts, output_layouts: for each argument and result the order of its dimensions in memory, from major to
        minor, as a sequence or a `Layout`; None for row-major.
      input_output_aliases: from the position of an argument to the position of the result that reuses its memory.
      custom_call_api_version: 4 for typed FFI handlers; lower for older functions.
      legacy_backend_config: the string that an older function receives.

    Returns:
      A function of arrays. Its keyword arguments are attributes of the call: numbers (NumPy numbers keep their dtype),
      strings, bools, NumPy arrays, and sequences and dicts of these.

    Raises:
      ArgumentError: an option does not match the arguments.
      RuleError: the call is mapped without a `vmap_method`, or differentiated.
      TargetError: no kernel is registered under the name.

    Examples:
      >>> import numpy as np, phalanx, phalanx.numpy as jnp
      >>> types = phalanx.ShapeDtypeStruct((2, 2), "float32"), phalanx.ShapeDtypeStruct((), "int32")
      >>> cholesky = phalanx.ffi.ffi_call("lapack_spotrf_ffi", types)
      >>> root, info = cholesky(4 * jnp.eye(2), uplo=np.uint8(ord("U")))
      >>> root.tolist(), int(info)
      ([[2.0, 0.0], [0.0, 2.0]], 0)
    """
    where = f"ffi_call {target_name!r}"
    check_vmap_method(where, vmap_method, METHODS)
    leaves, tree = tree_flatten(result_shape_dtypes)
    results = tuple(map(result_aval, leaves))
    # A single result may have a bare layout instead of a list of one.
    if isinstance(output_layouts, Layout) or (output_layouts is not None and len(leaves) == 1 and tree.num_nodes == 1):
        output_layouts = [output_layouts]

    # The arguments determine the types of the call: layouts and aliases are checked against them.
    def call(*args: Any, **attributes: Any) -> Any:
        avals = [result_aval(x) for x in args]
        layouts = (
            _orders(where, "input_layouts", input_layouts, avals),
            _orders(where, "output_layouts", output_layouts, results),
        )
        aliases = tuple((input_output_aliases or {}).items())
        for operand, result in aliases:
            if not 0 <= operand < len(avals) or not 0 <= result < len(results) or avals[operand] != results[result]:
                raise ArgumentError(
                    f"{where}, argument input_output_aliases",
                    expected="the positions of an argument and of a result of the same type",
                    got=f"{operand}: {result}",
                    fix="pass the positions of an argument and a result of equal shape and dtype",
                )
        out = ffi_call_p(
            *args,
            target=target_name,
            results=results,
            attributes=freeze_attributes(attributes, where),
            has_side_effect=has_side_effect,
            method=vmap_method,
            layouts=layouts,
            aliases=aliases,
            num_batch=0,
            version=custom_call_api_version,
            config=legacy_backend_config,
        )
        return tree_unflatten(tree, out)

    return call


def _orders(where: str, option: str, layouts: Sequence[Any] | None, avals: Sequence[ShapedArray]) -> tuple:
    """Convert layouts to orders of dimensions, from minor to major."""
    layouts = [None] * len(avals) if layouts is None else layouts
    if len(layouts) != len(avals):
        raise ArgumentError(
            f"{where}, argument {option}",
            expected=f"{len(avals)} layouts",
            got=len(layouts),
            fix="pass one layout for each array; None for row-major",
        )
    orders = []
    for i, (layout, aval) in enumerate(zip(layouts, avals, strict=True)):
        order = range(aval.ndim) if layout is None else getattr(layout, "major_to_minor", layout)
        if sorted(order) != list(range(aval.ndim)):
            raise ShapeError(
                f"{where}, argument {option}[{i}]",
                expected=f"the {aval.ndim} dimensions of {aval.str_short()} in some order",
                got=str(layout),
                fix="list each dimension once, the major one first",
            )
        orders.append(tuple(reversed(order)))
    return tuple(orders)
