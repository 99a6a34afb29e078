"""Stages of `nnx.jit`: `trace` → `lower` → `compile` for functions of modules.

Each holds the stage of the inner function of shadows and shows the same things of it, with a `State` in the place of
each module. The compiled stage is callable with modules and brings the changes to them.
"""

from __future__ import annotations

from typing import Any

from phalanx.core.errors import TreeError
from phalanx.nnx.lifting import Outcome, Shadow, bring_back, shadow_paths
from phalanx.nnx.states import State
from phalanx.tree import tree_map, tree_structure


def _as_states(tree: Any) -> Any:
    """A tree with a state in the place of each shadow; that of a lone variable is its value."""

    def shown(x: Any) -> Any:
        if type(x) is not Shadow:
            return x
        pairs = list(zip(shadow_paths(x), x.values, strict=True))
        return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == () else State.from_flat_path(pairs)

    return tree_map(shown, tree, is_leaf=lambda x: type(x) is Shadow)


def _results(outcome: Outcome, values: list) -> Any:
    """A result of these values, with a state in the place of each module, of what was made inside."""
    leaves = iter(values[: outcome.num_out])
    made: dict[int, list] = {}
    for origin, value in zip(outcome.origins, values, strict=True):
        if origin.kind in ("new", "array") and origin.number >= outcome.num_roots:
            made.setdefault(origin.number - outcome.num_roots, []).append((origin.path, value))
    numbers = iter(range(len(outcome.is_node)))
    filled = [State.from_flat_path(made.get(next(numbers), [])) if n else next(leaves) for n in outcome.is_node]
    return outcome.tree.unflatten(filled)


def _layouts(formats: Any) -> Any:
    return tree_map(lambda f: f.layout, formats)


class _Stage:
    """What all stages show.

    Args:
      stage: the stage of the inner function.
      owner: the lifted function.
      definition: the structure of the modules among its arguments.
    """

    def __init__(self, stage: Any, owner: Any, definition: Any):
        self._stage, self._owner, self._definition = stage, owner, definition

    @property
    def _outcome(self) -> Outcome:
        return self._stage.out_tree.node_data()[1]

    @property
    def args_info(self) -> Any:
        """For each argument its type and whether it is donated, as `(args, kwargs)`."""
        return _as_states(self._stage.args_info)

    @property
    def in_avals(self) -> Any:
        """The abstract values of `(args, kwargs)`."""
        return _as_states(self._stage.in_avals)

    @property
    def in_tree(self) -> Any:
        """The structure of `(args, kwargs)`, a state in the place of each module."""
        return tree_structure(self.args_info)

    @property
    def out_info(self) -> Any:
        """The types of the results, a state in the place of each module that was made inside."""
        return _results(self._outcome, list(self._stage.out_info.values))

    @property
    def out_tree(self) -> Any:
        """The structure of the results."""
        return tree_structure(self.out_info)

    donate_argnums = property(lambda self: self._stage.donate_argnums)
    effects = property(lambda self: self._stage.effects)

    def __repr__(self) -> str:
        return f"nnx.{self._stage!r}"


class Traced(_Stage):
    """A function of modules traced for arguments of given types: the first stage."""

    jaxpr = property(lambda self: self._stage.jaxpr)
    fun_name = property(lambda self: self._stage.fun_name)
    out_avals = property(lambda self: self._stage.out_avals)

    def lower(self, **options: Any) -> Lowered:
        """Lower for the shardings that the example arguments have: the second stage."""
        return self._next(Lowered, self._stage.lower(**options))

    def _next(self, kind: Any, stage: Any) -> Any:
        made = object.__new__(kind)
        made.__dict__.update(self.__dict__, _stage=stage)
        return made


class Lowered(_Stage):
    """A function of modules in StableHLO for given devices and shardings: the second stage."""

    def compile(self, compiler_options: dict | None = None) -> Compiled:
        """Compile: the third stage."""
        return Traced._next(self, Compiled, self._stage.compile(compiler_options))  # type: ignore[arg-type]

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program as text, in the dialect "stablehlo" (default) or "hlo"."""
        return self._stage.as_text(dialect, debug_info=debug_info)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The MLIR module ("stablehlo") or the XLA computation ("hlo")."""
        return self._stage.compiler_ir(dialect)

    def cost_analysis(self) -> Any:
        """What XLA estimates of the program before compiling: operations, bytes accessed."""
        return self._stage.cost_analysis()


class Compiled(_Stage):
    """An executable for arguments of given types: the third stage."""

    out_avals = property(lambda self: self._stage.out_avals)

    @property
    def input_shardings(self) -> Any:
        """The shardings of the arguments, as `(args, kwargs)`."""
        return _as_states(self._stage.input_shardings)

    @property
    def output_shardings(self) -> Any:
        """The shardings of the results."""
        return _results(self._outcome, list(self._stage.output_shardings.values))

    @property
    def input_formats(self) -> Any:
        """How and where the arguments lie, as `(args, kwargs)`; what the program does not read has no layout."""
        return _as_states(self._stage.input_formats)

    @property
    def output_formats(self) -> Any:
        """How and where the results lie."""
        return _results(self._outcome, list(self._stage.output_formats.values))

    input_layouts = property(lambda self: _layouts(self.input_formats), doc="The layouts in `input_formats`.")
    output_layouts = property(lambda self: _layouts(self.output_formats), doc="The layouts in `output_formats`.")

    def as_text(self) -> str:
        """The optimised program as XLA runs it."""
        return self._stage.as_text()

    def cost_analysis(self) -> Any:
        """XLA's estimate of operations and bytes."""
        return self._stage.cost_analysis()

    def memory_analysis(self) -> Any:
        """XLA's account of memory on one device."""
        return self._stage.memory_analysis()

    def runtime_executable(self) -> Any:
        """The engine's executable."""
        return self._stage.runtime_executable()

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the types this was compiled for, as calling the stage does."""
        return self(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the types this was compiled for; changes are made to the caller's modules.

        Raises:
          TreeError: other arguments than it was compiled for, modules of another structure among them.
          ArgumentTypeError: an argument has another shape, dtype or sharding.
          TraceError: an argument is being traced.
        """
        parts, own, named = self._owner._gather(args, kwargs)
        if parts.graph.definition is not self._definition:
            raise TreeError(
                f"call of compiled {self._stage._traced.fun_name}",
                expected=f"modules of the structure it was compiled for, {self._definition!r}",
                got=repr(parts.graph.definition),
                mend="call it with such modules, or call the jit function",
            )
        return bring_back(parts, self._stage(*own, **named))
