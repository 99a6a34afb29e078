"""`shard_map`: map a function over the shards of its arguments, one call per device of a mesh (the per-device view).

Specs define how arguments are split into shards and how results are assembled from shards. Inside the function,
collectives such as `lax.psum` communicate along the axes of the mesh. An eager call compiles the function as one
program. If Python needs the value of a tracer that is equal on all devices, such as a condition, the equations traced
so far are compiled and run to compute it. `shard_map_primitive` has the rules of transformations.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple

from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    Jaxpr,
    Ref,
    RefError,
    ShapedArray,
    ShardingError,
    StagingTrace,
    Tracer,
    Var,
    check_function,
    check_ref_aliases,
    format_code_position,
    get_aval,
    is_open_constant,
    open_views,
    read_p,
    select_flagged,
    state,
    state_extra,
    trace_to_jaxpr,
    write_p,
)
from phalanx.custom_rules.rule_arguments import bind_positional
from phalanx.engine import Cache, api_boundary
from phalanx.lax import pad
from phalanx.numpy import zeros
from phalanx.sharding import UNSPECIFIED, AbstractMesh, Mesh, PartitionSpec, check_rank, check_spec
from phalanx.spmd.alpha_equivalence import is_alpha_equivalent
from phalanx.spmd.shard_map_primitive import REPLICATED, View, bind_shard_map
from phalanx.transforms.flat_function import FlatFunction, function_name, label_of, positional_parameters, wraps
from phalanx.tree import PyTreeDef, broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import AxisName, PyTree


def shard_map(
    f: Callable | None = None,
    /,
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: PyTree = UNSPECIFIED,
    out_specs: PyTree = None,
    *,
    axis_names: Collection = (),
    check_vma: bool = True,
    check_rep: bool | None = None,
    auto: Collection = (),
    uneven: Literal["pad"] | None = None,
) -> Callable:
    """Map a function over shards of its arguments, with one call per device of a mesh.

    Args:
      f: a function of pytrees of arrays, which receives the shards on one device. If omitted, `shard_map` returns a
        decorator.
      mesh: the mesh; defaults to the current mesh.
      in_specs: the specs of the arguments, as a tree prefix of the tuple of arguments. Each leaf is a `PartitionSpec`,
        or None for an array that is replicated on every device. May be omitted over Explicit axes, where the types of
        the arguments determine the specs.
      out_specs: the specs of the result, as a tree prefix. Shards are concatenated along the mesh axes in the spec; the
        result must be equal on all devices along the other axes.
      axis_names: the mesh axes over which `f` is mapped; all axes if empty. XLA partitions `f` over the other axes.
      check_vma: whether to track the mesh axes over which values vary. Then results are checked against `out_specs`,
        and the cotangent of a value that is equal on several devices is the sum of their cotangents. Otherwise every
        device differentiates independently, as under `vmap`.
      check_rep: former name of `check_vma`.
      auto: the mesh axes over which `f` is not mapped, as an alternative to `axis_names`.
      uneven: how to split dimensions whose size the number of devices does not divide; by default they are refused.
        With "pad", every device receives a block of the size rounded up, padded with zeros at the end. In `f`,
        `lax.valid_size(axis)` is the number of elements without padding; sums over the dimension must leave out the
        others. A result that is split over the same axes into blocks of the same size is cut to the size of the
        argument.

    Returns:
      A function of unsharded arrays, which can be called eagerly, compiled, differentiated, vectorized and nested. It
      is traced in each eager call, and once per types of the arguments under `jit`. In an eager call, Python control
      flow may depend on values that are equal on all devices (`if lax.pmax(x, "i") > 0`). Loops may run a different
      number of iterations on each device, and conditionals may take different branches, unless they contain
      collectives over an axis along which the devices differ.

    Raises:
      ShardingError: there is no mesh, a spec does not fit the mesh or an array, or a result varies over an axis that
        is not in its spec; or with `uneven`, arguments of several sizes have blocks of the size of a result.
      ArgumentError: `uneven` is neither None nor "pad".
      TreeError: the specs are not a tree prefix of the arguments or of the result.

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
      >>> def count(x):
      ...     return phalanx.lax.valid_size("x")[None]
      >>> shard_map(count, mesh=mesh, in_specs=P("x"), out_specs=P("x"), uneven="pad")(jnp.ones(7)).tolist()
      [7]
    """
    options = dict(
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names=axis_names,
        check_vma=check_vma,
        check_rep=check_rep,
        auto=auto,
        uneven=uneven,
    )
    if f is None:
        return lambda fun: shard_map(fun, **options)
    check_function("shard_map, argument f", f)
    if uneven not in (None, "pad"):
        raise ArgumentError(
            "shard_map, argument uneven",
            expected='None or "pad"',
            got=repr(uneven),
            fix='pass uneven="pad" for blocks that are padded to one size',
        )
    mapped = _Mapped(f, options, check_vma if check_rep is None else check_rep)

    @api_boundary
    @wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        return mapped(args, kwargs)

    return run


def smap(
    f: Callable | None = None, /, *, in_axes: PyTree = UNSPECIFIED, out_axes: PyTree, axis_name: AxisName
) -> Callable:
    """`shard_map` over one axis of the current mesh, with dimensions in place of specs, similar to `vmap`.

    Args:
      f: a function of pytrees of arrays. If omitted, `smap` returns a decorator.
      in_axes: the dimension of each argument that the mesh axis splits, or None for a replicated argument, as a tree
        prefix of the tuple of arguments. May be omitted over an Explicit axis, where the types of the arguments
        determine it.
      out_axes: the dimension of each result along which shards are concatenated, or None for a result that is equal on
        all devices, as a tree prefix.
      axis_name: the name of the mesh axis, which collectives in `f` use.

    Returns:
      A function of unsharded arrays. Unlike under `vmap`, `f` receives arrays with the split dimension.

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

    def specs(axes: PyTree, what: str) -> Any:
        def spec(dim: object) -> Any:
            if dim is UNSPECIFIED or dim is None:
                return dim
            if not isinstance(dim, int) or dim < 0:
                raise AxisError(
                    f"smap, {what}",
                    expected="a dimension of at least 0, or None",
                    got=repr(dim),
                    fix="pass the position of the dimension that the axis splits, counted from 0",
                )
            return PartitionSpec(*[None] * dim, axis_name)

        return tree_map(spec, axes, is_leaf=lambda a: a is None)

    return shard_map(
        f,
        in_specs=specs(in_axes, "in_axes"),
        out_specs=REPLICATED if out_axes is None else specs(out_axes, "out_axes"),
        axis_names={axis_name},
    )


