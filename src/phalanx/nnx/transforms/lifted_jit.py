"""`nnx.jit` and `nnx.jit_partial`: compile a function of modules; its stages `Traced`, `Lowered` and `Compiled`.

The fast path looks at each argument once. A module whose structure is unchanged yields its variables from the cached
graph; their types and the structure form the key of the compiled program, which runs on their buffers; then only the
variables that the program sets are updated. All other calls use `phalanx.jit` of the lifted function.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from phalanx.core import TreeError, current_scope, state
from phalanx.engine import Cache, api_boundary, hide_frames, mark_api_boundary
from phalanx.engine.pytree import flatten
from phalanx.nnx.graph_mode import GraphMode, resolve_mode
from phalanx.nnx.graphlib import (
    GraphDef,
    State,
    describe_difference,
    flatten_state,
    get_entry,
    get_joint_graph,
    make_unflatten,
)
from phalanx.nnx.objects import ROOTS, Pytree, is_root
from phalanx.nnx.trace_level import check_not_leaked
from phalanx.nnx.transforms.lifting import (
    Lifted,
    LiftedArguments,
    Outputs,
    OutputSpec,
    flatten_arguments,
    get_leaf_paths,
    is_pure,
    make_state,
    write_back,
)
from phalanx.nnx.transforms.state_axes import InputPrefix, get_output_prefixes, place_variables
from phalanx.nnx.transforms.user_functions import check_unbound, insert_static
from phalanx.nnx.variable import Static, Variable, _set_value
from phalanx.runtime import Array, CompiledCall, concrete_type, explain_failure, transfer_arguments, wrap_buffer
from phalanx.spmd import jit as plain_jit
from phalanx.spmd.call_arguments import Signature
from phalanx.tree import PyTreeDef, tree_flatten, tree_map, tree_structure
from phalanx.typing import PyTree


def _to_states(tree: PyTree) -> PyTree:
    """Replace each `PureModule` in a tree by a state, or by the value of a variable that is an argument itself."""

    return tree_map(lambda x: make_state(get_leaf_paths(x), x.values) if is_pure(x) else x, tree, is_leaf=is_pure)


def _to_result(outcome: OutputSpec, values: Sequence[Any]) -> PyTree:
    """The result with these values, and a state with the new variables of each module in it."""
    leaves = iter(values[: outcome.num_out])
    new: dict[int, tuple[list, list]] = {}
    for origin, value in zip(outcome.origins, values, strict=True):
        if origin.kind in ("new", "array") and origin.number >= outcome.num_roots:
            paths, found = new.setdefault(origin.number - outcome.num_roots, ([], []))
            paths.append(origin.path)
            found.append(value)
    numbers = iter(range(len(outcome.is_node)))
    results = [make_state(*new.get(next(numbers), ([], []))) if n else next(leaves) for n in outcome.is_node]
    return outcome.tree.unflatten(results)


def _forward(*names: str) -> list[property]:
    """Properties that return attributes of the inner stage."""
    return [property(lambda self, name=name: getattr(self._stage, name)) for name in names]


class _Stage:
    """The attributes that all stages have.

    Args:
      stage: the stage of the inner function.
      owner: the compiled function.
      definition: the structure of the modules in the arguments.
      bound: the first arguments, which `jit_partial` binds.
    """

    def __init__(self, stage: Any, owner: LiftedJit, definition: GraphDef, bound: tuple = ()):
        self._stage, self._owner, self._definition, self._bound = stage, owner, definition, bound

    @property
    def _outcome(self) -> OutputSpec:
        return self._stage.out_tree.node_data()[1]

    @property
    def args_info(self) -> Any:
        """The type of each argument and whether it is donated, as `(args, kwargs)`."""
        return _to_states(self._stage.args_info)

    @property
    def in_avals(self) -> Any:
        """The abstract values of `(args, kwargs)`."""
        return _to_states(self._stage.in_avals)

    @property
    def in_tree(self) -> PyTreeDef:
        """The structure of `(args, kwargs)`, with a state for each module."""
        return tree_structure(self.args_info)

    @property
    def out_info(self) -> Any:
        """The types of the results, with a state for each module that the function creates."""
        return _to_result(self._outcome, list(self._stage.out_info.values))

    @property
    def out_tree(self) -> PyTreeDef:
        """The structure of the results."""
        return tree_structure(self.out_info)

    donate_argnums, effects = _forward("donate_argnums", "effects")

    def _advance(self, kind: type, stage: Any) -> Any:
        """The next stage of the same function."""
        return kind(stage, self._owner, self._definition, self._bound)

    def bind(self, args: tuple) -> Any:
        """The same stage with bound first arguments."""
        return type(self)(self._stage, self._owner, self._definition, args)

    def __repr__(self) -> str:
        return f"nnx.{self._stage!r}"


class Traced(_Stage):
    """A function of modules traced for arguments of given types: the first stage."""

    jaxpr, fun_name, out_avals = _forward("jaxpr", "fun_name", "out_avals")

    def lower(self, **options: Any) -> Lowered:
        """Lower the function for the shardings of the example arguments: the second stage."""
        return self._advance(Lowered, self._stage.lower(**options))


class Lowered(_Stage):
    """A function of modules as StableHLO for given devices and shardings: the second stage."""

    program, fun_name = _forward("program", "fun_name")  # for `phalanx.plan`
    input_paths, compile_offline, auto = _forward("input_paths", "compile_offline", "auto")

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        """Compile the function: the third stage."""
        return self._advance(Compiled, self._stage.compile(compiler_options))

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as text, in the dialect "stablehlo" (default) or "hlo"."""
        return self._stage.as_text(dialect, debug_info=debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The MLIR module ("stablehlo") or the XLA computation ("hlo")."""
        return self._stage.compiler_ir(dialect)

    def cost_analysis(self) -> Any:
        """XLA's estimate of floating-point operations and bytes accessed, before compilation."""
        return self._stage.cost_analysis()


class Compiled(_Stage):
    """A compiled function of modules for arguments of given types: the third stage."""

    out_avals, program = _forward("out_avals", "program")

    @property
    def input_shardings(self) -> Any:
        """The shardings of the arguments, as `(args, kwargs)`."""
        return _to_states(self._stage.input_shardings)

    @property
    def output_shardings(self) -> Any:
        """The shardings of the results."""
        return _to_result(self._outcome, list(self._stage.output_shardings.values))

    @property
    def input_formats(self) -> Any:
        """The layouts and shardings of the arguments, as `(args, kwargs)`; unused arguments have no layout."""
        return _to_states(self._stage.input_formats)

    @property
    def output_formats(self) -> Any:
        """The layouts and shardings of the results."""
        return _to_result(self._outcome, list(self._stage.output_formats.values))

    @property
    def input_layouts(self) -> Any:
        """The layouts of the arguments."""
        return tree_map(lambda f: f.layout, self.input_formats)

    @property
    def output_layouts(self) -> Any:
        """The layouts of the results."""
        return tree_map(lambda f: f.layout, self.output_formats)

    def as_text(self) -> str:
        """The optimized program as text."""
        return self._stage.as_text()

    def cost_analysis(self) -> Any:
        """XLA's estimate of floating-point operations and bytes accessed."""
        return self._stage.cost_analysis()

    def memory_analysis(self) -> Any:
        """XLA's estimate of the memory used on one device."""
        return self._stage.memory_analysis()

    def runtime_executable(self) -> Any:
        """The executable of the runtime."""
        return self._stage.runtime_executable()

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arguments of the types that it was compiled for; the same as calling the stage."""
        return self(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arguments of the types that it was compiled for, and update the caller's modules.

        Raises:
          TreeError: an argument or a module has another structure.
          ArgumentTypeError: an argument has another shape, dtype or sharding.
          TraceError: an argument is a tracer.
        """
        parts, pure_args, pure_kwargs = self._owner.flatten((*self._bound, *args), kwargs)
        # Definitions are interned, so that identity means equality.
        definition = parts.graph.definition
        if definition is not self._definition:
            raise TreeError(
                f"call of compiled {self._stage._traced.fun_name}",
                expected=f"modules of the structure it was compiled for, {self._definition!r}",
                got=f"{definition!r}, which differs at {describe_difference(self._definition, definition)}",
                fix="pass modules of this structure, or call the nnx.jit function, which compiles for new structures",
            )
        return write_back(parts, self._stage(*pure_args, **pure_kwargs))


_get_type, _get_buffer, _get_value = map(operator.attrgetter, ("_type", "_buffer", "_value"))
_NO_MODULES = get_joint_graph(())


def _make_cache_entry(call: CompiledCall, outputs: Outputs) -> tuple:
    """Everything that a call needs to run a compiled program, in the order in which the fast path unpacks it."""
    outcome = outputs.outcome
    rebuilt = None if outcome.rebuild is None and not outcome.metadata else outcome
    unflatten = make_unflatten(outcome.tree)
    return call.moves, call.execute, call.out_types, outcome.changed, outcome.num_out, unflatten, rebuilt


class LiftedJit:
    """The state of a compiled function of modules: its options, its fast path, and its compiled programs.

    Args:
      fun: the function.
      options: the options of `phalanx.jit`; the shardings are prefixes that may contain a `StateSharding`.
      mode: the mode of the transformation.
    """

    def __init__(self, fun: Callable, options: dict[str, Any], mode: GraphMode):
        self._fun, self.mode = fun, mode
        self._in_shardings = options.pop("in_shardings")
        self._out_shardings = options.pop("out_shardings")
        self._options = options
        self._statics = Signature(fun, options["static_argnums"], options["static_argnames"], None, None)
        self._calls: Cache[tuple, tuple] = Cache("nnx.jit_calls", 4096)
        self._inner: Cache[Hashable, Any] = Cache("nnx.jit_functions", 1024)

    def function(self) -> Callable:  # noqa: C901 - the fast path is one function, since every call in it costs time
        """The callable for users."""
        calls, call_slow_path, wrap = self._calls, self._call, wrap_buffer
        is_plain, take_statics = self._statics.is_plain, self._take_statics
        # The previous call: types, key, context and cache entry.
        last: tuple = ((), None, None, ())

        @functools.wraps(self._fun)
        def compiled(*args: Any, **kwargs: Any) -> Any:  # noqa: C901
            nonlocal last
            try:
                # Inside another trace nothing is executed, so there are no buffers for the fast path.
                if state.trace is not None:
                    return call_slow_path(args, kwargs)
                dynamic, named, statics = (args, kwargs, ()) if is_plain else take_statics(args, kwargs)
                # One pass over the arguments; no pytree is built.
                key, inputs, variables = flatten_call(dynamic, named, statics)
                try:
                    types = [*map(_get_type, inputs)]
                except AttributeError:  # some data is on the host, or a variable holds a tree
                    check_not_leaked(variables)
                    key, inputs, types = flatten_call_with_host_data(key, inputs)
                # Most calls are like the previous one. Comparing with it is cheaper than hashing the key.
                # Read once, since another thread may replace it.
                known_types, known_key, known_context, hit = last
                context = current_scope().context
                if key != known_key or types != known_types or context is not known_context:
                    hit = calls.get((key, tuple(types), context))
                    if hit is None:
                        return call_slow_path(args, kwargs, key, tuple(types))
                    last = types, key, context, hit
                moves, execute, out_types, changed, num_out, unflatten, rebuilt = hit
                if moves:
                    inputs = transfer_arguments(inputs, moves)
                try:
                    # `map` over attribute getters written in C is faster than a comprehension.
                    results = execute([*map(_get_buffer, inputs)])
                except Exception as error:
                    explain_failure(error, inputs)
                    raise
                if not changed and rebuilt is None:
                    return unflatten(map(wrap, results, out_types))
                out = [*map(wrap, results, out_types)]
                # The program creates modules or changes structures: the general code applies the output spec.
                if rebuilt is not None:
                    return write_back(flatten_arguments((dynamic, named)), Outputs(rebuilt, out))
                # Assigned without hooks or checks of the trace: the values come from a program that was traced with
                # both.
                for i, x in zip(changed, out[num_out:]):
                    _set_value(variables[i], x)
                return unflatten(out[:num_out])
            except Exception as error:
                hide_frames(error)
                raise

        # For `clear_cache`: the closure would otherwise keep the last compiled program alive.
        def forget_last() -> None:
            nonlocal last
            last = ((), None, None, ())

        self._forget_last = forget_last
        for name in ("trace", "lower", "eval_shape", "clear_cache", "_cache_size"):
            setattr(compiled, name, api_boundary(getattr(self, name)))
        compiled._jit = self  # type: ignore[attr-defined]
        return mark_api_boundary(compiled)

    def _take_statics(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], tuple]:
        """The dynamic arguments, and the static ones with their positions and names."""
        numbers, names = self._statics.static_argnums, self._statics.static_argnames
        given = [*enumerate(args), *sorted(kwargs.items(), key=operator.itemgetter(0))]
        statics = tuple([(k, Static(x)) for k, x in given if k in numbers or k in names])
        dynamic = tuple([x for i, x in enumerate(args) if i not in numbers])
        return dynamic, {k: x for k, x in kwargs.items() if k not in names}, statics

    def flatten(self, args: tuple, kwargs: dict[str, Any]) -> tuple[LiftedArguments, tuple, dict[str, Any]]:
        """The flattened dynamic arguments, and all arguments for the inner function.

        Args:
          args, kwargs: the caller's arguments.
        """
        dynamic, named, statics = self._take_statics(args, kwargs)
        parts = flatten_arguments((dynamic, named), self.mode, "jit")
        pure_args, pure_kwargs = parts.to_pure()
        values = {k: x.value for k, x in statics}
        pure_kwargs |= {k: x for k, x in values.items() if isinstance(k, str)}
        return parts, insert_static(values, pure_args), pure_kwargs

    def _call(self, args: tuple, kwargs: dict[str, Any], key: tuple | None = None, types: tuple | None = None) -> Any:
        """Call the inner function, and add the compiled program to the cache of the fast path if possible."""
        parts, pure_args, pure_kwargs = self.flatten(args, kwargs)
        inner, inputs = self._get_inner(parts)
        if self.mode.updates and state.trace is None and inputs is not None and place_variables(parts, inputs):
            # The types have changed, and the program is not added to the cache under the ones before.
            parts, pure_args, pure_kwargs = self.flatten(args, kwargs)
            return write_back(parts, inner(*pure_args, **pure_kwargs))
        outputs = inner(*pure_args, **pure_kwargs)
        if state.trace is None and not current_scope().context.disable_jit:
            call = inner._jit.entry(pure_args, pure_kwargs)
            # An output value that is itself a tree needs the general code to be unflattened.
            if call.is_plain and len(outputs.values) == len(call.out_types):
                self._calls[key, types, current_scope().context] = _make_cache_entry(call, outputs)
        return write_back(parts, outputs)

    def _get_inner(self, parts: LiftedArguments) -> tuple[Any, InputPrefix | None]:
        """The compiled function of pure arguments, and `in_shardings`; with shardings one for each structure."""
        if self._in_shardings is None and self._out_shardings is None:
            function = _Compiled(self._fun, mode=self.mode)
            return self._inner.get_or_make(None, lambda: (plain_jit(function, **self._options), None))
        key = parts.graph.definition, parts.tree
        if (found := self._inner.get(key)) is None:
            inputs = InputPrefix("jit, in_shardings", self._in_shardings, parts)
            shardings = inputs.to_pure(parts)[0] if self._in_shardings is not None else None
            sharded = _Sharded(self._fun, self._out_shardings, inputs, self.mode)
            inner = plain_jit(sharded, in_shardings=shardings, out_shardings=sharded.out_shardings, **self._options)
            found = self._inner[key] = inner, None if shardings is None else inputs
        return found

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace the function for arguments of these types: the first stage."""
        parts, pure_args, pure_kwargs = self.flatten(args, kwargs)
        return Traced(self._get_inner(parts)[0].trace(*pure_args, **pure_kwargs), self, parts.graph.definition)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower the function for arguments of these types: the second stage."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes of the results, with states for modules, without compiling."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Remove all compiled programs of this function."""
        self._forget_last()
        self._calls.clear()
        self._inner.clear()

    def _cache_size(self) -> int:
        return sum(f._cache_size() for f, _ in self._inner.values())


