"""`tabulate`: a table of a model's modules, what goes in and out of them, and their variables.

The model is called once on shapes only, a copy of it, so that nothing is computed and nothing changes. Builds on
`functional` and, for the table itself, on rich.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx import numpy as jnp
from phalanx.core.aval import ShapeDtypeStruct, aval_of
from phalanx.core.errors import ArgumentError
from phalanx.debug.visualize import MissingExtraError
from phalanx.nnx import functional
from phalanx.nnx.module import Module
from phalanx.nnx.objects import Object, bytes_text, is_array
from phalanx.nnx.observing import observing, outermost
from phalanx.nnx.rngs import Rngs, RngState, RngStream
from phalanx.nnx.states import Path, to_flat_state
from phalanx.nnx.variable import Variable
from phalanx.spmd import eval_shape, jit
from phalanx.transforms import vjp
from phalanx.tree import tree_leaves, tree_map

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Call(NamedTuple):
    """What went into a module and what came out, as shapes."""

    args: tuple
    kwargs: dict
    outputs: Any


class CallInfo(NamedTuple):
    """A row of the table.

    path: where the module is.
    type: its class.
    call: its first call; None if it was not called.
    variables: its variables by path, those of modules with rows of their own left out.
    """

    path: Path
    type: type
    call: Call | None
    variables: dict[Path, Variable]
    object: Any


def filter_rng_streams(row: CallInfo) -> bool:
    """Leave out rows of random streams."""
    return not issubclass(row.type, RngStream | Rngs)


def _as_shapes(tree: Any) -> Any:
    def shape(x: Any) -> Any:
        return ShapeDtypeStruct(aval_of(x).shape, aval_of(x).dtype) if is_array(x) or hasattr(x, "aval") else x

    return tree_map(shape, tree)


def _nodes(x: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, Object]]:
    """The objects of a graph with their paths, each once, the outer ones first, in the order of their attributes."""
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
        yield from _nodes(value, (*path, key), seen)


def _rows(model: Any, calls: dict[Path, Call], depth: int | None, row_filter: Callable) -> list[CallInfo]:
    """The rows of the table; variables belong to the innermost module that has a row."""
    found = []
    for path, node in _nodes(model, (), set()):
        if depth is None or len(path) <= depth:
            row = CallInfo(path, type(node), calls.get(path), {}, node)
            if row_filter(row) and (isinstance(node, Module) or not path):
                found.append(row)
    paths = {row.path: row for row in found}
    for path, v in to_flat_state(functional.state(model)):
        if isinstance(v, Variable):
            owner = next(path[:n] for n in range(len(path), -1, -1) if path[:n] in paths)
            paths[owner].variables[path[len(owner) :]] = v
    return found


def _trace(model: Any, method: str, args: tuple, kwargs: dict) -> dict[Path, Call]:
    """Call a copy of a model on shapes: what each module took and gave, by path."""
    graphdef, state = functional.split(model)
    by_id: dict[int, Call] = {}
    kept: list = []

    def note(node: Any, name: str, args: tuple, kwargs: dict, outputs: Any) -> None:
        if name in ("__call__", method) and (node is not kept[0] or name == method):
            by_id.setdefault(id(node), Call(_as_shapes(args), _as_shapes(kwargs), _as_shapes(outputs)))

    def call(state: Any, args: tuple, kwargs: dict) -> Any:
        copy = functional.merge(graphdef, state)
        kept.append(copy)
        with observing(outermost(note)):
            outputs = getattr(copy, method)(*args, **kwargs)
        note(copy, method, args, kwargs, outputs)  # of an object that is no module, nobody else tells
        return outputs

    arrays, rest = _apart((args, kwargs))
    eval_shape(
        lambda s, a: tree_map(lambda x: x if hasattr(x, "aval") else None, call(s, *_joined(a, rest))), state, arrays
    )
    return {path: by_id[id(node)] for path, node in _nodes(kept[0], (), set()) if id(node) in by_id}


def _apart(tree: Any) -> tuple[Any, Any]:
    """A tree's arrays, and everything else in it."""
    numeric = lambda x: is_array(x) or isinstance(x, float | complex)
    return tree_map(lambda x: x if numeric(x) else None, tree), tree_map(lambda x: None if numeric(x) else x, tree)


def _joined(arrays: Any, rest: Any) -> Any:
    return tree_map(lambda a, r: r if a is None else a, arrays, rest, is_leaf=lambda x: x is None)


def _flops(row: CallInfo, method: str, backward: bool) -> Any:
    """The floating point operations of a call, or of it and its derivative, as the compiler estimates them."""
    if row.call is None:
        return ""
    graphdef, state = functional.split(row.object)
    arrays, rest = _apart((row.call.args, row.call.kwargs))
    name = method if not row.path else "__call__"

    def forward(state: Any, arrays: Any) -> list:
        args, kwargs = _joined(arrays, rest)
        out = getattr(functional.merge(graphdef, state), name)(*args, **kwargs)
        return [x for x in tree_leaves(out) if hasattr(x, "aval")]

    def both(state: Any, arrays: Any) -> Any:
        leaves = [x for x in tree_leaves((state, arrays)) if jnp.issubdtype(x.dtype, jnp.floating)]

        def of_leaves(*new: Any) -> list:
            given = iter(new)
            pick = lambda x: next(given) if jnp.issubdtype(x.dtype, jnp.floating) else x
            return forward(*tree_map(pick, (state, arrays)))

        out, pull = vjp(of_leaves, *leaves)
        return out, pull([jnp.ones_like(y) for y in out])

    lowered = jit(both if backward else forward).lower(state, arrays)
    return str(int(lowered.cost_analysis().get("flops", 0)))


