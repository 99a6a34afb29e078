"""`nnx.jit`: functions of modules compiled as a whole, and their stages.

The hot path looks at each argument once: a module whose structure is the one of last time gives its variables from the
cached graph, their types and the structure make the key, and the program runs on their buffers; only variables that the
program changes are written. Everything else goes through `phalanx.jit` of the lifted function, whose arguments are
shadows and whose outputs say what they are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core.config import state
from phalanx.engine.frames import as_boundary, boundary, hide_frames
from phalanx.engine.pytree import flatten
from phalanx.nnx.graphs import joint_graph, read
from phalanx.nnx.levels import check_alive
from phalanx.nnx.lifting import ROOTS, Lifted, Outputs, Parts, Shadow, bring_back, gather, is_root
from phalanx.nnx.objects import Object
from phalanx.nnx.prefixes import InputPrefix, output_specs
from phalanx.nnx.stages import Traced
from phalanx.nnx.states import State, open_state
from phalanx.nnx.variable import Static, Variable, _set_value
from phalanx.runtime import dispatch
from phalanx.runtime.array import Array
from phalanx.runtime.dispatch import brought, concrete_type, explain_failure
from phalanx.spmd import jit as plain_jit
from phalanx.spmd.arguments import Signature
from phalanx.tree import tree_flatten

_type_of, _buffer_of, _value_of = map(operator.attrgetter, ("_type", "_buffer", "_value"))
_NO_MODULES = joint_graph(())


def _hit(call: dispatch.Call, outputs: Outputs) -> tuple:
    """What a call that hits the cache has to do."""
    outcome = outputs.outcome
    rebuilt = None if outcome.rebuild is None else outcome
    execution = call.moves, call.run, call.handlers, call.out_types
    return *execution, outcome.changed, outcome.num_out, outcome.tree.unflatten, rebuilt


class LiftedJit:
    """What is behind a compiled function of modules.

    Args:
      fun: the function.
      options: those of `phalanx.jit`; the shardings are prefixes that may hold `StateSharding`.
    """

    def __init__(self, fun: Callable, options: dict):
        self._fun = fun
        self._in_shardings = options.pop("in_shardings")
        self._out_shardings = options.pop("out_shardings")
        self._options = options
        self._statics = Signature(fun, options["static_argnums"], options["static_argnames"], None, None)
        self._calls: dict[tuple, tuple] = {}
        self._inner: dict[Any, Any] = {}

    def function(self) -> Callable:  # noqa: C901 - the hot path stands in one piece
        """The callable that users hold."""
        calls, slowly, wrap = self._calls, self._call, Array
        is_plain, take_statics = self._statics.is_plain, self._take_statics
        last: tuple = ((), None, None, ())

        @functools.wraps(self._fun)
        def compiled(*args: Any, **kwargs: Any) -> Any:  # noqa: C901
            nonlocal last
            try:
                if state.trace is not None:
                    return slowly(args, kwargs)
                own, named, statics = (args, kwargs, ()) if is_plain else take_statics(args, kwargs)
                key, inputs, variables = collected(own, named, statics)
                try:
                    types = [*map(_type_of, inputs)]
                except AttributeError:  # some data is on the host, or a variable holds a tree
                    check_alive(variables)
                    key, inputs, types = typed(key, inputs)
                # Most calls are like the one before, and comparing with that one costs less than a look-up.
                if key != last[1] or types != last[0] or state.context is not last[2]:
                    hit = calls.get((key, tuple(types), state.context))
                    if hit is None:
                        return slowly(args, kwargs, key, tuple(types))
                    last = types, key, state.context, hit
                moves, run, handlers, out_types, changed, num_out, unflatten, rebuilt = last[3]
                if moves:
                    inputs = brought(inputs, moves)
                try:
                    results = run([*map(_buffer_of, inputs)]).consume_with_handlers(handlers)
                except Exception as error:
                    explain_failure(error, inputs)
                    raise
                if not changed and rebuilt is None:
                    return unflatten(map(wrap, results, out_types))
                out = [*map(wrap, results, out_types)]
                if rebuilt is not None:
                    return bring_back(gather((own, named)), Outputs(rebuilt, out))
                for i, x in zip(changed, out[num_out:]):
                    _set_value(variables[i], x)
                return unflatten(out[:num_out])
            except Exception as error:
                hide_frames(error)
                raise

        def forget() -> None:
            nonlocal last
            last = ((), None, None, ())

        self._forget_last = forget
        for name in ("trace", "lower", "eval_shape", "clear_cache", "_cache_size"):
            setattr(compiled, name, boundary(getattr(self, name)))
        compiled._jit = self  # type: ignore[attr-defined]
        return as_boundary(compiled)

    def _take_statics(self, args: tuple, kwargs: dict) -> tuple[tuple, dict, tuple]:
        """The other arguments, and the static ones by their positions and names."""
        numbers, names = self._statics.static_argnums, self._statics.static_argnames
        statics = [(i, Static(x)) for i, x in enumerate(args) if i in numbers]
        statics += [(k, Static(kwargs[k])) for k in sorted(kwargs) if k in names]
        own = tuple([x for i, x in enumerate(args) if i not in numbers])
        return own, {k: x for k, x in kwargs.items() if k not in names}, tuple(statics)

    def _gather(self, args: tuple, kwargs: dict) -> tuple[Parts, tuple, dict]:
        """The arguments taken apart, without the static ones, and all as the inner function takes them."""
        own, named, statics = self._take_statics(args, kwargs)
        parts = gather((own, named))
        own, named = parts.shadowed()
        if statics:
            fixed = dict(statics)
            given = iter(own)
            own = tuple([fixed[i].value if i in fixed else next(given) for i in range(len(args))])
            named |= {k: x.value for k, x in statics if isinstance(k, str)}
        return parts, own, named

    def _call(self, args: tuple, kwargs: dict, key: Any = None, types: Any = None) -> Any:
        """Every call that is not a plain hit."""
        parts, own, named = self._gather(args, kwargs)
        inner = self._inner_for(parts)
        outputs = inner(*own, **named)
        if state.trace is None and not state.context.disable_jit:
            call = inner._jit.entry(own, named)
            is_flat = len(outputs.values) == len(call.out_types)
            if is_flat and call.is_plain:
                self._calls[key, types, state.context] = _hit(call, outputs)
        return bring_back(parts, outputs)

    def _inner_for(self, parts: Parts) -> Any:
        """The compiled function of shadows: one for all, or one for each structure where shardings depend on it."""
        if self._in_shardings is None and self._out_shardings is None:
            if None not in self._inner:
                self._inner[None] = plain_jit(_Compiled(self._fun), **self._options)
            return self._inner[None]
        key = parts.graph.definition, parts.tree
        if key not in self._inner:
            inputs = InputPrefix("jit, in_shardings", self._in_shardings, parts)
            shardings = inputs.shadowed(parts)[0] if self._in_shardings is not None else None
            function = _Placed(self._fun, self._out_shardings, inputs)
            self._inner[key] = plain_jit(
                function, in_shardings=shardings, out_shardings=function.out_shardings, **self._options
            )
        return self._inner[key]

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these types: the first stage."""
        parts, own, named = self._gather(args, kwargs)
        return Traced(self._inner_for(parts).trace(*own, **named), self, parts.graph.definition)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Trace and lower for arguments of these types: the second stage."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The types of the results, modules in them as states, without compiling."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all programs of this function."""
        self._forget_last()
        self._calls.clear()
        self._inner.clear()

    def _cache_size(self) -> int:
        return sum(f._cache_size() for f in self._inner.values())


class _Compiled(Lifted):
    """A lifted function as `phalanx.jit` takes it."""

    def keeps(self, call: Any, out_tree: Any) -> set[int]:
        """The leaves of donated modules that nothing takes the place of: the caller's variables go on holding them."""
        changed = set(out_tree.node_data()[1].changed)
        leaves, _ = tree_flatten(call.dynamic(), is_leaf=lambda x: type(x) is Shadow)
        kept: set[int] = set()
        start = 0
        for leaf in leaves:
            if type(leaf) is not Shadow:
                start += 1
                continue
            counts = leaf.definition.counts
            first = sum(counts[: leaf.number])
            for n, value in enumerate(leaf.values):
                size = len(tree_flatten(value)[0])
                if n >= counts[leaf.number] or first + n not in changed:
                    kept.update(range(start, start + size))
                start += size
        return kept


