"""Calls of kernels that users bring: functions of C or CUDA, known to XLA by a name.

A call is an ordinary operation of a program; what it computes is the kernel's business. `phalanx.ffi` is its face, and
where kernels are registered. Builds on `LoweringContext.custom_call`; batched as callbacks are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray
from phalanx.core.effects import Effects, io_effect, no_effects
from phalanx.core.errors import ArgumentError, RuleError, ShapeError
from phalanx.core.primitive import Primitive, Roles, Undefined
from phalanx.lax.callback import LEGACY, VMAP_METHODS, batched_by, check_vmap_method, result_aval
from phalanx.lax.composites import described_attribute, frozen_attributes
from phalanx.runtime.layout import Layout
from phalanx.transforms.batching import Axis
from phalanx.tree import tree_flatten, tree_unflatten

# A kernel is told by the shapes how many leading dimensions are batch, so that each operand must have them.
METHODS = tuple([method for method in VMAP_METHODS if method != LEGACY])


class FfiCall(Primitive, name="ffi_call", multiple=True):
    """A call of a kernel over `num_batch` leading dimensions: (*operands) -> results of the declared types."""

    jvp = Undefined("nothing is known of what a kernel computes; wrap the call in a custom_jvp or custom_vjp function")
    transpose = Undefined("nothing is known of what a kernel computes; wrap the call in a custom_vjp function")
    batch = None

    def result(self, *xs: Any, results: tuple, num_batch: int, **_: Any) -> list:
        # 1 stands where an operand is not mapped.
        batch = [next((x.shape[d] for x in xs if x.shape[d] != 1), 1) for d in range(num_batch)]
        return [r.with_shape((*batch, *r.shape)) for r in results]

    def effects(self, *_: Any, has_side_effect: bool, **__: Any) -> Effects:
        return frozenset({io_effect}) if has_side_effect else no_effects

    def roles(self, *xs: Any, results: tuple, num_batch: int, **params: Any) -> Roles:
        outs = self.result(*xs, results=results, num_batch=num_batch, **params)
        batch = outs[0].shape[:num_batch] if outs else ()

        def names(kind: str, i: int, shape: Sequence) -> list:
            is_batch = (d < num_batch and size == batch[d] for d, size in enumerate(shape))
            return [("batch", d) if is_one else (kind, i, d) for d, is_one in enumerate(is_batch)]

        operands = [names("operand", i, x.shape) for i, x in enumerate(xs)]
        given = [names("result", i, x.shape) for i, x in enumerate(outs)]
        whole = [name for dims in (*operands, *given) for name in dims if name[0] != "batch"]
        return Roles(operands, given, whole=whole)

    def by_pieces(self, *_: Any, num_batch: int, **__: Any) -> bool:
        return num_batch > 0  # Examples do not meet: each device does its own.

    def batch_axis(
        self, axis: Axis, args: Any, dims: Any, *, target: str, method: str | None, num_batch: int, **params: Any
    ) -> tuple:
        if method is None:
            raise RuleError(
                f"vmap of ffi_call {target!r}",
                expected="a vmap_method",
                got="None",
                mend='pass vmap_method="sequential", or "expand_dims"/"broadcast_all" if the kernel takes batches',
            )

        def called(*operands: Any, is_batch: bool) -> list:
            return self(*operands, target=target, method=method, num_batch=num_batch + is_batch, **params)

        out = batched_by(method, axis, args, dims, called)
        return out, [0] * len(out)

    def lower(
        self,
        ctx: Any,
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
        def orders(side: Sequence) -> list:
            return [(*(d + num_batch for d in order), *reversed(range(num_batch))) for order in side]

        return ctx.custom_call(
            target,
            operands,
            attributes={key: described_attribute(value) for key, value in attributes},
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
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable:
    """Give a kernel that was registered under a name as a function of arrays.

    Args:
      target_name: the name.
      result_shape_dtypes: a pytree of `ShapeDtypeStruct`s (or arrays): the types of its results.
      has_side_effect: whether to call it even if nothing reads its results.
      vmap_method: under `vmap`, "sequential" calls it for each example in a loop, "sequential_unrolled" without one;
        "expand_dims" and "broadcast_all" call it once with a leading dimension on the mapped arguments (of size 1, or
        repeated, on the others), which a mesh may then split.
      input_layouts, output_layouts: for each argument and result the order of its dimensions in memory, major to minor:
        a sequence, a `Layout`, or None for row-major.
      input_output_aliases: for arguments, by number, the result that takes their memory.
      custom_call_api_version: 4 for typed FFI handlers; below, for older functions.
      legacy_backend_config: the text that an older function is given.

    Returns:
      A function of arrays; its keyword arguments become attributes of the call: numbers (NumPy's keep their type),
      strings, bools, NumPy arrays, sequences and dicts of these.

    Raises:
      ArgumentError: the options do not fit the arguments.
      RuleError: it is mapped without a `vmap_method`, or differentiated.
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
    if isinstance(output_layouts, Layout) or (output_layouts is not None and len(leaves) == 1 and tree.num_nodes == 1):
        output_layouts = [output_layouts]

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
                    expected="numbers of an argument and of a result of one type",
                    got=f"{operand}: {result}",
                    mend="name a pair of the same shape and dtype",
                )
        out = ffi_call_p(
            *args,
            target=target_name,
            results=results,
            attributes=frozen_attributes(attributes, where),
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
    """Layouts as orders of dimensions, minor to major."""
    if layouts is None:
        layouts = [None] * len(avals)
    if len(layouts) != len(avals):
        raise ArgumentError(
            f"{where}, argument {option}",
            expected=f"{len(avals)} layouts",
            got=len(layouts),
            mend="give one for each array; None stands for row-major",
        )
    orders = []
    for i, (layout, aval) in enumerate(zip(layouts, avals, strict=True)):
        order = range(aval.ndim) if layout is None else getattr(layout, "major_to_minor", layout)
        if sorted(order) != list(range(aval.ndim)):
            raise ShapeError(
                f"{where}, argument {option}[{i}]",
                expected=f"the {aval.ndim} dimensions of {aval.str_short()} in some order",
                got=str(layout),
                mend="name each dimension once, the major one first",
            )
        orders.append(tuple(reversed(order)))
    return tuple(orders)
