"""Loops over functions of modules: `scan`, `while_loop`, `fori_loop`.

A scan's variables are carried, sliced along a dimension, or the same in each iteration, as `in_axes` says; the body of
each loop is made once for each structure, so that its program is found again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import phalanx.numpy as jnp
from phalanx import lax
from phalanx.core.errors import ArgumentError, TreeError
from phalanx.core.source import code_position
from phalanx.nnx.graphs import joint_graph
from phalanx.nnx.lifting import (
    ROOTS,
    Inside,
    Outputs,
    Parts,
    Shadow,
    body_for,
    bring_back,
    gather,
    is_root,
    refuse_rebuild,
    shadows_of,
)
from phalanx.nnx.mapping import Axes
from phalanx.nnx.prefixes import Carry, InputPrefix, output_specs
from phalanx.nnx.rngs import RngState
from phalanx.nnx.states import path_text
from phalanx.nnx.variable import MISSING, Variable
from phalanx.tree import flatten_axes, tree_flatten, tree_map


def _front(value: Any, axis: int) -> Any:
    """A value with the dimension that is run over in front."""
    return value if axis == 0 else tree_map(lambda x: jnp.moveaxis(x, axis, 0), value)


def _back(value: Any, axis: int) -> Any:
    return value if axis == 0 else tree_map(lambda x: jnp.moveaxis(x, 0, axis), value)


class _ScanBody:
    """One iteration: carried values and slices in, carried values and results out.

    Args:
      fun: the user's function.
      parts: arguments of the structure it is for.
      inputs: what `in_axes` says of each.
      out_axes: the option.
      axes: what happens to names of dimensions.
    """

    def __init__(self, fun: Callable, parts: Parts, inputs: InputPrefix, out_axes: Any, axes: Axes):
        self.fun, self.inputs, self.out_axes, self.axes = fun, inputs, out_axes, axes
        self.definition, self.tree = parts.graph.definition, parts.tree
        self.sizes = [(len(variables), len(refs)) for variables, refs in parts.graph.groups]
        self.is_root = [isinstance(x, ROOTS) for x in parts.leaves]
        self.where = f"scan of {code_position(fun)}"
        self.__name__ = getattr(fun, "__name__", "body")

    def sorted(self, values: Sequence[Any], leaves: Sequence[Any]) -> tuple[list, list, list]:
        """Values and leaves as (carried, sliced, the same in each iteration), each variables first."""
        carried: list[Any] = []
        sliced: list[Any] = []
        fixed: list[Any] = []
        for x, spec in [*zip(values, self.inputs.values), *zip(leaves, self.inputs.arrays)]:
            if spec is Carry:
                carried.append(x)
            elif spec is None:
                fixed.append(x)
            else:
                sliced.append(_front(x, spec))
        return carried, sliced, fixed

    def __call__(self, carry: tuple, sliced: list) -> tuple:
        carried, fixed = carry
        by_kind = {Carry: iter(carried), None: iter(fixed)}
        slices = iter(sliced)
        filled = [
            next(by_kind[s] if s is Carry or s is None else slices) for s in (*self.inputs.values, *self.inputs.arrays)
        ]
        count = len(self.inputs.values)
        inside = Inside(self._shadowed(filled[:count], filled[count:]))
        self.axes.enter(inside, self.inputs.values)
        out = self.fun(*inside.args[0])
        for v, given, spec in zip(inside.copies, inside.given, self.inputs.values):
            if spec is None and isinstance(v, RngState):  # the same stream in each iteration draws the same each time
                v._value = given
        new_carry = self._take_carry(inside, out)
        outputs = inside.outputs(out)
        specs = output_specs("scan, out_axes", self.out_axes, outputs.outcome, self.inputs)
        self.axes.leave(inside, outputs, self.inputs.values, specs)
        self._check(outputs, specs)
        stacked = [None if s is Carry else x for x, s in zip(outputs.values, specs, strict=True)]
        return (new_carry, fixed), Outputs(outputs.outcome, stacked)

    def _shadowed(self, values: list, leaves: list) -> Any:
        shadows, given = shadows_of(self.definition, self.sizes, values), iter(leaves)
        return self.tree.unflatten([next(shadows) if root else next(given) for root in self.is_root])

    def _take_carry(self, inside: Inside, out: Any) -> list:
        """The carried values after this iteration: those of carried variables, then the result's carried leaves."""
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        specs = flatten_axes("scan, out_axes", tree, self.out_axes, is_leaf=_is_leaf, lists_as_tuples=True)
        chosen = [x for x, s in zip(leaves, specs, strict=True) if s is Carry]
        replace_roots(
            self.where,
            [r for r, s in zip(inside.roots, self.inputs.roots) if s is Carry],
            [x for x in chosen if is_root(x)],
        )
        arrays = [x for x in chosen if not is_root(x)]
        expected = sum(s is Carry for s in self.inputs.arrays)
        if len(arrays) != expected:
            raise TreeError(
                f"{self.where}, the carry",
                expected=f"{expected} leaves apart from modules, as many as came in",
                got=f"{len(arrays)} in the result",
                mend="return a carry of the structure of the argument that in_axes marks with nnx.Carry",
            )
        variables = [v._value for v, s in zip(inside.copies, self.inputs.values) if s is Carry]
        count = len(inside.copies)
        others = [x for x, s in zip(inside.arrays, self.inputs.values[count:]) if s is Carry]
        return [*variables, *others, *arrays]

    def _check(self, outputs: Outputs, specs: list) -> None:
        for origin, spec in zip(outputs.outcome.origins, specs, strict=True):
            if origin.kind == "variable" and spec is None:
                name = type(origin.variable).__name__
                raise ArgumentError(
                    f"{self.where}, {name} {path_text(origin.path)}",
                    expected="a variable that stays as it is, since in_axes is None for it",
                    got="a new value in each iteration",
                    mend=f"carry it: in_axes=nnx.StateAxes({{nnx.{name}: nnx.Carry, ...: None}})",
                )
            if origin.kind == "out" and spec is None:
                raise ArgumentError(
                    f"{self.where}, out_axes",
                    expected="nnx.Carry or a dimension to stack results along",
                    got="None",
                    mend="give a dimension, and take one of the stacked results",
                )
            if origin.kind == "new" and not isinstance(spec, int):
                raise ArgumentError(
                    f"{self.where}, {type(origin.variable).__name__} {path_text(origin.path)}",
                    expected="a dimension to stack new variables along",
                    got=f"{getattr(spec, '__name__', spec)} for a variable that is made in the loop",
                    mend="make the variable before the loop, or give a dimension for it in in_axes",
                )

    def unsorted(self, outputs: Outputs, carried: list) -> Outputs:
        """All output values: those that were stacked, and the last of what was carried."""
        outcome = outputs.outcome
        specs = output_specs("scan, out_axes", self.out_axes, outcome, self.inputs)
        numbers = [i for i, s in enumerate(self.inputs.values) if s is Carry]
        last = dict(zip(numbers, carried))
        leaves = iter(carried[len(numbers) :])
        values = []
        for origin, spec, x in zip(outcome.origins, specs, outputs.values, strict=True):
            if spec is not Carry:
                values.append(_back(x, spec))
            else:
                values.append(last[origin.number] if origin.kind == "variable" else next(leaves))
        return Outputs(outcome, values)