class _Placed(_Compiled):
    """A lifted function that says where its outputs are to be once it knows what they are.

    Args:
      fun: the user's function.
      prefix: the user's `out_shardings`.
      inputs: the user's `in_shardings`, spread over the arguments.
    """

    def __init__(self, fun: Callable, prefix: Any, inputs: InputPrefix):
        super().__init__(fun)
        self._prefix, self._inputs = prefix, inputs
        # Filled at each trace, and read by `jit` right after it.
        self.out_shardings = Outputs(None, [])

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        outputs = super().__call__(*args, **kwargs)
        self.out_shardings.outcome = outputs.outcome
        self.out_shardings.values = output_specs("jit, out_shardings", self._prefix, outputs.outcome, self._inputs)
        return outputs


def collected(args: tuple, kwargs: dict, statics: tuple = ()) -> tuple[tuple, list, Sequence[Variable]]:
    """The key of a call's structure, its arrays in the program's order, and the variables of its modules."""
    given = args
    kinds: list[Any] = []
    if kwargs:
        names = sorted(kwargs)
        given = (*args, *[kwargs[name] for name in names])
        kinds += names
    roots: list[Any] = []
    for x in given:
        if type(x) is Array:
            kinds.append(Array)  # a structure compares with anything but None
        elif isinstance(x, Object):
            roots.append(x)
            kinds.append(Object)
        else:
            leaves, tree = _opened(x)
            inner = [leaf for leaf in leaves if isinstance(leaf, ROOTS)]
            roots += inner
            kinds.append((tree, leaves, bool(inner)))
    joint = joint_graph(roots) if roots else _NO_MODULES
    num_names = len(kwargs)
    inputs: list[Any] = []
    key: list[Any] = [joint.definition, statics, len(given), *kinds[:num_names]]
    groups = iter(joint.groups)
    for x, kind in zip(given, kinds[num_names:]):
        if kind is Array:
            inputs.append(x)
            key.append(Array)
        elif kind is Object:
            _add_values(inputs, next(groups), roots)
            key.append(Object)
        else:
            tree, leaves, has_roots = kind
            if has_roots:
                is_node = tuple([isinstance(leaf, ROOTS) for leaf in leaves])
                for leaf, node in zip(leaves, is_node):
                    _add_values(inputs, next(groups), roots) if node else inputs.append(leaf)
                key.append((tree, is_node))
            else:
                inputs += leaves
                key.append(tree)
    return tuple(key), inputs, joint.variables


