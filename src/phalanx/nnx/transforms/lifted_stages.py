"""The stages of `nnx.jit`: `trace`, `lower` and `compile` for functions of modules.

Each stage wraps the stage of the inner function of pure arguments, and shows a `State` in place of each module. The
compiled stage is called with modules, and updates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from phalanx.core import TreeError
from phalanx.nnx.graphlib.graph_def import GraphDef, describe_difference
from phalanx.nnx.graphlib.states import State
from phalanx.nnx.transforms.lifting import OutputSpec, PureModule, get_leaf_paths, write_back
from phalanx.tree import PyTreeDef, tree_map, tree_structure
from phalanx.typing import PyTree

if TYPE_CHECKING:
    from phalanx.nnx.transforms.lifted_jit import LiftedJit


def _to_states(tree: PyTree) -> PyTree:
    """Replace each `PureModule` in a tree by a state, or by the value of a variable that is an argument itself."""

    def convert(x: Any) -> Any:
        if type(x) is not PureModule:
            return x
        pairs = list(zip(get_leaf_paths(x), x.values, strict=True))
        return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == () else State.from_flat_path(pairs)

    return tree_map(convert, tree, is_leaf=lambda x: type(x) is PureModule)


def _to_result(outcome: OutputSpec, values: Sequence[Any]) -> PyTree:
    """The result with these values, and a state with the new variables of each module in it."""
    leaves = iter(values[: outcome.num_out])
    new: dict[int, list] = {}
    for origin, value in zip(outcome.origins, values, strict=True):
        if origin.kind in ("new", "array") and origin.number >= outcome.num_roots:
            new.setdefault(origin.number - outcome.num_roots, []).append((origin.path, value))
    numbers = iter(range(len(outcome.is_node)))
    results = [State.from_flat_path(new.get(next(numbers), [])) if n else next(leaves) for n in outcome.is_node]
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
    """

    def __init__(self, stage: Any, owner: LiftedJit, definition: GraphDef):
        self._stage, self._owner, self._definition = stage, owner, definition

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
        return kind(stage, self._owner, self._definition)

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

    (out_avals,) = _forward("out_avals")

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
        parts, pure_args, pure_kwargs = self._owner.flatten(args, kwargs)
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