class _TracedShardMap(NamedTuple):
    """A traced call: the per-device jaxpr, the specs, the structure of the result, and the mesh."""

    program: Jaxpr
    ins: tuple[PartitionSpec, ...]
    outs: tuple[PartitionSpec, ...]
    out_tree: PyTreeDef
    view: View


class _Mapped:
    """The state of a mapped function: its options, and its traced programs by the types of the arguments."""

    def __init__(self, fun: Callable, options: dict, check: bool):
        self.fun = fun
        self.name = function_name(fun)
        self.what = f"shard_map of {format_code_position(fun)}"
        self.options = options
        self.check = check
        self.programs: Cache[tuple, _TracedShardMap] = Cache("spmd.shard_map_traces", 4096)

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        if kwargs:
            fix = "make the parameters positional, since in_specs applies to positional arguments"
            args = bind_positional(self.fun, args, kwargs, fix, name=self.what, defaults=False)
        leaves, tree = tree_flatten(args)
        if any(isinstance(x, Ref) for x in leaves):
            return self._call_with_refs(args, leaves, tree)
        view = self._view()
        ins = self._specs("in_specs", args, list(map(get_aval, leaves)), view)
        if self.options["uneven"]:
            return self._call_padded(leaves, tree, ins, view)
        traced = self._trace_shared(leaves, tree, ins, view)
        return tree_unflatten(traced.out_tree, bind_shard_map(traced.program, leaves, ins, traced.outs, view))

    def _trace_shared(
        self, leaves: Sequence[Any], tree: PyTreeDef, ins: tuple[PartitionSpec, ...], view: View
    ) -> _TracedShardMap:
        """Trace the function, and return an earlier trace of the same computation, which is compiled already."""
        key = (tree, tuple(map(get_aval, leaves)), state.context)
        concretized: list = []
        # Traced in every call, since what the function reads outside of its arguments may have changed.
        before, traced = self.programs.get(key), self._trace(leaves, tree, ins, view, concretized)
        if before and before[1:] == traced[1:] and is_alpha_equivalent(before.program, traced.program):
            if all(map(operator.is_, before.program.consts, traced.program.consts)):
                traced = before
            else:  # The same computation with other constants: sharing the hoisted jaxpr shares its executable, too.
                traced.program.derive("hoisted", lambda: before.program.derive("hoisted", before.program.hoist))
        # A trace that depends on concrete values, or on tracers of an outer trace, is valid for this call only.
        if not concretized and not any(map(is_open_constant, traced.program.consts)):
            self.programs[key] = traced
        return traced

    def _call_padded(self, leaves: list, tree: PyTreeDef, ins: tuple[PartitionSpec, ...], view: View) -> Any:
        """Map over arguments that are padded to blocks of one size, and cut the results."""
        blocks: dict[tuple, set] = defaultdict(set)  # sizes by the axes that split them, and by the size of a block
        split = set()

        def fill(x: Any, spec: PartitionSpec) -> Any:
            aval, widths = get_aval(x), []
            for size, axes in zip(aval.shape, spec.axes_per_dim(aval.ndim), strict=True):
                parts = view.mesh.num_parts(axes)
                if axes:
                    blocks[axes, -(-size // parts)].add(size)
                    split.add((axes, size))
                widths.append((0, -size % parts, 0))
            return _resize(x, widths)

        padded = list(map(fill, leaves, ins))
        with state_extra(split_sizes=tuple(sorted(split))):
            traced = self._trace_shared(padded, tree, ins, view)
            results = bind_shard_map(traced.program, padded, ins, traced.outs, view)

        def cut(i: int, y: Any, spec: PartitionSpec) -> Any:
            aval, widths = get_aval(y), []
            for dim, (size, axes) in enumerate(zip(aval.shape, spec.axes_per_dim(aval.ndim), strict=True)):
                sizes = blocks.get((axes, size // view.mesh.num_parts(axes)), {size})
                if len(sizes) > 1:
                    raise ShardingError(
                        f"{self.what}, result{leaf_path(traced.out_tree, i)}",
                        expected=f"arguments of one size, to which dimension {dim}, split over {_names(axes)}, is cut",
                        got=f"the sizes {', '.join(map(str, sorted(sizes)))}, which have blocks of one size",
                        fix="pad these arguments to one size, or return their results from calls of their own",
                    )
                widths.append((0, max(sizes) - size, 0))
            return _resize(y, widths)

        return tree_unflatten(traced.out_tree, list(map(cut, range(len(results)), results, traced.outs)))

    def _call_with_refs(self, args: tuple, leaves: list, tree: PyTreeDef) -> Any:
        """Map over the values of references; a device reads and writes its shard, as the spec of the reference says."""
        check_ref_aliases(self.what, leaves, (), label_of(args, {}, lambda: positional_parameters(self.fun)))
        is_ref = [isinstance(x, Ref) for x in leaves]
        values = [read_p(x) if r else x for x, r in zip(leaves, is_ref, strict=True)]
        specs = self._specs("in_specs", tree_unflatten(tree, values), list(map(get_aval, values)), self._view())

        def on_values(*given: PyTree) -> tuple:
            cells = open_views(tree_flatten(given)[0], is_ref)
            out = self.fun(*tree_unflatten(tree, cells))
            return out, [read_p(x) for x in select_flagged(cells, is_ref)]

        out_specs = (self.options["out_specs"], select_flagged(specs, is_ref))
        mapped = _Mapped(on_values, self.options | {"out_specs": out_specs}, self.check)
        out, finals = mapped(tree_unflatten(tree, values), {})
        for ref, value in zip(select_flagged(leaves, is_ref), finals, strict=True):
            write_p(ref, value)
        return out

    def _trace(
        self, leaves: Sequence[Any], tree: PyTreeDef, ins: tuple[PartitionSpec, ...], view: View, concretized: list
    ) -> _TracedShardMap:
        function = FlatFunction(self.fun, tree, role=self.name)
        look = self._concretizer(leaves, ins, view, concretized)
        avals = [view.shard_type(get_aval(x), spec) for x, spec in zip(leaves, ins, strict=True)]
        with view.scope():
            program = trace_to_jaxpr(function, avals, self.name, look=look)
        for x in program.consts:
            if isinstance(x, Ref):
                raise RefError(
                    self.what,
                    expected="a function that does not close over mutable array references",
                    got=x.aval.str_short(),
                    fix="pass the reference as an argument, with the spec of its array in in_specs",
                )
        out_tree = function.out_tree
        if self.options["out_specs"] is None and out_tree.num_leaves:
            raise ArgumentError(
                f"{self.what}, out_specs",
                expected="a PartitionSpec for each result, since the function returns arrays",
                got="None",
                fix="pass out_specs, with PartitionSpec() for a result that is equal on all devices",
            )
        outs = self._specs("out_specs", tree_unflatten(out_tree, program.out_avals), program.out_avals, view)
        if view.check:
            self._check_shared(program, outs, out_tree, view)
        return _TracedShardMap(program, ins, outs, out_tree, view)

    def _concretizer(self, leaves: Sequence[Any], ins: Sequence[PartitionSpec], view: View, concretized: list) -> Any:
        """Create a function that computes the concrete value of a tracer in an eager call, or return None.

        The value must be equal on all devices. It is computed by running the equations traced so far, which needs
        concrete arguments.

        Args:
          leaves: the leaves of the arguments.
          ins: their specs.
          view: the mesh and its manual axes.
          concretized: receives the variables whose values were computed. The trace then depends on values, and must not
            be cached.
        """
        # Tracers of eager transformations such as grad have concrete values; those of jit do not.
        values, outside = [x.concrete if isinstance(x, Tracer) else x for x in leaves], state.context
        if not view.check or any(x is None for x in values):
            return None

        def look(trace: StagingTrace, var: Var) -> Any:
            program = None if any(view.mesh.shape[n] > 1 for n in var.aval.varying) else trace.so_far(var)
            if program is None or any(map(is_open_constant, program.consts)):
                return None
            concretized.append(var)
            # The program runs outside of the current trace, as if called before the shard_map.
            before = state.trace, state.scope
            state.trace, state.scope = None, ()
            try:
                with state_extra(**vars(outside)):
                    return bind_shard_map(program, values, ins, [REPLICATED], view)[0]
            finally:
                state.trace, state.scope = before

        return look

    def _view(self) -> View:
        """The mesh and its manual axes in the context of the call."""
        outer = state.context.mesh
        mesh = outer if self.options["mesh"] is None else self.options["mesh"]
        if not isinstance(mesh, Mesh | AbstractMesh) or mesh.empty:
            raise ShardingError(
                self.what,
                expected="a mesh",
                got="none" if mesh is None else str(mesh),
                fix="pass mesh=..., or call the function inside `with mesh:` or after set_mesh(mesh)",
            )
        taken = frozenset(outer.manual_axes) if outer is not None else frozenset()
        if taken:
            self._check_inner_mesh(mesh, outer)
            mesh = outer
        wanted = self.options["axis_names"]
        wanted = (wanted,) if isinstance(wanted, str) else wanted
        # Axes that can be mapped over: neither mapped by a surrounding shard_map nor left to XLA.
        left = [n for n in mesh.axis_names if n not in taken and n not in self.options["auto"]]
        manual = frozenset(wanted) or frozenset(left)
        for name in [*wanted, *self.options["auto"]]:
            if name not in mesh.shape or (name in manual and name in taken):
                raise ShardingError(
                    f"{self.what}, axis_names",
                    expected=f"axes of the mesh that no surrounding shard_map maps over ({_names(left)})",
                    got=repr(name),
                    fix=f"remove {name!r}, or leave axis_names out to map over all of these axes",
                )
        if not manual:
            raise ShardingError(
                self.what,
                expected="an axis of the mesh that no surrounding shard_map maps over",
                got=str(mesh),
                fix="list fewer axes in axis_names of the surrounding shard_map; " + _INSTEAD_OF_PMAP,
            )
        return View(mesh, manual, self.check)

    def _check_inner_mesh(self, mesh: Mesh | AbstractMesh, outer: Mesh | AbstractMesh) -> None:
        """Check that a nested shard_map has the mesh of the surrounding one."""
        if mesh.shape != outer.shape or (
            isinstance(mesh, Mesh) and isinstance(outer, Mesh) and mesh.flat_devices != outer.flat_devices
        ):
            raise ShardingError(
                self.what,
                expected=f"the mesh of the surrounding shard_map, {outer!r}",
                got=str(mesh),
                fix="leave mesh out inside another shard_map; " + _INSTEAD_OF_PMAP,
            )

    def _specs(self, what: str, tree: PyTree, avals: Sequence[ShapedArray], view: View) -> tuple:
        """Broadcast `in_specs` or `out_specs` to the leaves of a tree and check each spec."""
        prefix, where = self.options[what], f"{self.what}, {what}"

        def path(i: int) -> str:
            return f"{where}{leaf_path(tree, i)}"

        is_input, places = what == "in_specs", [functools.partial(path, i) for i in range(len(avals))]
        if is_input and prefix is UNSPECIFIED:
            specs = tuple([_spec_in_type(a, view, place) for a, place in zip(avals, places, strict=True)])
        else:
            is_spec = lambda s: s is None or isinstance(s, PartitionSpec)
            flat = broadcast_prefix(prefix, tree, what=where, is_leaf=is_spec, lists_as_tuples=True)
            rows = zip(flat, avals, places, strict=True)
            specs = tuple([_check_spec(spec, aval, view, place, is_input) for spec, aval, place in rows])
        if is_input and not self.options["uneven"]:
            for spec, aval, place in zip(specs, avals, places, strict=True):
                _check_even(spec, aval, view, place)
        return specs

    def _check_shared(self, program: Jaxpr, outs: Sequence[PartitionSpec], out_tree: PyTreeDef, view: View) -> None:
        """Check that no result varies over a manual axis that its spec does not name."""
        for i, (aval, spec) in enumerate(zip(program.out_avals, outs, strict=True)):
            held = aval.mat
            if (held.unreduced, held.reduced) != (spec.unreduced, spec.reduced):
                path = leaf_path(tree_unflatten(out_tree, list(range(out_tree.num_leaves))), i)
                raise ShardingError(
                    f"{self.what}, result{path}",
                    expected=f"a value of the unreduced and reduced axes that {spec} names",
                    got=aval.str_short(),
                    fix="sum an unreduced value with lax.psum, make one of a varying value with "
                    "lax.pcast(x, axes, to='unreduced'), or name its axes in out_specs",
                )
            over = [name for name in view.missing(spec) if name in aval.varying and view.mesh.shape[name] > 1]
            if over:
                names = _names(over)
                path = leaf_path(tree_unflatten(out_tree, list(range(out_tree.num_leaves))), i)
                raise ShardingError(
                    f"{self.what}, result{path}",
                    expected=f"a value that is equal along {names}, which {spec} does not name",
                    got=f"{aval.str_short()}, which varies over {names}",
                    fix=f"combine it with lax.psum, lax.pmean or lax.all_gather_invariant over {names}, add the axis "
                    f"to out_specs{path} to concatenate the shards, or disable the check with check_vma=False",
                )

    def __repr__(self) -> str:
        return f"<{self.what}>"


# A pmap gives each row to one device, which leaves no mesh axis for a shard_map inside it.
_INSTEAD_OF_PMAP = "inside a pmap, replace the pmap by vmap, or this shard_map by pmap"


def _names(axes: PyTree) -> str:
    return ", ".join(map(repr, axes)) or "none"


def _spec_in_type(aval: ShapedArray, view: View, where: Callable[[], str]) -> PartitionSpec:
    """The spec of an argument over the manual axes, according to the sharding in its type."""
    if aval.type_sharding is None:
        # A type over Explicit axes that names none declares a replicated array.
        if view.manual.issubset(view.mesh.explicit_axes):
            return PartitionSpec()
        raise ShardingError(
            where(),
            expected="a spec, or an array with a sharding over Explicit axes in its type",
            got=aval.str_short(),
            fix="pass in_specs, or use a mesh with Explicit axes and reshard the argument",
        )
    spec: PartitionSpec = aval.type_sharding.spec.select_axes(view.manual, aval.ndim)
    return spec


def _resize(x: Any, widths: Sequence[tuple[int, int, int]]) -> Any:
    """Pad dimensions with zeros at the end, or cut them; an array that keeps its shape is returned as it is."""
    return pad(x, zeros((), get_aval(x).dtype), widths) if any(map(any, widths)) else x


def _check_even(spec: PartitionSpec, aval: ShapedArray, view: View, where: Callable[[], str]) -> None:
    """Check that all devices receive shards of one size."""
    for dim, axes in enumerate(spec.dims):
        parts = view.mesh.num_parts(axes)
        if aval.shape[dim] % parts:
            raise ShardingError(
                where(),
                expected=f"dimension {dim} of a size divisible by {parts}, the size of {_names(axes)}",
                got=aval.str_short(),
                fix=f"pass uneven='pad' to shard_map, which pads dimension {dim} to "
                f"{-(-aval.shape[dim] // parts) * parts}, or split another dimension",
            )


def _check_spec(spec: object, aval: ShapedArray, view: View, where: Callable[[], str], is_input: bool) -> PartitionSpec:
    """Check that a spec fits its array, and replace None by an empty spec."""
    spec = REPLICATED if spec is None else spec
    if not isinstance(spec, PartitionSpec) or spec.has_unconstrained:
        raise ArgumentTypeError(
            where(),
            expected="a PartitionSpec of axis names and None",
            got=repr(spec),
            fix="pass PartitionSpec('x'), for example, or PartitionSpec() for a replicated array",
        )
    check_spec(spec, view.mesh.shape, where=where())
    kept = [name for name in (*spec.axes, *spec.unreduced, *spec.reduced) if name not in view.manual]
    if kept:
        raise ShardingError(
            where(),
            expected=f"a spec over the axes that the function is mapped over ({_names(view.sort_axes(view.manual))})",
            got=spec,
            fix=f"add {_names(kept)} to axis_names, or remove it from the spec: XLA partitions over it automatically",
        )
    check_rank(spec, aval.ndim, aval.str_short(), where=where())
    if is_input and aval.type_sharding is not None and view.manual == set(view.mesh.explicit_axes):
        split = [name for name, size in view.mesh.shape.items() if size > 1]
        held, given = (s.select_axes(split, aval.ndim) for s in (aval.type_sharding.spec, spec))
        # A replicated array is split without communication.
        if held.axes and held.dims != given.dims:
            raise ShardingError(
                where(),
                expected=f"{held}, the spec in the type of the argument",
                got=spec,
                fix=f"reshard the argument first, phalanx.reshard(x, {spec}), or leave in_specs out",
            )
    return spec