def _opened(x: Any) -> tuple[list, Any]:
    """The leaves of an argument, modules and variables among them, and its structure; states need no general walk."""
    if type(x) is State:
        leaves: list[Any] = []
        shape: list[Any] = [State]
        if open_state(x._mapping, leaves, shape):
            return leaves, tuple(shape)
    return flatten(x, is_root)


def _add_values(inputs: list, group: tuple[list, list], roots: list) -> None:
    """Add the values of a module: of its variables, then of its other arrays."""
    variables, refs = group
    inputs += map(_value_of, variables)
    if refs:
        inputs += [read(roots[h] if type(h) is int else h, k) for h, k in refs]


def typed(key: tuple, inputs: list) -> tuple[tuple, list, list]:
    """The key, the leaves and their types of inputs that are not all arrays."""
    leaves, tree = flatten(inputs, None)
    return (*key, tree), leaves, [*map(concrete_type, leaves)]


def jit(
    fun: Callable | None = None,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: Any = None,
    static_argnames: Any = None,
    donate_argnums: Any = None,
    donate_argnames: Any = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Compile a function of modules as a whole; changes it makes to them are made to the caller's.

    Args:
      fun: a function of modules, arrays and pytrees of them. Left out, `jit` gives a decorator.
      in_shardings, out_shardings: as in `phalanx.jit`; where a module stands, a sharding for all its variables or a
        `StateSharding`. Changed variables are placed as they came in.
      static_argnums, static_argnames, donate_argnums, donate_argnames: as in `phalanx.jit`.
      keep_unused, device, backend, inline, compiler_options: as in `phalanx.jit`.
      graph, graph_updates: taken for compatibility; sharing and changes of structure are always kept.

    Returns:
      The compiled function, with the stages `trace`, `lower` and `eval_shape` as methods.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> class Counter(nnx.Module):
      ...     def __init__(self):
      ...         self.n = nnx.BatchStat(jnp.array(0))
      >>> @nnx.jit
      ... def count(counter, by):
      ...     counter.n.value += by
      >>> counter = Counter()
      >>> count(counter, 2)
      >>> int(counter.n.value)
      2
    """
    options = dict(
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        keep_unused=keep_unused,
        device=device,
        backend=backend,
        inline=inline,
        compiler_options=compiler_options,
    )
    if fun is None:
        return lambda f: jit(f, **options)
    return LiftedJit(fun, options).function()


def jit_partial(fun: Callable, *partial_args: Any, **options: Any) -> Callable:
    """A compiled function of modules with its first arguments given.

    Args:
      fun: the function.
      *partial_args: its first arguments.
      **options: those of `jit`; positions and shardings count all arguments.

    Returns:
      The compiled function of the other arguments.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> double = nnx.jit_partial(lambda w, x: w * x, nnx.Param(jnp.array(2.0)))
      >>> float(double(3.0))
      6.0
    """
    return functools.partial(jit(fun, **options), *partial_args)
