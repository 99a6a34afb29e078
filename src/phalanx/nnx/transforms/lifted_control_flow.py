"""`nnx.cond`, `nnx.switch`, `nnx.while_loop`, `nnx.fori_loop` and `nnx.scan`: control flow in functions of modules.

Branches return the values of all variables, so that their results have the same structure. A branch may change the
structure of a module only if all branches make the same change; changes of structure inside a loop are errors. The body
of a loop is cached on the user's function, one for each structure of the modules, so that a second loop does not
retrace it. In a scan, each variable of a module is carried, sliced along a dimension, or constant, according to
`in_axes`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from phalanx import lax, numpy as jnp
from phalanx.core import ArgumentError, ArgumentTypeError, TreeError, format_code_position
from phalanx.engine.cache import Cache
from phalanx.nnx.graph_mode import GraphMode, resolve_mode
from phalanx.nnx.graphlib import describe_difference, format_path, get_joint_graph
from phalanx.nnx.objects import ROOTS, is_root
from phalanx.nnx.rngs import RngState
from phalanx.nnx.transforms.lifted_vmap import AxisMetadata
from phalanx.nnx.transforms.lifting import (
    InnerModules,
    Lifted,
    LiftedArguments,
    Outputs,
    call_lifted,
    check_structure_kept,
    flatten_arguments,
    make_pure_modules,
    write_back,
)
from phalanx.nnx.transforms.state_axes import Carry, InputPrefix, get_output_prefixes, is_prefix_leaf
from phalanx.nnx.transforms.user_functions import bind_keywords, decorator_if_missing, get_cached_body
from phalanx.nnx.variable import MISSING, Variable, unwrap
from phalanx.tree import flatten_axes, tree_flatten, tree_map
from phalanx.typing import ArrayLike, PyTree


def _make_branch(fun: Callable, mode: GraphMode) -> Lifted:
    return get_cached_body(fun, ("branch", mode), lambda call: Lifted(call, all_values=True, mode=mode))


def cond(
    pred: ArrayLike | Variable,
    true_fun: Callable,
    false_fun: Callable,
    *operands: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Call one of two functions of modules, selected at run time.

    Args:
      pred: a boolean or numeric scalar.
      true_fun, false_fun: functions of the operands, whose results have the same structure and types.
      *operands: the arguments of the functions.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The result of the selected function. Its changes to modules are written back to the caller's modules.

    Raises:
      TreeError: the results differ in structure, or only one function changes the structure of a module.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> n = nnx.Variable(jnp.array(1.0))
      >>> nnx.cond(True, lambda n: n.set_value(n + 1), lambda n: None, n)
      >>> float(n.value)
      2.0
    """
    # `branches` are also passed as makers: only variables that one of them sets are written back.
    mode = resolve_mode(graph, graph_updates)
    branches = _make_branch(true_fun, mode), _make_branch(false_fun, mode)
    apply = functools.partial(lax.cond, unwrap(pred), *branches)
    return call_lifted("cond", apply, operands, {}, mode, branches)