class _Compiled(Lifted):
    """A lifted function for `phalanx.jit`, which asks it for the donated arguments that must stay valid."""

    def keeps(self, call: Any, out_tree: Any) -> set[int]:
        """The leaves of donated modules whose buffers must stay valid.

        Only variables that the function sets receive new values. The caller's other variables still refer to their
        buffers after the call, so these cannot be donated.
        """
        changed = out_tree.node_data()[1].changed
        values: list[tuple[Any, bool]] = []  # with whether the value receives a new one, or is no variable's
        for x in tree_flatten(call.dynamic(), is_leaf=is_pure)[0]:
            if is_pure(x):
                # Arrays outside of variables have no number, and are kept.
                values += [(value, n in changed) for value, n in itertools.zip_longest(x.values, x.variable_numbers)]
            else:
                values.append((x, True))
        is_replaced = [replaced for value, replaced in values for _ in tree_flatten(value)[0]]
        return {i for i, replaced in enumerate(is_replaced) if not replaced}


class _Sharded(_Compiled):
    """A lifted function that determines the shardings of its outputs when it is traced.

    Args:
      fun: the user's function.
      prefix: the option `out_shardings`.
      inputs: the option `in_shardings`, broadcast to the arguments.
      mode: the mode of the transformation.
    """

    def __init__(self, fun: Callable, prefix: PyTree, inputs: InputPrefix, mode: GraphMode):
        super().__init__(fun, mode=mode)
        self._prefix, self._inputs = prefix, inputs
        # Filled whenever the function is traced; `jit` reads it right afterwards.
        self.out_shardings = Outputs(None, [])

    def __call__(self, *args: Any, **kwargs: Any) -> Outputs:
        outputs = super().__call__(*args, **kwargs)
        specs = get_output_prefixes("jit, out_shardings", self._prefix, outputs.outcome, self._inputs)
        self.out_shardings.outcome, self.out_shardings.values = outputs.outcome, specs
        return outputs