def _is_leaf(x: Any) -> bool:
    return x is None or x is Carry


def replace_roots(where: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Give the modules that go into an iteration the values of those that come out of it.

    Raises:
      TreeError: they have another structure.
    """
    if len(before) == len(after) and all(a is b for a, b in zip(before, after)):
        return
    if len(before) != len(after) or joint_graph(before).definition is not joint_graph(after).definition:
        shown = [", ".join(type(x).__name__ for x in side) or "none" for side in (before, after)]
        raise TreeError(
            f"{where}, the carried modules",
            expected=f"modules of the structure that came in ({shown[0]})",
            got=f"others ({shown[1]})",
            mend="return the modules that came in, without changing their attributes",
        )
    for old, new in zip(joint_graph(before).variables, joint_graph(after).variables):
        old._value = new._value


def scan(
    f: Any = MISSING,
    *,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    in_axes: Any = (Carry, 0),
    out_axes: Any = (Carry, 0),
    transform_metadata: Mapping[str, Any] = {},
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A function of modules as a loop over a dimension of its arguments, compiled once however long it is.

    Args:
      f: one iteration. Left out, a decorator is given.
      length: the number of iterations, needed where nothing is sliced.
      reverse, unroll: as in `lax.scan`.
      in_axes: for each argument, as a prefix: `nnx.Carry` for what goes from one iteration to the next, the dimension
        that is run over, or None for what is the same in each; `StateAxes` says it for a module's variables. A random
        stream that is the same in each iteration draws the same each time, and is as it was afterwards.
      out_axes: for the result: `nnx.Carry`, or the dimension along which results are stacked.
      transform_metadata: with `partition_name`, the name of that dimension in the variables' `out_sharding`.
      graph, graph_updates: taken for compatibility.

    Returns:
      The loop; changes to carried and sliced variables are made to the caller's modules.

    Raises:
      ArgumentError: a variable that is to be the same in each iteration is changed.
      TreeError: the carry changes its structure.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> total, sums = nnx.scan(lambda c, x: (c + x, c + x))(0.0, jnp.arange(4.0))
      >>> float(total), sums.tolist()
      (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    options: dict[str, Any] = dict(
        length=length, reverse=reverse, unroll=unroll, in_axes=in_axes, out_axes=out_axes,
        transform_metadata=transform_metadata,
    )  # fmt: skip
    if f is MISSING:
        return functools.partial(scan, **options)
    axes = Axes(transform_metadata)
    bodies: dict[Any, _ScanBody] = {}

    @functools.wraps(f)
    def scanned(*args: Any) -> Any:
        parts = gather((args, {}))
        inputs = InputPrefix("scan, in_axes", _per_argument(in_axes, args), parts)
        key = (parts.graph.definition, parts.tree, tuple(inputs.leaves))
        if key not in bodies:
            bodies[key] = _ScanBody(f, parts, inputs, out_axes, axes)
        body = bodies[key]
        carried, sliced, fixed = body.sorted(parts.values(), [x for x in parts.leaves if not isinstance(x, ROOTS)])
        (carried, _), outputs = lax.scan(body, (carried, fixed), sliced, length, reverse, unroll)
        return bring_back(parts, body.unsorted(outputs, carried))

    return scanned


def _per_argument(in_axes: Any, args: tuple) -> Any:
    """`in_axes` for as many arguments as there are; `(Carry, 0)` alone also fits a function of the carry only."""
    if isinstance(in_axes, tuple | list) and len(in_axes) != len(args):
        raise ArgumentError(
            "scan, in_axes",
            expected=f"{len(args)} entries, one for each argument",
            got=repr(in_axes),
            mend="give an entry for each argument",
        )
    return tuple(in_axes) if isinstance(in_axes, list) else in_axes


class _LoopBody:
    """One iteration of `while_loop` or `fori_loop`, from all values to all values.

    Args:
      where: the loop, for messages.
      fun: the user's function.
    """

    def __init__(self, where: str, fun: Callable):
        self.fun = fun
        self.written: set[int] = set()  # the numbers of the variables that an iteration has changed so far
        self.where = f"{where} of {code_position(fun)}"
        self.__name__ = getattr(fun, "__name__", "body")

    def __call__(self, *args: Any) -> Any:
        *index, shadowed = args
        inside = Inside(shadowed)
        out = self.fun(*index, inside.args)
        leaves, tree = tree_flatten(out, is_leaf=is_root)
        replace_roots(self.where, inside.roots, [x for x in leaves if is_root(x)])
        outputs = inside.outputs(None, every=True)
        refuse_rebuild(self.where, outputs.outcome)
        self.written |= outputs.outcome.written
        shadows = iter(_refilled(shadowed, [*outputs.values, *inside.arrays]))
        return tree.unflatten([next(shadows) if is_root(x) else x for x in leaves])


def _refilled(shadowed: Any, values: list) -> list:
    """The shadows of a carried value with new values."""
    shadows = [x for x in tree_flatten(shadowed, is_leaf=lambda x: type(x) is Shadow)[0] if type(x) is Shadow]
    total = sum(s.definition.counts[s.number] for s in shadows)
    variables, arrays = iter(values[:total]), iter(values[total:])
    made = []
    for s in shadows:
        count = s.definition.counts[s.number]
        held = [next(variables) for _ in range(count)] + [next(arrays) for _ in range(len(s.values) - count)]
        made.append(Shadow(s.definition, s.number, held))
    return made


def _condition(fun: Callable) -> Callable:
    def condition(shadowed: Any) -> Any:
        out = fun(Inside(shadowed).args)
        return out.value if isinstance(out, Variable) else out

    condition.__name__ = getattr(fun, "__name__", "condition")
    return condition


def while_loop(
    cond_fun: Callable,
    body_fun: Callable,
    init_val: Any,
    *,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A loop while a condition holds, modules among what is carried.

    Args:
      cond_fun: from the carried value to a boolean scalar.
      body_fun: from the carried value to the next one, of the same structure and types.
      init_val: the first one.
      graph, graph_updates: taken for compatibility.

    Returns:
      The value for which the condition no longer holds; its modules are the caller's, changed.

    Raises:
      TreeError, TraceError: the carried value changes its structure.

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
    parts = gather(init_val)
    shadowed = parts.shadowed()
    condition = body_for(cond_fun, "condition", _condition)
    key = "while", parts.graph.definition
    body = body_for(body_fun, key, lambda call: _LoopBody("while_loop", call))
    return _finished(parts, lax.while_loop(condition, body, shadowed), body.written)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable,
    init_val: Any,
    *,
    unroll: int | bool | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """A counted loop, modules among what is carried.

    Args:
      lower: the first index.
      upper: one past the last index.
      body_fun: `(i, value) -> value`, of the same structure and types.
      init_val: the first value.
      unroll: as in `lax.fori_loop`.
      graph, graph_updates: taken for compatibility.

    Returns:
      The last value; its modules are the caller's, changed.

    Raises:
      TreeError, TraceError: the carried value changes its structure.

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
    parts = gather(init_val)
    shadowed = parts.shadowed()
    key = "for", parts.graph.definition
    body = body_for(body_fun, key, lambda call: _LoopBody("fori_loop", call))
    return _finished(parts, lax.fori_loop(lower, upper, body, shadowed, unroll=unroll), body.written)


def _finished(parts: Parts, shadowed: Any, written: set[int]) -> Any:
    """The carried value after a loop, with the caller's modules brought up to date."""
    inside_values = Inside(shadowed)
    for number in sorted(written):
        parts.graph.variables[number].set_raw_value(inside_values.given[number])
    roots = iter(parts.roots)
    leaves = tree_flatten(inside_values.args, is_leaf=is_root)[0]
    return parts.tree.unflatten([next(roots) if is_root(x) else x for x in leaves])