def switch(
    index: ArrayLike | Variable,
    branches: Sequence[Callable],
    *operands: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Call one of several functions of modules, selected by index at run time.

    Args:
      index: an integer scalar, clamped to the number of branches.
      branches: functions of the operands, whose results have the same structure and types.
      *operands: the arguments of the functions.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The result of the selected function. Its changes to modules are written back to the caller's modules.

    Raises:
      TreeError: the results differ in structure, or only some functions change the structure of a module.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> w = nnx.Param(jnp.array(3.0))
      >>> float(nnx.switch(1, [lambda w: w + 0, lambda w: w * w], w))
      9.0
    """
    mode = resolve_mode(graph, graph_updates)
    lifted = [_make_branch(f, mode) for f in branches]
    return call_lifted("switch", functools.partial(lax.switch, unwrap(index), lifted), operands, {}, mode, lifted)


def replace_carried_modules(where: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Copy the values of the modules that an iteration returned to its carried modules.

    Args:
      where: the loop, for error messages.
      before: the modules passed to the iteration.
      after: the modules returned by the iteration.

    Raises:
      TreeError: their structures differ.
    """
    if len(before) == len(after) and all(a is b for a, b in zip(before, after)):
        return
    old, new = get_joint_graph(before), get_joint_graph(after)
    if len(before) != len(after) or old.definition is not new.definition:
        names = [", ".join(type(x).__name__ for x in side) or "none" for side in (before, after)]
        is_comparable = len(before) == len(after)
        difference = f": {describe_difference(old.definition, new.definition)}" if is_comparable else ""
        raise TreeError(
            f"{where}, the carried modules",
            expected=f"modules of the structure that came in ({names[0]})",
            got=f"others ({names[1]}{difference})",
            fix="return the modules that the function receives, without changing their attributes",
        )
    # All values are read first: a variable may be returned in the place of another one.
    for variable, value in zip(old.variables, [source._value for source in new.variables]):
        variable._value = value


class _LoopBody:
    """One iteration of a loop, from the values of all carried variables to their new values.

    Args:
      where: the name of the loop, for error messages.
      fun: the user's function.
    """

    def __init__(self, where: str, fun: Callable):
        self.fun = fun
        self.written: set[int] = set()  # the numbers of the variables that some trace of the body has set
        self.where = f"{where} of {format_code_position(fun)}"
        self.__name__ = getattr(fun, "__name__", "body")

    def __call__(self, *args: Any) -> Any:
        *index, pure = args
        inside = InnerModules(pure)
        out = self.fun(*index, inside.args)
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        replace_carried_modules(self.where, inside.roots, [x for x in leaves if is_root(x)])
        outputs = inside.outputs(None, all_values=True)
        check_structure_kept(self.where, outputs.outcome)
        # The set grows while the loop is traced, and is complete before `_finish` reads it.
        self.written |= outputs.outcome.written
        modules = inside.pure_modules([*outputs.values, *inside.arrays])
        return tree.unflatten([next(modules) if is_root(x) else x for x in leaves])


def _make_condition(fun: Callable) -> Callable:
    def condition(pure: PyTree) -> Any:
        return unwrap(fun(InnerModules(pure).args))

    condition.__name__ = getattr(fun, "__name__", "condition")
    return condition


def while_loop(
    cond_fun: Callable[[Any], ArrayLike | Variable],
    body_fun: Callable[[Any], Any],
    init_val: PyTree,
    *,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Repeat a function while a condition holds, with modules in the carried value.

    Args:
      cond_fun: from the carried value to a boolean scalar.
      body_fun: from the carried value to the next one, of the same structure and types.
      init_val: the initial value.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The first value for which the condition is False. Its modules are the caller's modules, updated.

    Raises:
      TreeError, TraceError: the structure of the carried value changes.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> n = nnx.Variable(jnp.array(1))
      >>> def double(n):
      ...     n.value *= 2
      ...     return n
      >>> int(nnx.while_loop(lambda n: n < 10, double, n).value)
      16
    """
    parts = flatten_arguments(init_val, resolve_mode(graph, graph_updates), "while_loop")
    condition = get_cached_body(cond_fun, "condition", _make_condition)
    key = "while", parts.graph.definition
    body = get_cached_body(body_fun, key, lambda call: _LoopBody("while_loop", call))
    return _finish(parts, lax.while_loop(condition, body, parts.to_pure()), body.written)


def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Any],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Repeat a function for each index in a range, with modules in the carried value.

    Args:
      lower: the first index.
      upper: one past the last index.
      body_fun: `(i, value) -> value`, of the same structure and types.
      init_val: the initial value.
      unroll: as in `lax.fori_loop`.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The last value. Its modules are the caller's modules, updated.

    Raises:
      TreeError, TraceError: the structure of the carried value changes.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> def body(i, w):
      ...     w.value += i
      ...     return w
      >>> w = nnx.Param(jnp.array(0))
      >>> nnx.fori_loop(0, 4, body, w) is w, int(w.value)
      (True, 6)
    """
    parts = flatten_arguments(init_val, resolve_mode(graph, graph_updates), "fori_loop")
    key = "for", parts.graph.definition
    body = get_cached_body(body_fun, key, lambda call: _LoopBody("fori_loop", call))
    return _finish(parts, lax.fori_loop(lower, upper, body, parts.to_pure(), unroll=unroll), body.written)


def _finish(parts: LiftedArguments, pure: PyTree, written: set[int]) -> Any:
    """The carried value after a loop, with the caller's modules; only variables that the loop sets are updated."""
    inside = InnerModules(pure)
    # Variables that the loop does not set keep their arrays, so that donation and identity checks see no change.
    for number in sorted(written):
        parts.graph.variables[number].set_raw_value(inside.initial_values[number])
    roots = iter(parts.roots)
    leaves = tree_flatten(inside.args, is_leaf=is_root)[0]
    return parts.tree.unflatten([next(roots) if is_root(x) else x for x in leaves])


def _move_axis(value: PyTree, source: int, destination: int) -> PyTree:
    return value if source == destination else tree_map(lambda x: jnp.moveaxis(x, source, destination), value)


class _ScanBody:
    """One iteration: from carried values and slices to carried values and results.

    Args:
      fun: the user's function.
      parts: example arguments, for their structure.
      inputs: the option `in_axes`.
      out_axes: the option `out_axes`.
      axes: updates the dimension names of variables.
      mode: the mode of the transformation.
    """

    def __init__(
        self,
        fun: Callable,
        parts: LiftedArguments,
        inputs: InputPrefix,
        out_axes: PyTree,
        axes: AxisMetadata,
        mode: GraphMode,
    ):
        self.mode = mode
        self.fun, self.inputs, self.out_axes, self.axes = fun, inputs, out_axes, axes
        self.definition, self.tree = parts.graph.definition, parts.tree
        self.sizes = [(len(variables), len(refs)) for variables, refs in parts.graph.groups]
        self.places = {place: n for n, place in enumerate(parts.paths())}
        self.is_root = [isinstance(x, ROOTS) for x in parts.leaves]
        self.where = f"scan of {format_code_position(fun)}"
        self.__name__ = getattr(fun, "__name__", "body")

    def partition(self, values: Sequence[Any], leaves: Sequence[Any]) -> tuple[list, list, list]:
        """Partition the values of variables, followed by other leaves, into (carried, sliced, constant)."""
        pairs = [*zip(values, self.inputs.values), *zip(leaves, self.inputs.arrays)]
        sliced = [_move_axis(x, spec, 0) for x, spec in pairs if spec is not Carry and spec is not None]
        return [x for x, spec in pairs if spec is Carry], sliced, [x for x, spec in pairs if spec is None]

    def __call__(self, carry: tuple, sliced: list) -> tuple:
        # Constants pass through the carry of `lax.scan` unchanged: the cached body must not close over them.
        carried, constant = carry
        by_kind, slices = {Carry: iter(carried), None: iter(constant)}, iter(sliced)
        # The inverse of `partition`: values are taken from the three groups in the order of the module's variables.
        values = [next(by_kind.get(s, slices)) for s in (*self.inputs.values, *self.inputs.arrays)]
        pure = make_pure_modules(self.definition, self.sizes, values)
        rest = iter(values[len(self.inputs.values) :])
        inside = InnerModules(self.tree.unflatten([next(pure if root else rest) for root in self.is_root]))
        self.axes.remove(inside, self.inputs.values)
        out = self.fun(*inside.args[0])
        self._reset_constants(inside)
        if not self.mode.updates:
            self._check_stacked(inside, out)
        # The carry is taken first: it may copy the values of returned modules to carried modules.
        new_carry, out = self._take_carry(inside, out)
        outputs = inside.outputs(out)
        specs = get_output_prefixes("scan, out_axes", self.out_axes, outputs.outcome, self.inputs)
        self.axes.add(inside, outputs, self.inputs.values, specs)
        self._check(outputs, specs)
        # Carried values are returned in the carry, and must not be stacked as well.
        # A carried variable is returned by the loop once at the end, and not stacked over the iterations.
        stacked = [None if s is Carry else x for x, s in zip(outputs.values, specs, strict=True)]
        return (new_carry, constant), Outputs(outputs.outcome, stacked)

    def _reset_constants(self, inside: InnerModules) -> None:
        """Discard new values of constant variables; a new value of a variable other than a random counter is lost."""
        lost = []
        for n, spec in enumerate(self.inputs.values[: len(inside.variables)]):
            v = inside.variables[n]
            if spec is None and v._value is not inside.initial_values[n]:
                if not isinstance(v, RngState):
                    lost.append(f"{type(v).__name__} {format_path(inside.path(n))}".rstrip())
                v._value = inside.initial_values[n]
        if lost:
            warnings.warn(
                f"{self.where}: the new value of {', '.join(lost)} is discarded in each iteration, since in_axes is "
                "None for it. Carry it with nnx.Carry in a StateAxes, or pass graph_updates=False, which carries it.",
                stacklevel=2,
            )

    def _check_stacked(self, inside: InnerModules, out: PyTree) -> None:
        """Check the modules in the result that are stacked over the iterations."""
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        specs = flatten_axes("scan, out_axes", tree, self.out_axes, is_leaf=is_prefix_leaf, lists_as_tuples=True)
        inside.check_result([x for x, s in zip(leaves, specs, strict=True) if is_root(x) and s is not Carry], self.mode)

    def _take_carry(self, inside: InnerModules, out: PyTree) -> tuple[list[Any], PyTree]:
        """The carried values after this iteration, and the result with the carried modules of the arguments.

        The values are those of the carried variables, then the carried leaves of the result.
        """
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        specs = flatten_axes("scan, out_axes", tree, self.out_axes, is_leaf=is_prefix_leaf, lists_as_tuples=True)
        carried = [x for x, s in zip(leaves, specs, strict=True) if s is Carry]
        roots = [r for r, s in zip(inside.roots, self.inputs.roots) if s is Carry]
        replace_carried_modules(self.where, roots, [x for x in carried if is_root(x)])
        arrays = [x for x in carried if not is_root(x)]
        expected = sum(s is Carry for s in self.inputs.arrays)
        if len(arrays) != expected:
            raise TreeError(
                f"{self.where}, the carry",
                expected=f"{expected} leaves apart from modules, as many as came in",
                got=f"{len(arrays)} in the result",
                fix="return a carry of the same structure as the argument that in_axes marks with nnx.Carry",
            )
        values = [*(v._value for v in inside.variables), *inside.current_arrays(self.where)]
        carry = [x for x, s in zip(values, self.inputs.values, strict=True) if s is Carry] + arrays
        modules = iter(roots)
        return carry, tree.unflatten([next(modules) if s is Carry and is_root(x) else x for x, s in zip(leaves, specs)])

    def _check(self, outputs: Outputs, specs: Sequence[Any]) -> None:
        """Check that each output can be carried or stacked.

        Raises:
          ArgumentError: a result is neither stacked nor carried, or a new variable has no dimension for stacking.
        """
        for origin, spec in zip(outputs.outcome.origins, specs, strict=True):
            if origin.kind == "out" and spec is None:
                raise ArgumentError(
                    f"{self.where}, out_axes",
                    expected="nnx.Carry, or a dimension to stack results along",
                    got="None",
                    fix="pass a dimension, such as out_axes=0, and take one of the stacked results",
                )
            name = f"{type(origin.variable).__name__} {format_path(origin.path)}"
            if origin.kind == "new" and not isinstance(spec, int):
                raise ArgumentError(
                    f"{self.where}, {name}",
                    expected="a dimension to stack new variables along",
                    got=f"{getattr(spec, '__name__', spec)} for a variable that is created in the loop",
                    fix="create the variable before the loop, or give a dimension for it in in_axes",
                )

    def combine(self, outputs: Outputs, carried: Sequence[Any]) -> Outputs:
        """All output values: the stacked ones, and the final carried ones."""
        outcome = outputs.outcome
        specs = get_output_prefixes("scan, out_axes", self.out_axes, outcome, self.inputs)
        leaves = iter(carried)
        # The carry has the values of variables first, in the order of `inputs.values`.
        final = {i: next(leaves) for i, spec in enumerate(self.inputs.values) if spec is Carry}
        values = []
        for origin, spec, x in zip(outcome.origins, specs, outputs.values, strict=True):
            if spec is not Carry:
                values.append(_move_axis(x, 0, spec))
            else:
                kept = {"variable": origin.number, "array": self.places.get((origin.number, origin.path))}.get(
                    origin.kind
                )
                values.append(next(leaves) if kept is None else final[kept])
        return Outputs(outcome, values)


@decorator_if_missing
def scan(
    f: Any = MISSING,
    *,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    in_axes: PyTree = (Carry, 0),
    out_axes: PyTree = (Carry, 0),
    transform_metadata: Mapping[str, Any] = {},
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Run a function of modules in a loop over a dimension of its arguments; the function is compiled once.

    Args:
      f: the function of one iteration. If omitted, a decorator is returned.
      length: the number of iterations, required if nothing is sliced.
      reverse, unroll: as in `lax.scan`.
      in_axes: for each argument, as a prefix: `nnx.Carry` for the carry, a dimension to slice along, or None for
        constants. For a module, a `StateAxes` assigns one of these to each variable. A random stream that is constant
        draws the same numbers in each iteration, and does not advance.
      out_axes: for the result: `nnx.Carry`, or the dimension along which results are stacked.
      transform_metadata: its `partition_name` is the name of the sliced dimension in the variables' `out_sharding`.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

    Returns:
      The loop. Changes to carried and sliced variables are written back to the caller's modules.

    Raises:
      ArgumentError: a constant variable is changed.
      TreeError: the structure of the carry changes.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> total, sums = nnx.scan(lambda c, x: (c + x, c + x))(0.0, jnp.arange(4.0))
      >>> float(total), sums.tolist()
      (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    _check_carries(in_axes, out_axes)
    axes = AxisMetadata(transform_metadata)
    mode = resolve_mode(graph, graph_updates)
    # One body for each structure of the arguments, so that the compiled loop is found again.
    bodies: Cache[Hashable, _ScanBody] = Cache("nnx.scan_bodies", 1024)

    @functools.wraps(f)
    def scanned(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = bind_keywords(f, args, kwargs)
        if kwargs:
            raise ArgumentTypeError(
                f"scan of {format_code_position(f)}",
                expected="arguments by position, to which in_axes refers",
                got=f"{', '.join(kwargs)}, which can only be passed by keyword",
                fix="declare them as parameters that can be passed by position",
            )
        parts = flatten_arguments((args, {}), mode, "scan")
        inputs = InputPrefix("scan, in_axes", _check_length(in_axes, args), parts)
        if not mode.updates:
            # As variables can be set, constant ones are carried as well.
            variables = inputs.values[: len(parts.graph.variables)]
            inputs.values[: len(variables)] = [Carry if spec is None else spec for spec in variables]
        key = (parts.graph.definition, parts.tree, tuple(inputs.leaves))
        if (body := bodies.get(key)) is None:
            body = bodies[key] = _ScanBody(f, parts, inputs, out_axes, axes, mode)
        leaves = [x for x in parts.leaves if not isinstance(x, ROOTS)]
        carried, sliced, constant = body.partition(parts.values(), leaves)
        (carried, _), outputs = lax.scan(body, (carried, constant), sliced, length, reverse, unroll)
        return write_back(parts, body.combine(outputs, carried))

    return scanned


def _check_carries(in_axes: PyTree, out_axes: PyTree) -> None:
    """Check that both arguments and results have a carry or none has, and that every other result is stacked.

    Raises:
      ArgumentError: they do not.
    """
    has_carry = []
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        entries = axes if type(axes) in (tuple, list) else (axes,)
        has_carry.append(any(entry is Carry for entry in entries))
        if name == "out_axes" and any(entry is None for entry in entries):
            raise ArgumentError(
                "scan, out_axes",
                expected="nnx.Carry, or a dimension to stack results along",
                got=repr(axes),
                fix="pass a dimension, such as out_axes=0, and take one of the stacked results",
            )
    if has_carry[0] != has_carry[1]:
        raise ArgumentError(
            "scan, in_axes and out_axes",
            expected="nnx.Carry in both or in none",
            got=f"in_axes={in_axes!r} and out_axes={out_axes!r}",
            fix="mark the carry in both, as in in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0)",
        )


def _check_length(in_axes: PyTree, args: tuple) -> PyTree:
    """`in_axes`, after a check that it has as many entries as there are arguments."""
    if in_axes is Carry and len(args) != 1:
        raise ArgumentError(
            "scan, in_axes",
            expected="a function of exactly one argument for in_axes=nnx.Carry",
            got=f"{len(args)} arguments",
            fix="pass one entry for each argument, such as in_axes=(nnx.Carry, 0)",
        )
    if isinstance(in_axes, tuple | list) and len(in_axes) != len(args):
        raise ArgumentError(
            "scan, in_axes",
            expected=f"{len(args)} entries, one for each argument",
            got=repr(in_axes),
            fix=f"pass {len(args)} entries, or call the loop with {len(in_axes)} arguments",
        )
    return tuple(in_axes) if isinstance(in_axes, list) else in_axes
