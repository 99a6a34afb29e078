"""`tabulate`: a table of the modules of a model, with the inputs and outputs of their calls and their variables.

A copy of the model is called once with shapes only, so that nothing is computed and the model is not changed. The
package rich draws the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ShapeDtypeStruct, get_aval
from phalanx.debug.visualize_sharding import MissingExtraError
from phalanx.nnx.graphlib import Path, split_merge, to_flat_state
from phalanx.nnx.inspection.method_observer import notify_outermost_calls, observing
from phalanx.nnx.module import Module
from phalanx.nnx.objects import Object, format_size, is_array
from phalanx.nnx.rngs import Rngs, RngState, RngStream
from phalanx.nnx.variable import Variable
from phalanx.spmd import eval_shape, jit
from phalanx.transforms import vjp
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PyTree

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Call(NamedTuple):
    """The arguments and the result of a call, as shapes."""

    args: tuple
    kwargs: dict
    outputs: Any


class CallInfo(NamedTuple):
    """A row of the table.

    path: the path of the module.
    type: its class.
    call: its first call; None if it was not called.
    variables: its variables by path, except the variables of inner modules that have a row.
    object: the module.
    """

    path: Path
    type: type
    call: Call | None
    variables: dict[Path, Variable]
    object: Any


def filter_rng_streams(row: CallInfo) -> bool:
    """Whether to show a row: all rows except random streams."""
    return not issubclass(row.type, RngStream | Rngs)


def _to_shapes(tree: PyTree) -> PyTree:
    def shape(x: Any) -> Any:
        return ShapeDtypeStruct(get_aval(x).shape, get_aval(x).dtype) if is_array(x) or hasattr(x, "aval") else x

    return tree_map(shape, tree)


def _iter_preorder(x: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, Object]]:
    """Iterate over the objects in a graph, parents before their children and in the order of attributes."""
    if isinstance(x, Object):
        if id(x) in seen:
            return
        seen.add(id(x))
        yield path, x
        items: Any = x.__dict__.items()
    elif isinstance(x, Mapping):
        items = x.items()
    else:
        items = enumerate(x) if isinstance(x, list | tuple) else ()
    for key, value in items:
        yield from _iter_preorder(value, (*path, key), seen)


def _make_rows(
    model: Object, calls: Mapping[Path, Call], depth: int | None, row_filter: Callable[[CallInfo], bool]
) -> list[CallInfo]:
    """The rows of the table; a variable is in the row of the innermost module that has one."""
    rows = []
    for path, node in _iter_preorder(model, (), set()):
        if depth is None or len(path) <= depth:
            row = CallInfo(path, type(node), calls.get(path), {}, node)
            if row_filter(row) and (isinstance(node, Module) or not path):
                rows.append(row)
    paths = {row.path: row for row in rows}
    for path, v in to_flat_state(split_merge.state(model)):
        if isinstance(v, Variable):
            owner = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in paths)
            paths[owner].variables[path[len(owner) :]] = v
    return rows


def _trace_calls(model: Object, method: str, args: tuple, kwargs: dict[str, Any]) -> dict[Path, Call]:
    """Call a copy of a model with shapes; returns the first call of each module, by path."""
    graphdef, state = split_merge.split(model)
    by_id: dict[int, Call] = {}
    # Calls are recorded by the identity of the modules of the copy, which must therefore be kept alive.
    copies: list = []

    def note(node: Any, name: str, args: tuple, kwargs: dict, outputs: Any) -> None:
        if name in ("__call__", method) and (node is not copies[0] or name == method):
            by_id.setdefault(id(node), Call(_to_shapes(args), _to_shapes(kwargs), _to_shapes(outputs)))

    def call(state: Any, args: tuple, kwargs: dict) -> Any:
        copy = split_merge.merge(graphdef, state)
        copies.append(copy)
        with observing(notify_outermost_calls(note)):
            outputs = getattr(copy, method)(*args, **kwargs)
        note(copy, method, args, kwargs, outputs)  # calls of an object that is not a module are not observed
        return outputs

    # Only arrays can be abstract; other arguments, such as modes, are passed unchanged.
    arrays, rest = _separate_arrays((args, kwargs))
    eval_shape(
        lambda s, a: tree_map(lambda x: x if hasattr(x, "aval") else None, call(s, *_join(a, rest))), state, arrays
    )
    return {path: by_id[id(node)] for path, node in _iter_preorder(copies[0], (), set()) if id(node) in by_id}


def _separate_arrays(tree: PyTree) -> tuple[PyTree, PyTree]:
    """A tree with None for everything except arrays, and one with None for arrays."""
    numeric = lambda x: is_array(x) or isinstance(x, float | complex)
    return tree_map(lambda x: x if numeric(x) else None, tree), tree_map(lambda x: None if numeric(x) else x, tree)


def _join(arrays: PyTree, rest: PyTree) -> PyTree:
    return tree_map(lambda a, r: r if a is None else a, arrays, rest, is_leaf=lambda x: x is None)


def _count_flops(row: CallInfo, method: str, backward: bool) -> str:
    """The compiler's estimate of the floating-point operations of a call, or of the call and its derivative."""
    if row.call is None:
        return ""
    graphdef, state = split_merge.split(row.object)
    arrays, rest = _separate_arrays((row.call.args, row.call.kwargs))
    name = method if not row.path else "__call__"

    def forward(state: Any, arrays: Any) -> list:
        args, kwargs = _join(arrays, rest)
        out = getattr(split_merge.merge(graphdef, state), name)(*args, **kwargs)
        return [x for x in tree_leaves(out) if hasattr(x, "aval")]

    def forward_and_backward(state: Any, arrays: Any) -> Any:
        leaves = [x for x in tree_leaves((state, arrays)) if jnp.issubdtype(x.dtype, jnp.floating)]

        def of_leaves(*new: Any) -> list:
            rest = iter(new)
            pick = lambda x: next(rest) if jnp.issubdtype(x.dtype, jnp.floating) else x
            return forward(*tree_map(pick, (state, arrays)))

        out, pull = vjp(of_leaves, *leaves)
        return out, pull([jnp.ones_like(y) for y in out])

    lowered = jit(forward_and_backward if backward else forward).lower(state, arrays)
    return str(int(lowered.cost_analysis().get("flops", 0)))