def flatten_call(
    args: tuple, kwargs: Mapping[str, Any], statics: tuple = ()
) -> tuple[tuple, list[Any], Sequence[Variable]]:
    """Flatten the arguments of a call: the first half of the fast path.

    Args:
      args, kwargs: the dynamic arguments.
      statics: the static arguments.

    Returns:
      A key of the structure of the call, its arrays in the order of the program, and the variables of its modules.
    """
    arguments = args
    key: list[Any] = [None, statics, len(args) + len(kwargs)]
    if kwargs:
        names = sorted(kwargs)
        arguments = (*args, *[kwargs[name] for name in names])
        key += names
    roots: list[Any] = []
    parts: list[Any] = []  # the leaves of each argument
    num_leaves = 0
    for x in arguments:
        if type(x) is Array:
            leaves, kind = (x,), Array  # a class, since a pytree structure cannot be compared with None
        elif isinstance(x, Pytree):
            leaves, kind = (x,), Pytree
            roots.append(x)
        else:
            leaves, kind = _flatten_argument(x)
            is_node = tuple([isinstance(leaf, ROOTS) for leaf in leaves])
            if True in is_node:
                roots += itertools.compress(leaves, is_node)
                kind = kind, is_node
        key.append(kind)
        parts.append(leaves)
        num_leaves += len(leaves)
    joint = get_joint_graph(roots) if roots else _NO_MODULES
    key[0] = joint.definition
    if len(roots) == num_leaves and not joint.refs:
        # Without arrays between the modules, all variables in their order have the values.
        return tuple(key), [*map(_get_value, joint.variables)], joint.variables
    inputs: list[Any] = []
    groups = iter(joint.groups)
    for leaf in itertools.chain.from_iterable(parts):
        _append_values(inputs, next(groups), roots) if isinstance(leaf, ROOTS) else inputs.append(leaf)
    return tuple(key), inputs, joint.variables


