"""`eager_jit`: an eager call of a composite function runs as one compiled program.

The functions of `phalanx.numpy` and its siblings are made of several operations. Inside a trace they record these;
called on concrete arrays, each would run as several executions. The decorator compiles the function once for each
combination of array types and static values instead, as `jit` does, but without its options and stages.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from phalanx.core import current_scope, is_same_static, state, trace_to_jaxpr
from phalanx.engine import Cache, hide_frames, mark_api_boundary
from phalanx.runtime.array import Array, ArrayType
from phalanx.runtime.compiled_program import CompiledCall, compile_call, explain_failure
from phalanx.runtime.eager_dispatch import check_values, concrete_type
from phalanx.tree import tree_flatten, tree_unflatten

F = TypeVar("F", bound=Callable[..., Any])


@overload
def eager_jit(fun: None = None, *, static_argnames: Sequence[str] = ()) -> Callable[[F], F]: ...
@overload
def eager_jit(fun: F, *, static_argnames: Sequence[str] = ()) -> F: ...
def eager_jit(fun: Any = None, *, static_argnames: Sequence[str] = ()) -> Any:
    """Make an eager call of a composite function one compiled program.

    While a function is being traced, and under `disable_jit`, the function simply runs. Called on concrete values, it
    is compiled for the types of its array arguments and the values of all others, and the compiled program is kept.

    Args:
      fun: a function of arrays, of nested tuples and lists of them, and of static values. Any argument that is not
        numeric is static.
      static_argnames: names of numeric parameters that are static too, such as `axis`.

    Returns:
      The wrapped function.
    """
    if fun is None:
        return functools.partial(eager_jit, static_argnames=static_argnames)
    function = _EagerFunction(fun, static_argnames)
    shortcuts, call_slowly = function.shortcuts, function.call

    @functools.wraps(fun)
    def eager_call(*args: Any, **kwargs: Any) -> Any:
        try:
            if state.trace is not None:
                return fun(*args, **kwargs)
            try:
                key: Any = (
                    tuple([x._type if type(x) is Array else (type(x), x) for x in args]),
                    tuple(kwargs.items()) if kwargs else (),
                    current_scope().context,
                )
                shortcut = shortcuts.get(key)
            except TypeError:  # lists, dicts, and arrays by keyword
                key = shortcut = None
            if shortcut is None:
                return call_slowly(args, kwargs, key)
            call, positions = shortcut
            try:
                return call.run_one([args[i]._buffer for i in positions])
            except Exception as error:
                explain_failure(error, args)
                raise
        except Exception as error:
            hide_frames(error)
            raise

    return mark_api_boundary(eager_call)


class _EagerFunction:
    """The compiled forms of a function that is called eagerly.

    `shortcuts` serves calls whose positional arguments are arrays and static values, by their types and values: the
    direct call, and the positions of the arrays that it takes. `calls` serves all calls.
    """

    def __init__(self, fun: Callable, static_argnames: Sequence[str]):
        code = inspect.unwrap(fun).__code__  # a signature would take a twentieth of the time of importing a model
        names = code.co_varnames[: code.co_argcount]
        self.fun = fun
        self.static_positions = frozenset(names.index(n) for n in static_argnames if n in names)
        self.static_names = frozenset(static_argnames)
        self.calls: Cache[Any, Any] = Cache("runtime.eager_functions", 4096)
        self.shortcuts: Cache[Any, tuple[CompiledCall, tuple]] = Cache("runtime.eager_shortcuts", 4096)

    def call(self, args: tuple, kwargs: dict, shortcut: Any) -> Any:
        """Call the function on concrete values, keeping the call under the key `shortcut` where that is possible."""
        if current_scope().context.disable_jit:
            return self.fun(*args, **kwargs)
        static = [x for i, x in enumerate(args) if i in self.static_positions]
        dynamic = [x for i, x in enumerate(args) if i not in self.static_positions]
        for name, x in kwargs.items():
            (static if name in self.static_names else dynamic).append(x)
        # Static arguments are not flattened: a tuple such as `axis=(0, 1)` is one value of the key.
        leaves, tree = tree_flatten(dynamic)
        types = tuple([x._type if type(x) is Array else _leaf_type(x) for x in leaves])
        key = (types, tree, tuple(kwargs), len(args), tuple(static), current_scope().context)
        try:
            entry = self.calls.get(key)
        except TypeError:  # an unhashable static value
            return self.fun(*args, **kwargs)
        if entry is None:
            entry = self.calls[key] = self._compile(args, kwargs, leaves, tree, types)
        call, out_tree, positions = entry
        if shortcut is not None and call.is_direct and out_tree is None:
            array_positions = tuple([i for i, x in enumerate(args) if type(x) is Array])
            if len(array_positions) == len(call.compiled.lowered.in_shardings):
                self.shortcuts[shortcut] = call, array_positions
        arrays = leaves if positions is None else [leaves[i] for i in positions]
        # Lists of arrays, as `concatenate` takes them, always come here: they deserve the direct call, too.
        if call.is_direct and out_tree is None:
            try:
                return call.run_one([x._buffer for x in arrays])
            except Exception as error:
                explain_failure(error, arrays)
                raise
        out = call(arrays)
        if current_scope().context.debug_nans or current_scope().context.debug_infs:
            check_values(self.fun.__name__, out)
        return out[0] if out_tree is None else tree_unflatten(out_tree, out)

    def _compile(
        self, args: tuple, kwargs: dict, leaves: list, tree: Any, types: tuple
    ) -> tuple[CompiledCall, Any, Any]:
        """Compile for leaves of these types.

        Returns:
          The call, the tree of its result (None for a single array), and the positions of the leaves that it takes
          (None for all).
        """
        positions = [i for i, t in enumerate(types) if type(t) is ArrayType]
        out_trees: list = []

        def flat(*tracers: Any) -> list:
            values = list(leaves)
            for i, tracer in zip(positions, tracers, strict=True):
                values[i] = tracer
            # Static values keep their places in the call; dynamic ones are taken in order.
            dynamic = iter(tree_unflatten(tree, values))
            call_args = [x if i in self.static_positions else next(dynamic) for i, x in enumerate(args)]
            call_kwargs = {name: x if name in self.static_names else next(dynamic) for name, x in kwargs.items()}
            out, out_tree = tree_flatten(self.fun(*call_args, **call_kwargs))
            out_trees.append(None if out_tree == _leaf_tree else out_tree)
            return out

        array_types, name = [types[i] for i in positions], self.fun.__name__
        call = compile_call(trace_to_jaxpr(flat, [t.aval for t in array_types], name), array_types, name)
        return call, out_trees[0], None if len(positions) == len(leaves) else positions


class Static:
    """A leaf whose value is part of a cache key.

    Args:
      value: the hashable value.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        value = self.value
        return 0 if type(value) is float and value != value else hash(value)  # that of a NaN is its address

    def __eq__(self, other: object) -> bool:
        return type(other) is Static and (self.value is other.value or is_same_static(self.value, other.value))

    def __repr__(self) -> str:
        return repr(self.value)


def _leaf_type(x: Any) -> ArrayType | Static:
    if type(x) in (int, float, complex, bool) or isinstance(x, np.ndarray | np.generic) or hasattr(x, "aval"):
        return concrete_type(x)
    return Static(x)


_leaf_tree = tree_flatten(0)[1]