def _format_size(variables: list[Variable]) -> str:
    # A random key counts as one element, with the bytes of the integers that represent it.
    arrays = [x for v in variables for x in tree_leaves(v.raw_value) if hasattr(x, "dtype")]
    return format_size(arrays) if arrays else ""


def _format_shape(x: Any) -> str:
    if isinstance(x, ShapeDtypeStruct) or hasattr(x, "aval"):
        return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
    return "" if x is None else repr(x)


def _format_tree(tree: PyTree) -> str:
    """The leaves of a tree, one on each line, with the keys of dictionaries."""
    if isinstance(tree, Mapping):
        return "\n".join(f"{k}: {_format_tree(v)}" for k, v in tree.items())
    if isinstance(tree, tuple | list):
        lines = [_format_tree(x) for x in tree]
        return "\n".join(f"- {x}" for x in lines) if len(lines) > 1 else "".join(lines)
    return _format_shape(tree)


def _get_column(v: Variable) -> type:
    """The type of variables in whose column a variable is shown."""
    return RngState if isinstance(v, RngState) else type(v)


def tabulate(
    obj: Object,
    *input_args: Any,
    depth: int | None = None,
    method: str = "__call__",
    row_filter: Callable[[CallInfo], bool] = filter_rng_streams,
    table_kwargs: Mapping[str, Any] = NO_OPTIONS,
    column_kwargs: Mapping[str, Any] = NO_OPTIONS,
    console_kwargs: Mapping[str, Any] = NO_OPTIONS,
    compute_flops: bool = False,
    compute_vjp_flops: bool = False,
    **input_kwargs: Any,
) -> str:
    """Return a table of the modules of a model, with their inputs, outputs and variables.

    Args:
      obj: the model.
      *input_args: arguments of the call, arrays or shapes.
      depth: the maximum depth of modules that have a row; None for no limit.
      method: the name of the method to call.
      row_filter: whether to show a row.
      table_kwargs, column_kwargs, console_kwargs: options of `Table`, its columns and `Console` in the package rich.
      compute_flops: whether to show the compiler's estimate of the floating-point operations of each call.
      compute_vjp_flops: the same for each call with its derivative.
      **input_kwargs: keyword arguments of the call.

    Returns:
      The table as text.

    Raises:
      ArgumentError: the model does not have the method.
      MissingExtraError: rich is not installed.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> text = nnx.tabulate(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), jnp.ones((1, 2)))
      >>> "kernel: float32[2,3]" in text, "9 (36 B)" in text
      (True, True)
    """
    if not callable(getattr(obj, method, None)):
        raise ArgumentError(
            "nnx.tabulate, argument method",
            expected=f"a method of {type(obj).__name__}",
            got=repr(method),
            fix="pass the name of the method to call, such as method='__call__'",
        )
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        raise MissingExtraError(
            "nnx.tabulate",
            expected="the package rich, which draws the table",
            got="an environment without it",
            fix="pip install rich",
        ) from None
    rows = _make_rows(obj, _trace_calls(obj, method, input_args, input_kwargs), depth, row_filter)
    variables = [v for row in rows for v in row.variables.values()]
    kinds = sorted({_get_column(v) for v in variables}, key=lambda k: k.__name__)
    costs = [("flops", False)] * compute_flops + [("vjp_flops", True)] * compute_vjp_flops
    title = f"{type(obj).__name__} Summary"
    table = Table(**{"show_header": True, "show_lines": True, "show_footer": True, "title": title, **table_kwargs})
    headers = ["path", "type", "inputs", "outputs", *(n for n, _ in costs), *(k.__name__ for k in kinds)]
    sizes = [_format_size([v for v in variables if _get_column(v) is k]) for k in kinds]
    for header, footer in zip(headers, ["", "", "", *[""] * len(costs), "Total", *sizes]):
        table.add_column(header, footer, **{"justify": "left", **column_kwargs})
    for row in rows:
        cells = ["/".join(map(str, row.path)), row.type.__name__, *_format_call(row)]
        cells += [_count_flops(row, method, backward) for _, backward in costs]
        cells += [_format_variables(row, rows, k) for k in kinds]
        table.add_row(*map(Text, cells))
    table.caption = f"Total Parameters: {_format_size(variables) or '0 (0 B)'}"
    # The result is text rather than a terminal's output: no color codes, and wide enough for most models.
    console = Console(**{"force_terminal": False, "width": 240, **console_kwargs})
    with console.capture() as capture:
        console.print(table)
    return f"\n{capture.get()}\n"


def _format_call(row: CallInfo) -> tuple[str, str]:
    if row.call is None:
        return "", ""
    inputs = [*row.call.args, row.call.kwargs] if row.call.kwargs else list(row.call.args)
    return _format_tree(inputs), _format_tree(row.call.outputs)


def _format_variables(row: CallInfo, rows: list[CallInfo], kind: type) -> str:
    """The names, shapes and total size of the variables of a type; only the size if inner modules have some, too."""
    inner_rows = [r for r in rows if r.path[: len(row.path)] == row.path]
    below = [v for r in inner_rows for v in r.variables.values() if _get_column(v) is kind]
    direct = {path: v for path, v in row.variables.items() if _get_column(v) is kind}
    if len(below) > len(direct) or kind is RngState:
        return _format_size(below)
    lines = [f"{'.'.join(map(str, path))}: {_format_tree(v.raw_value)}" for path, v in sorted(direct.items(), key=str)]
    return "\n".join([*lines, "", _format_size(list(direct.values()))]) if lines else ""