def _size_text(variables: list[Variable]) -> str:
    arrays = [x for v in variables for x in tree_leaves(v.raw_value) if hasattr(x, "dtype")]
    if not arrays:
        return ""
    count = sum(math.prod(x.shape) for x in arrays)
    # A random key has no elements of its own, but as many bytes as the numbers it is made of.
    size = sum(math.prod(x.shape) * getattr(x.dtype, "itemsize", 0) for x in arrays)
    return f"{count:,} ({bytes_text(size)})"


def _shape_text(x: Any) -> str:
    if isinstance(x, ShapeDtypeStruct) or hasattr(x, "aval"):
        return f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
    return "" if x is None else repr(x)


def _tree_text(tree: Any) -> str:
    """The leaves of a tree, a line each, with the keys of dictionaries."""
    if isinstance(tree, Mapping):
        return "\n".join(f"{k}: {_tree_text(v)}" for k, v in tree.items())
    if isinstance(tree, tuple | list):
        lines = [_tree_text(x) for x in tree]
        return "\n".join(f"- {x}" for x in lines) if len(lines) > 1 else "".join(lines)
    return _shape_text(tree)


def _kind(v: Variable) -> type:
    """The column of a variable."""
    return RngState if isinstance(v, RngState) else type(v)


def tabulate(
    obj: Any,
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
    """A table of a model's modules: what goes in and out of them, and their variables.

    Args:
      obj: the model.
      *input_args: arguments of the call, arrays or their shapes.
      depth: how deep modules have rows of their own; None for all.
      method: what is called.
      row_filter: says of a row whether it is shown.
      table_kwargs, column_kwargs, console_kwargs: options of rich's `Table`, its columns, and its `Console`.
      compute_flops: also show the operations of each call, as the compiler estimates them.
      compute_vjp_flops: also show those of it and its derivative.
      **input_kwargs: keyword arguments of the call.

    Returns:
      The table as text.

    Raises:
      ArgumentError: the model has no such method.
      MissingExtraError: rich is not installed.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> text = nnx.tabulate(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), jnp.ones((1, 2)))
      >>> "kernel: float32[2,3]" in text, "9 (36 B)" in text
      (True, True)
    """
    if not callable(getattr(obj, method, None)):
        raise ArgumentError("nnx.tabulate, argument method", expected=f"a method of {type(obj).__name__}",
                            got=repr(method), mend="name the method that is called")  # fmt: skip
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        raise MissingExtraError(
            "nnx.tabulate", expected="the package rich, which draws the table", got="an environment without it",
            mend="pip install rich",
        ) from None  # fmt: skip
    calls = _trace(obj, method, input_args, input_kwargs)
    rows = _rows(obj, calls, depth, row_filter)
    kinds = sorted({_kind(v) for row in rows for v in row.variables.values()}, key=lambda k: k.__name__)
    costs = [
        (n, b) for n, b, wanted in (("flops", False, compute_flops), ("vjp_flops", True, compute_vjp_flops)) if wanted
    ]
    table = Table(
        **{"show_header": True, "show_lines": True, "show_footer": True, "title": f"{type(obj).__name__} Summary",
           **table_kwargs}
    )  # fmt: skip
    everything = [v for row in rows for v in row.variables.values()]
    of_kind = lambda vs, kind: [v for v in vs if _kind(v) is kind]
    heads = ["path", "type", "inputs", "outputs", *(n for n, _ in costs), *(k.__name__ for k in kinds)]
    feet = ["", "", "", *[""] * len(costs), "Total", *(_size_text(of_kind(everything, k)) for k in kinds)]
    for head, foot in zip(heads, feet):
        table.add_column(head, foot, **{"justify": "left", **column_kwargs})
    for row in rows:
        cells = [
            "/".join(map(str, row.path)), row.type.__name__, *_call_texts(row),
            *(_flops(row, method, backward) for _, backward in costs), *(_variables_text(row, rows, k) for k in kinds),
        ]  # fmt: skip
        table.add_row(*map(Text, cells))
    table.caption = f"Total Parameters: {_size_text(everything) or '0 (0 B)'}"
    console = Console(**{"force_terminal": False, "width": 240, **console_kwargs})
    with console.capture() as capture:
        console.print(table)
    return f"\n{capture.get()}\n"


def _call_texts(row: CallInfo) -> tuple[str, str]:
    if row.call is None:
        return "", ""
    inputs = [*row.call.args, row.call.kwargs] if row.call.kwargs else list(row.call.args)
    return _tree_text(inputs), _tree_text(row.call.outputs)


def _variables_text(row: CallInfo, rows: list[CallInfo], kind: type) -> str:
    """The variables of a kind: names and shapes, and how large they are; for a module above others the sum of all."""
    below = [v for r in rows if r.path[: len(row.path)] == row.path for v in r.variables.values() if _kind(v) is kind]
    own = {path: v for path, v in row.variables.items() if _kind(v) is kind}
    if len(below) > len(own) or kind is RngState:
        return _size_text(below)
    lines = [f"{'.'.join(map(str, path))}: {_tree_text(v.raw_value)}" for path, v in sorted(own.items(), key=str)]
    return "\n".join([*lines, "", _size_text(list(own.values()))]) if lines else ""
