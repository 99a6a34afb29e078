"""XLA metadata: named strings on the operations of a compiled program, which tools and passes of XLA read.

They are lowered to `mhlo.frontend_attributes`, and change nothing that the operations compute. A call
(`xla_metadata_call`), the operations of a `with` block (`set_xla_metadata`) or the operation that computes a value can
carry them. Public as `phalanx.experimental.xla_metadata`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from phalanx.core import ArgumentTypeError, Identity, Jaxpr, check_function, state, state_extra
from phalanx.engine import ir
from phalanx.runtime import LoweringContext, add_frontend_attributes
from phalanx.transforms import PartialEvalCall, function_name, trace_flat
from phalanx.tree import tree_map, tree_unflatten
from phalanx.typing import PyTree

Metadata = tuple[tuple[str, str], ...]


class XlaMetadataCall(PartialEvalCall, name="xla_metadata_call"):
    """A call of a jaxpr that carries metadata: inputs -> outputs. Calls in its linearization carry `ad_metadata`."""

    def lower(
        self, ctx: LoweringContext, *operands: ir.Value, jaxpr: Jaxpr, metadata: Metadata, ad_metadata: Metadata
    ) -> list:
        return ctx.call(jaxpr, operands, "xla_metadata_call", metadata)

    def derive_params(
        self, params: dict, jaxpr: Jaxpr, ins: Sequence[Any], outs: Sequence[Any], transform: str
    ) -> dict:
        changes = {"metadata": params["ad_metadata"]} if transform in ("linear", "transpose") else {}
        return params | changes | {"jaxpr": jaxpr}


class XlaMetadataValue(Identity, name="xla_metadata_value"):
    """`x`; the operation that computes it carries the metadata."""

    def lower(self, ctx: LoweringContext, x: ir.Value, *, metadata: Metadata) -> ir.Value:
        add_frontend_attributes(x, metadata)
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], *, metadata: Metadata) -> tuple:
        return self(*primals, metadata=metadata), tangents[0]


xla_metadata_call_p = XlaMetadataCall()
xla_metadata_value_p = XlaMetadataValue()


def set_xla_metadata(x: PyTree = None, **metadata: Any) -> Any:
    """Attach metadata to the operations of a block or a function, or to the operations that compute given values.

    Args:
      x: a tree of arrays, whose operations carry the metadata; None for a block or a function.
      **metadata: strings, bools, ints or floats; bools are written as "true" and "false".

    Returns:
      The arrays of `x`; without `x`, an object to be used in a `with` statement or as a decorator. In a block inside
      others, the metadata of all of them apply.

    Raises:
      ArgumentTypeError: a value is none of these.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.xla_metadata import set_xla_metadata
      >>> def f(x):
      ...     with set_xla_metadata(stage="first"):
      ...         return jnp.sin(x)
      >>> 'mhlo.frontend_attributes = {stage = "first"}' in phalanx.jit(f).lower(1.0).as_text()
      True
    """
    pairs = _to_strings("set_xla_metadata", metadata)
    if x is None:
        return _metadata_block(pairs)
    return tree_map(lambda leaf: xla_metadata_value_p(leaf, metadata=pairs), x)


@contextlib.contextmanager
def _metadata_block(metadata: Metadata) -> Iterator[None]:
    """Put the metadata into the scope that operations are traced in, and into the key of cached traces."""
    before = state.scope
    state.scope = (*before, *metadata)
    try:
        with state_extra(xla_metadata=(*state.context.xla_metadata, *metadata)):
            yield
    finally:
        state.scope = before


def xla_metadata_call(f: Callable | None = None, /, **metadata: Any) -> Callable:
    """Compile a function as a call that carries metadata, which XLA hands on to the operations inside.

    Args:
      f: a function of arrays or pytrees of arrays. If omitted, `xla_metadata_call` returns a decorator.
      **metadata: strings, bools, ints or floats; bools are written as "true" and "false".

    Returns:
      A function with the value and the derivatives of `f`; the calls of its derivatives carry the metadata, too.

    Raises:
      ArgumentTypeError: `f` is not callable, or a value is none of these.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.xla_metadata import xla_metadata_call
      >>> f = xla_metadata_call(lambda x: jnp.sin(x) * 2, tag="wave")
      >>> 'frontend_attributes={tag="wave"}' in phalanx.jit(f).lower(1.0).as_text("hlo")
      True
    """
    return xla_metadata_call2(f, metadata)


def xla_metadata_call2(
    f: Callable | Mapping | None = None, /, metadata: Mapping | None = None, *, ad_metadata: str | Mapping = "same"
) -> Callable:
    """Like `xla_metadata_call`, with the metadata as a mapping, and other metadata for derivatives.

    Args:
      f: a function of arrays or pytrees of arrays. If omitted, `xla_metadata_call2` returns a decorator.
      metadata: the metadata; may be the only positional argument.
      ad_metadata: the metadata of the linearized and the transposed call: "same", "drop" for none, or a mapping. A JVP
        computes values and tangents in one call, which has `metadata`.

    Returns:
      A function with the value and the derivatives of `f`.

    Raises:
      ArgumentTypeError: an argument has another type.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.experimental.xla_metadata import xla_metadata_call2
      >>> f = xla_metadata_call2(jnp.sin, {"group": "layer"}, ad_metadata={"group": "layer_backward"})
      >>> 'frontend_attributes={group="layer_backward"}' in phalanx.jit(phalanx.grad(f)).lower(1.0).as_text(
      ...     "hlo"
      ... )
      True
    """
    if isinstance(f, Mapping):
        f, metadata = None, f
    pairs = _to_strings("xla_metadata_call", metadata or {})
    ad_pairs = {"same": pairs, "drop": ()}.get(ad_metadata) if isinstance(ad_metadata, str) else None
    if ad_pairs is None:
        ad_pairs = _to_strings("xla_metadata_call2, argument ad_metadata", ad_metadata)

    def decorate(fun: Callable) -> Callable:
        check_function("xla_metadata_call, argument f", fun)

        @functools.wraps(fun)
        def call(*args: Any, **kwargs: Any) -> PyTree:
            bound = functools.partial(fun, **kwargs)
            leaves, function, jaxpr = trace_flat(bound, args, function_name(fun), written=fun)
            params = {"jaxpr": jaxpr.hoist(), "metadata": pairs, "ad_metadata": ad_pairs}
            return tree_unflatten(function.out_tree, xla_metadata_call_p(*jaxpr.consts, *leaves, **params))

        return call

    return decorate if f is None else decorate(f)


def fuse_limit() -> contextlib.AbstractContextManager:
    """Mark the operations of a block as a boundary of XLA's fusion.

    Returns:
      A context manager, as of `set_xla_metadata(FUSE_LIMIT=True)`.

    Examples:
      >>> from phalanx.experimental.xla_metadata import fuse_limit
      >>> with fuse_limit():
      ...     pass
    """
    return set_xla_metadata(FUSE_LIMIT=True)


def must_fuse_call(identifier: str) -> Callable[[Callable], Callable]:
    """Require that XLA fuses all operations of a function.

    Args:
      identifier: a number that names the fusion.

    Returns:
      A decorator, as of `xla_metadata_call(MUST_FUSE=identifier)`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.xla_metadata import must_fuse_call
      >>> float(must_fuse_call("1")(lambda x: jnp.square(x).sum())(jnp.ones(3)))
      3.0
    """
    return functools.partial(xla_metadata_call, MUST_FUSE=identifier)


def scheduling_group(name: str) -> Callable[[Callable], Callable]:
    """Name the operations of a function as a group that XLA's scheduler treats as one.

    Args:
      name: the name of the group.

    Returns:
      A decorator, as of `xla_metadata_call(scheduling_group=name)`.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental.scheduling_groups import scheduling_group
      >>> float(scheduling_group("exchange")(jnp.exp)(0.0))
      1.0
    """
    return functools.partial(xla_metadata_call, scheduling_group=name)


def _to_strings(where: str, metadata: Any) -> Metadata:
    """Metadata as pairs of strings, sorted by name."""
    if not isinstance(metadata, Mapping):
        raise ArgumentTypeError(
            where,
            expected="a mapping from names to strings, bools, ints or floats",
            got=repr(metadata),
            fix='pass a dict such as {"group": "layer"}',
        )
    for name, value in metadata.items():
        if not isinstance(value, str | bool | int | float):
            raise ArgumentTypeError(
                f"{where}, {name}",
                expected="a string, a bool, an int or a float",
                got=repr(value),
                fix=f"pass {name}=str(value)",
            )
    return tuple((name, str(v).lower() if isinstance(v, bool) else str(v)) for name, v in sorted(metadata.items()))
