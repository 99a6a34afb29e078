"""`shard_map`: a function of one device's pieces, run by every device of a mesh (the per-device view).

The specs say how arguments fall into pieces and how results are put together from them; collectives such as `lax.psum`
talk along the mesh's axes. Called at once, the whole is compiled as one program; where Python asks for a value, what is
staged so far runs for it. Builds on `manual`, the primitive.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from phalanx.core.aval import ShapedArray, aval_of
from phalanx.core.config import state
from phalanx.core.errors import ArgumentError, ArgumentTypeError, AxisError, ShardingError, check_function
from phalanx.core.jaxpr import Jaxpr, Var
from phalanx.core.source import code_position
from phalanx.core.trace import StagingTrace, Tracer, stage
from phalanx.custom_derivatives.functions import by_position
from phalanx.engine.frames import boundary
from phalanx.sharding import UNSPECIFIED, AbstractMesh, Mesh, PartitionSpec
from phalanx.sharding.spec import check_rank, check_spec
from phalanx.spmd.likeness import are_alike
from phalanx.spmd.manual import WHOLE, View, bind
from phalanx.transforms.functions import FlatFunction, function_name
from phalanx.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from phalanx.tree.paths import leaf_path


def shard_map(
    f: Callable | None = None,
    /,
    mesh: Any = None,
    in_specs: Any = UNSPECIFIED,
    out_specs: Any = None,
    *,
    axis_names: Collection = (),
    check_vma: bool = True,
    check_rep: bool | None = None,
    auto: Collection = (),
) -> Callable:
    """A function of one device's pieces of arrays, as a function of the arrays, run by all devices of a mesh.

    Args:
      f: a function of arrays or pytrees of them. Left out, `shard_map` gives a decorator.
      mesh: the mesh; that in context if left out.
      in_specs: for each argument, as a prefix of their trees, a `PartitionSpec` that says which mesh axes split which
        dimension, or None for an array that every device gets whole, as it does a dimension that no axis splits. Over
        Explicit axes it may be left out: the types of the arguments say how they are split.
      out_specs: the same for the result: pieces are joined along the axes that are named, and must be the same on all
        devices along the others.
      axis_names: the axes of the mesh that `f` sees; the partitioner keeps the others. All of them if empty.
      check_vma: whether to check that results are the same where `out_specs` says so. With it, a value that devices
        share is one value inside too: its cotangent is the sum of theirs. Without it each device differentiates for
        itself, as under `vmap`.
      check_rep: an older name of `check_vma`.
      auto: the axes that the partitioner keeps, in place of `axis_names`.

    Returns:
      The function of whole arrays. It can be called at once, compiled, differentiated, mapped and nested. It is traced
      once for arguments alike, as under `jit`. Where it is called at once, Python may look at values that all devices
      share (`if lax.pmax(x, "i") > 0`); it is traced at each call then. Loops may run for different times on each
      device, and branches may differ, as long as no collective over an axis along which devices differ stands in them.

    Raises:
      ShardingError: there is no mesh, a spec does not fit the mesh or an array, or a result varies over an axis that
        its spec does not name.
      TreeError: the specs are no prefix of the arguments or the result.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> from phalanx.sharding import PartitionSpec as P
      >>> mesh = phalanx.make_mesh((1,), ("x",))
      >>> @phalanx.shard_map(mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P()))
      ... def share(x):
      ...     total = phalanx.lax.psum(x.sum(), "x")
      ...     return x / total, total
      >>> [y.tolist() for y in share(jnp.array([1.0, 3.0]))]
      [[0.25, 0.75], 4.0]
    """
    options = dict(mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=axis_names, check_vma=check_vma,
                   check_rep=check_rep, auto=auto)  # fmt: skip
    if f is None:
        return lambda fun: shard_map(fun, **options)
    check_function("shard_map, argument f", f)
    if out_specs is None:
        raise ArgumentError(
            "shard_map, argument out_specs",
            expected="specs",
            got="None",
            mend="give a PartitionSpec for each result, PartitionSpec() for one that is the same everywhere",
        )
    mapped = _Mapped(f, options, check_vma if check_rep is None else check_rep)

    @boundary
    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        return mapped(args, kwargs)

    return run


def smap(f: Callable | None = None, /, *, in_axes: Any = UNSPECIFIED, out_axes: Any, axis_name: Any) -> Callable:
    """`shard_map` over one axis of the mesh in context, which is told by dimensions, as `vmap` is.

    Args:
      f: a function of arrays or pytrees of them. Left out, `smap` gives a decorator.
      in_axes: for each argument, as a prefix of their trees, the dimension that the axis splits, or None for an array
        that every device gets whole. Over an Explicit axis it may be left out: the types of the arguments say it.
      out_axes: the same for the result: the dimension along which the pieces are joined, or None for a value that all
        devices share.
      axis_name: the axis of the mesh, which collectives use; all others are as they were.

    Returns:
      The function of whole arrays. Unlike under `vmap`, the dimension stays: each device has a part of it.

    Raises:
      AxisError: a dimension is below 0.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> with phalanx.set_mesh(phalanx.make_mesh((1,), ("x",))):
      ...     smap(lambda x: phalanx.lax.psum(x.sum(), "x"), in_axes=0, out_axes=None, axis_name="x")(
      ...         jnp.arange(3)
      ...     )
      Array(3, dtype=int32)
    """
    if f is None:
        return lambda fun: smap(fun, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)

    def specs(axes: Any, what: str) -> Any:
        def spec(dim: Any) -> Any:
            if dim is UNSPECIFIED or dim is None:
                return dim
            if not isinstance(dim, int) or dim < 0:
                raise AxisError(
                    f"smap, {what}",
                    expected="dimensions counted from the first, or None",
                    got=repr(dim),
                    mend="give the number of the dimension that the axis splits",
                )
            return PartitionSpec(*[None] * dim, axis_name)

        return tree_map(spec, axes, is_leaf=lambda a: a is None)

    outs = WHOLE if out_axes is None else specs(out_axes, "out_axes")
    return shard_map(f, in_specs=specs(in_axes, "in_axes"), out_specs=outs, axis_names={axis_name})


class _Mapped:
    """What is behind a mapped function: its options, and its programs by the types of the arguments."""

    def __init__(self, fun: Callable, options: dict, check: bool):
        self.fun = fun
        self.name = function_name(fun)
        self.options = options
        self.check = check
        self.programs: dict = {}

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        if kwargs:
            mend = "make the parameters positional, so that in_specs can speak of them"
            args = by_position(self.fun, args, kwargs, mend, name=f"shard_map of {self.name}", defaults=False)
        leaves, tree = tree_flatten(args)
        avals = tuple(aval_of(x) for x in leaves)
        # A function that closes over something else by now is another function.
        cells = _cells(self.fun)
        key = (tree, avals, state.context, tuple(map(id, cells)))
        before = found = self.programs.get(key)
        # An array that was reached otherwise, by an attribute or a global, may be another one at each call.
        if before is None or not all(any(c is x for x in cells) for c in before[0].consts):
            looked: list = []
            found = (*self._trace(args, avals, tree, looked), cells)
            if before is not None and before[1:5] == found[1:5] and are_alike(before[0], found[0]):
                found[0].derive("hoisted", lambda: before[0].derive("hoisted", before[0].hoist))
            if not looked and not any(isinstance(c, Tracer) for c in found[0].consts):
                self.programs[key] = found
        program, ins, outs, out_tree, view, _ = found
        return tree_unflatten(out_tree, bind(program, leaves, ins, outs, view))

    def _trace(self, args: tuple, avals: Sequence[ShapedArray], tree: Any, looked: list) -> tuple:
        view = self._view()
        ins = self._specs("in_specs", args, avals, view)
        pieces = [view.entering(a, s) for a, s in zip(avals, ins, strict=True)]
        function = FlatFunction(self.fun, tree, role=self.name)
        look = self._look(tree_flatten(args)[0], ins, view, looked)
        with view.scope():
            program = stage(function, pieces, self.name, look=look)
        out_tree = function.out_tree
        outs = self._specs("out_specs", tree_unflatten(out_tree, program.out_avals), program.out_avals, view)
        if view.check:
            self._check_shared(program, outs, out_tree, view)
        return program, ins, outs, out_tree, view

    def _look(self, leaves: Sequence[Any], ins: Sequence[PartitionSpec], view: View, looked: list) -> Any:
        """How Python looks at what all devices share, where the arguments are there: by what is staged so far."""
        values, outside = [x.concrete if isinstance(x, Tracer) else x for x in leaves], state.context
        if not view.check or any(x is None for x in values):
            return None

        def look(trace: StagingTrace, var: Var) -> Any:
            program = None if any(view.mesh.shape[n] > 1 for n in var.aval.varying) else trace.so_far(var)
            if program is None or any(isinstance(c, Tracer) for c in program.consts):
                return None
            looked.append(var)
            before = state.trace, state.context, state.scope
            state.trace, state.context, state.scope = None, outside, ()
            try:
                return bind(program, values, ins, [WHOLE], view)[0]
            finally:
                state.trace, state.context, state.scope = before

        return look

    def _view(self) -> View:
        """The mesh and its manual axes, under the context of the call."""
        mesh, outer = self.options["mesh"], state.context.mesh
        if mesh is None:
            mesh = outer
        if not isinstance(mesh, Mesh | AbstractMesh) or mesh.empty:
            raise ShardingError(
                f"shard_map of {self.name}",
                expected="a mesh",
                got="none" if mesh is None else repr(mesh),
                mend="give mesh=, or call it inside `with mesh:` or after set_mesh(mesh)",
            )
        taken = frozenset(outer.manual_axes) if outer is not None else frozenset()
        if taken:
            mesh = self._inner_mesh(mesh, outer)
        wanted = self.options["axis_names"]
        wanted = (wanted,) if isinstance(wanted, str) else wanted
        left = [n for n in mesh.axis_names if n not in taken and n not in self.options["auto"]]
        manual = frozenset(wanted) or frozenset(left)
        for name in [*wanted, *self.options["auto"]]:
            if name not in mesh.shape or (name in manual and name in taken):
                raise ShardingError(
                    f"shard_map of {self.name}, axis_names",
                    expected=f"axes of the mesh that no shard_map around it has ({_names(left)})",
                    got=repr(name),
                    mend="name only such axes, or leave axis_names out for all of them",
                )
        if not manual:
            raise ShardingError(
                f"shard_map of {self.name}",
                expected="an axis of the mesh that no shard_map around it has",
                got=mesh,
                mend="name fewer axes in the axis_names of the outer shard_map; " + _INSTEAD_OF_PMAP,
            )
        return View(mesh, manual, self.check)

    def _inner_mesh(self, mesh: Any, outer: Any) -> Any:
        """The mesh of a shard_map inside another one, which is that of the outer one."""
        if mesh.shape != outer.shape or (
            isinstance(mesh, Mesh) and isinstance(outer, Mesh) and mesh.flat_devices != outer.flat_devices
        ):
            raise ShardingError(
                f"shard_map of {self.name}",
                expected=f"the mesh of the shard_map around it, {outer!r}",
                got=repr(mesh),
                mend="leave mesh out inside another shard_map; " + _INSTEAD_OF_PMAP,
            )
        return outer

    def _specs(self, what: str, tree: Any, avals: Sequence[ShapedArray], view: View) -> tuple:
        """One checked spec for each leaf."""
        is_input = what == "in_specs"
        prefix = self.options[what]
        where = f"shard_map of {self.name}, {what}"
        if is_input and prefix is UNSPECIFIED:
            return tuple(_spec_in_type(where, a, view, i, tree) for i, a in enumerate(avals))
        is_spec = lambda s: s is None or isinstance(s, PartitionSpec)
        flat = broadcast_prefix(prefix, tree, what=where, is_leaf=is_spec, lists_as_tuples=True)
        out = []
        for i, (spec, aval) in enumerate(zip(flat, avals, strict=True)):
            path = lambda i=i: f"{where}{leaf_path(tree, i)}"
            out.append(_checked(spec, aval, view, path, is_input))
        return tuple(out)

    def _check_shared(self, program: Jaxpr, outs: Sequence[PartitionSpec], out_tree: Any, view: View) -> None:
        """Refuse results that vary over an axis along which their spec joins nothing."""
        for i, (aval, spec) in enumerate(zip(program.out_avals, outs, strict=True)):
            over = [name for name in view.missing(spec) if name in aval.varying and view.mesh.shape[name] > 1]
            if over:
                names = _names(over)
                tree = tree_unflatten(out_tree, list(range(out_tree.num_leaves)))
                path = leaf_path(tree, i)
                raise ShardingError(
                    f"shard_map of {self.name}, result{path}",
                    expected=f"a value that is the same along {names}, which {spec} does not name",
                    got=f"{aval.str_short()}, which varies over {names}",
                    mend=f"combine it with lax.psum, lax.pmean or lax.all_gather_invariant over {names}, name the "
                    f"axis in out_specs{path} to join the pieces, or turn the check off with check_vma=False",
                )

    def __repr__(self) -> str:
        return f"<shard_map of {code_position(self.fun)}>"


# A pmap hands each row to one device; what has several devices for a row is a map around, or a pmap inside.
_INSTEAD_OF_PMAP = "inside a pmap, let that be a vmap, or this be a pmap, whose rows get devices of their own"


def _cells(fun: Any) -> list:
    """What a function closes over."""
    found = []
    for cell in getattr(fun, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # not bound yet
            found.append(cell.cell_contents)
    return found


def _names(axes: Any) -> str:
    return ", ".join(map(repr, axes)) or "none"


def _spec_in_type(where: str, aval: ShapedArray, view: View, i: int, args: Any) -> PartitionSpec:
    """How the type of an argument says that it is split over the manual axes."""
    if aval.sharding is None:
        raise ShardingError(
            f"{where}{leaf_path(args, i)}",
            expected="a spec, or an array whose type says how it is split over Explicit axes",
            got=aval.str_short(),
            mend="give in_specs, or make the axes of the mesh Explicit and reshard the argument",
        )
    return PartitionSpec.of_dims([tuple(a for a in axes if a in view.manual) for axes in aval.sharding.spec.dims])


def _checked(spec: Any, aval: ShapedArray, view: View, where: Callable[[], str], is_input: bool) -> PartitionSpec:
    """A spec that fits its array."""
    if spec is None:
        spec = WHOLE
    if not isinstance(spec, PartitionSpec) or spec.has_unconstrained:
        raise ArgumentTypeError(
            where(),
            expected="a PartitionSpec of axis names and None",
            got=repr(spec),
            mend="write PartitionSpec('x'), or PartitionSpec() for an array that is whole everywhere",
        )
    check_spec(spec, view.mesh.shape, where=where())
    kept = [name for name in spec.axes if name not in view.manual]
    if kept:
        raise ShardingError(
            where(),
            expected=f"a spec over the axes that the function sees ({_names(view.ordered(view.manual))})",
            got=spec,
            mend=f"add {_names(kept)} to axis_names, or take it out of the spec: the partitioner keeps it",
        )
    check_rank(spec, aval.ndim, aval.str_short(), where=where())
    for dim, axes in enumerate(spec.dims):
        parts = view.parts(axes)
        if is_input and aval.shape[dim] % parts:
            raise ShardingError(
                where(),
                expected=f"dimension {dim} of a size divisible by {parts}, the size of {_names(axes)}",
                got=aval.str_short(),
                mend="pad the array, or split another dimension",
            )
    return spec