def _flatten_argument(x: PyTree) -> tuple[list[Any], Any]:
    """The leaves of an argument, with modules and variables as leaves, and its structure; states have a fast path."""
    if type(x) is State:
        leaves: list[Any] = []
        shape: list[Any] = [State]
        if flatten_state(x._mapping, leaves, shape):
            return leaves, tuple(shape)
    return flatten(x, is_root)


def _append_values(inputs: list[Any], group: tuple[list, list], roots: Sequence[Any]) -> None:
    """Append the values of a module's variables, then its other arrays."""
    variables, refs = group
    inputs += map(_get_value, variables)
    if refs:
        inputs += [get_entry(roots[h] if type(h) is int else h, k) for h, k in refs]


def flatten_call_with_host_data(key: tuple, inputs: Sequence[Any]) -> tuple[tuple, list[Any], list[Any]]:
    """The key, the leaves and their types for inputs that are not all arrays."""
    leaves, tree = flatten(inputs, None)
    return (*key, tree), leaves, [*map(concrete_type, leaves)]


def jit(
    fun: Callable | None = None,
    *,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
    communication: str | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Compile a function of modules; changes that it makes to them are written back to the caller's modules.

    Args:
      fun: a function of modules, arrays and pytrees of these. If omitted, a decorator is returned.
      in_shardings, out_shardings: as in `phalanx.jit`; for a module, a sharding for all its variables or a
        `StateSharding`. Changed variables keep the sharding of the corresponding input.
      static_argnums, static_argnames, donate_argnums, donate_argnames: as in `phalanx.jit`.
      keep_unused, device, backend, inline, compiler_options, communication: as in `phalanx.jit`.
      graph, graph_updates: the mode; None for the defaults of `set_graph_mode` and `set_graph_updates`.

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
        communication=communication,
    )
    mode = resolve_mode(graph, graph_updates)

    def compile_lazily(f: Callable) -> Callable:
        check_unbound("jit", f)
        return LiftedJit(f, options.copy(), mode).function()

    return compile_lazily if fun is None else compile_lazily(fun)


def jit_partial(fun: Callable, *partial_args: Any, **options: Any) -> Callable:
    """Compile a function of modules, and bind its first arguments.

    Args:
      fun: the function.
      *partial_args: its first arguments.
      **options: options of `jit`; positions and shardings refer to all arguments.

    Returns:
      The compiled function of the other arguments.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> double = nnx.jit_partial(lambda w, x: w * x, nnx.Param(jnp.array(2.0)))
      >>> float(double(3.0))
      6.0
    """
    jitted = jit(fun, **options)
    if not jitted._jit.mode.graph:
        flatten_arguments(partial_args, jitted._jit.mode, "jit_partial")
    return JitPartial(jitted, *partial_args)


class JitPartial(functools.partial):
    """A compiled function with bound first arguments, and the stages of the compiled function."""

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace the function for arguments of these types: the first stage."""
        return self.func.trace(*self.args, *args, **kwargs).bind(self.args)  # type: ignore[attr-defined]

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower the function for arguments of these types: the second stage."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shapes of the results, with states for modules, without compiling."""
        return self.trace(*args, **kwargs).out_info
