"""`tabulate`: a table of the calls of a model's methods, with their inputs and outputs and the modules' variables.

A copy of the model is called once with shapes only, so that nothing is computed and the model is not changed. The
package rich draws the table; if it is not installed, `text_table` draws the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple

from phalanx import numpy as jnp
from phalanx.core import ArgumentError, ShapeDtypeStruct, get_aval
from phalanx.nnx.graphlib import Path, iter_entries, split_merge
from phalanx.nnx.inspection.method_observer import observing
from phalanx.nnx.inspection.text_table import draw_table
from phalanx.nnx.objects import Pytree, is_array
from phalanx.nnx.rngs import RngState, RngStream
from phalanx.nnx.transforms.lifted_jit import jit as nnx_jit
from phalanx.nnx.tree_text import format_size
from phalanx.nnx.variable import Variable
from phalanx.spmd import eval_shape, jit
from phalanx.transforms import vjp
from phalanx.tree import tree_leaves, tree_map
from phalanx.typing import PyTree

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class CallInfo(NamedTuple):
    """A row of the table: one call of a method.

    Attributes:
      object: the module.
      type: its class.
      path: its path and, unless it is `__call__`, the name of the method.
      inputs_repr, outputs_repr: the arguments and the result as text.
      flops, vjp_flops: the compiler's estimate of the floating-point operations, if they are counted.
    """

    object: Any
    type: type
    path: Path
    inputs_repr: str
    outputs_repr: str
    flops: int | None
    vjp_flops: int | None


def filter_rng_streams(row: CallInfo) -> bool:
    """Whether to show a row: all rows except calls of random streams."""
    return not issubclass(row.type, RngStream)


# --- calls ---


class _CallRecorder:
    """An observer of method calls that makes a row for each call with new inputs, outer calls before inner ones."""

    def __init__(self, model: Pytree, count_flops: bool, count_vjp_flops: bool):
        self.rows: list[CallInfo | None] = []
        self._count_flops, self._count_vjp_flops = count_flops, count_vjp_flops
        self._paths = {id(x): path for path, x in _iter_preorder(model, (), set())}
        self._objects = {path: x for path, x in _iter_preorder(model, (), set())}
        self._active: set[tuple[Path, str]] = set()
        self._seen: set[tuple[Path, str, str]] = set()
        self._copies: list[Pytree] = []  # of compiled calls, kept alive since `_paths` has their addresses

    def __call__(self, module: Any, name: str, method: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        # A call through `super` belongs to the outer one; a module that the call itself creates has no path.
        if id(module) not in self._paths or (key := (self._paths[id(module)], name)) in self._active:
            return method(module, *args, **kwargs)
        inputs, position = _format_inputs(args, kwargs), len(self.rows)
        self.rows.append(None)
        self._active.add(key)
        flops = vjp_flops = None
        try:
            if self._count_flops:
                out, flops = self._call_and_count(module, method, args, kwargs)
            else:
                out = method(module, *args, **kwargs)
            if self._count_vjp_flops and (*key, inputs) not in self._seen:
                with observing(None):
                    vjp_flops = _count_vjp_flops(module, method, args, kwargs)
        finally:
            self._active.discard(key)
        if (*key, inputs) not in self._seen:
            self._seen.add((*key, inputs))
            path = key[0] if name == "__call__" else (*key[0], name)
            info = (inputs, _format_tree(_to_shapes(out)), flops, vjp_flops)
            self.rows[position] = CallInfo(self._objects[key[0]], type(module), path, *info)
        return out

    def _call_and_count(self, module: Pytree, method: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, int]:
        """Call a method as a compiled function, which is traced once; also returns the number of operations."""
        arrays, rest = _separate_arrays((args, kwargs))
        static: list[Any] = []

        def call(copy: Pytree, arrays: Any) -> Any:
            for (_, x), (_, y) in zip(_iter_preorder(module, (), set()), _iter_preorder(copy, (), set())):
                self._paths[id(y)] = self._paths[id(x)]
            self._copies.append(copy)
            args, kwargs = _join(arrays, rest)
            found, kept = _separate_arrays(method(copy, *args, **kwargs))
            static[:] = [kept]
            return found

        compiled = nnx_jit(call)
        flops = _get_flops(compiled.lower(module, arrays))
        return _join(compiled(module, arrays), static[0]), flops


def _trace_calls(
    model: Pytree, method: str, args: tuple, kwargs: dict[str, Any], count_flops: bool, count_vjp_flops: bool
) -> tuple[dict[int, list[tuple[Path, Variable]]], list[CallInfo]]:
    """Call a copy of a model with shapes; returns the variables in each of its objects, itself first, and the rows."""
    graphdef, state = split_merge.split(model)
    variables: dict[int, list[tuple[Path, Variable]]] = {}
    rows: list = []
    # Only arrays can be abstract; other arguments, such as modes, are passed unchanged.
    arrays, rest = _separate_arrays((args, kwargs))

    def call(state: Any, arrays: Any) -> list:
        copy = split_merge.merge(graphdef, state)
        variables.update(_collect_variables(copy))  # before the call, which may add others, as `sow` does
        recorder = _CallRecorder(copy, count_flops, count_vjp_flops)
        args, kwargs = _join(arrays, rest)
        with observing(recorder):
            # The method itself is called below the observer, which also sees calls of objects that are not modules.
            function = getattr(type(copy), method)
            out = recorder(copy, method, getattr(function, "__wrapped__", function), args, kwargs)
        rows[:] = [row for row in recorder.rows if row is not None]
        return [x for x in tree_leaves(out) if hasattr(x, "aval")]

    eval_shape(call, state, arrays)
    return variables, rows


def _iter_preorder(x: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, Pytree]]:
    """Iterate over the objects in a graph, parents before their children."""
    if isinstance(x, Pytree):
        if id(x) in seen:
            return
        seen.add(id(x))
        yield path, x
    for key, value in iter_entries(x):
        yield from _iter_preorder(value, (*path, key), seen)


def _count_vjp_flops(module: Any, method: Callable, args: tuple, kwargs: dict[str, Any]) -> int:
    """The number of operations of a call and of its derivative with respect to all floating-point arrays."""
    graphdef, state = split_merge.split(module)
    arrays, rest = _separate_arrays((args, kwargs))

    def forward(state: Any, arrays: Any) -> list:
        args, kwargs = _join(arrays, rest)
        return [x for x in tree_leaves(method(split_merge.merge(graphdef, state), *args, **kwargs)) if _is_float(x)]

    def forward_and_backward(state: Any, arrays: Any) -> Any:
        def of_leaves(*new: Any) -> list:
            rest = iter(new)
            return forward(*tree_map(lambda x: next(rest) if _is_float(x) else x, (state, arrays)))

        out, pull = vjp(of_leaves, *[x for x in tree_leaves((state, arrays)) if _is_float(x)])
        return out, pull([jnp.ones_like(y) for y in out])

    return _get_flops(jit(forward_and_backward).lower(*_to_shapes((state, arrays))))


def _get_flops(lowered: Any) -> int:
    return int((lowered.cost_analysis() or {}).get("flops", 0))


def _is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def _separate_arrays(tree: PyTree) -> tuple[PyTree, PyTree]:
    """A tree with None for everything except arrays, and one with None for arrays."""
    numeric = lambda x: is_array(x) or hasattr(x, "aval") or isinstance(x, float | complex)
    return tree_map(lambda x: x if numeric(x) else None, tree), tree_map(lambda x: None if numeric(x) else x, tree)


def _join(arrays: PyTree, rest: PyTree) -> PyTree:
    return tree_map(lambda a, r: r if a is None else a, arrays, rest, is_leaf=lambda x: x is None)


# --- text ---


def _to_shapes(tree: PyTree) -> PyTree:
    def shape(x: Any) -> Any:
        return ShapeDtypeStruct(get_aval(x).shape, get_aval(x).dtype) if is_array(x) or hasattr(x, "aval") else x

    return tree_map(shape, tree, is_leaf=lambda x: isinstance(x, Pytree))


def _format_leaf(x: Any) -> str:
    if isinstance(x, Pytree):
        return f"{type(x).__name__}(...)"
    if isinstance(x, ShapeDtypeStruct) or hasattr(x, "aval") or is_array(x):
        return f"{getattr(x.dtype, 'name', x.dtype)}[{','.join(map(str, x.shape))}]"
    return x if isinstance(x, str) else repr(x)


def _format_nested(x: Any) -> list[str]:
    """The lines of a tree, as YAML without quotes: keys and dashes before elements, empty containers as they are."""
    if not _has_elements(x):
        return [_format_leaf(x)]
    if not isinstance(x, Mapping):
        parts = map(_format_nested, x)
        return [line for lines in parts for line in (f"- {lines[0]}", *(f"  {line}" for line in lines[1:]))]
    found: list[str] = []
    for key, value in x.items():
        lines = _format_nested(value)
        found += [f"{key}:", *(f"  {line}" for line in lines)] if _has_elements(value) else [f"{key}: {lines[0]}"]
    return found


def _has_elements(x: Any) -> bool:
    return isinstance(x, Mapping | list | tuple) and not isinstance(x, Pytree) and len(x) > 0


def _format_tree(tree: PyTree) -> str:
    return "" if tree is None else "\n".join(_format_nested(tree))


def _format_inputs(args: tuple, kwargs: Mapping[str, Any]) -> str:
    args, kwargs = _to_shapes((args, dict(kwargs)))
    if len(args) == 1 and not kwargs:
        return _format_tree(args[0])
    return "\n".join([*(_format_nested(args) if args else []), *(_format_nested(kwargs) if kwargs else [])])


# --- the table ---


def _collect_variables(model: Pytree) -> dict[int, list[tuple[Path, Variable]]]:
    """The variables in each object with their paths from it; one that several objects share is in the first of them."""
    found: dict[int, list[tuple[Path, Variable]]] = {}
    seen: set[int] = set()

    def visit(x: Any, path: Path, owners: tuple[tuple[int, Path], ...]) -> None:
        if isinstance(x, Pytree | Variable):
            if id(x) in seen:
                return
            seen.add(id(x))
        if isinstance(x, Variable):
            for owner, start in owners:
                found[owner].append((path[len(start) :], x))
            return
        if isinstance(x, Pytree):
            found[id(x)] = []
            owners = (*owners, (id(x), path))
        for key, value in iter_entries(x):
            visit(value, (*path, key), owners)

    visit(model, (), ())
    return found


def _format_variables(variables: Sequence[tuple[Path, Variable]], kind: type) -> str:
    """The names, shapes and metadata of an object's own variables of a type, and the size of all inside it."""
    selected = [(path, v) for path, v in variables if v.counted_type() is kind]
    own: dict[str, Any] = {}
    for path, v in selected:
        if len(path) == 1 and kind is not RngState:
            metadata = {k: str(x) for k, x in v.get_metadata().items()}
            value = _to_shapes(v.raw_value)
            own[str(path[0])] = {"value": value, **metadata} if metadata else value
    size = format_size([v.raw_value for _, v in selected])
    return "\n".join([*_format_nested(own), "", size]) if own else size


def tabulate(
    obj: Pytree,
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
    """Return a table of the calls of a model's methods, with their inputs and outputs and the modules' variables.

    Args:
      obj: the model.
      *input_args: arguments of the call, arrays or shapes.
      depth: the maximum length of the paths of rows; None for no limit.
      method: the name of the method to call.
      row_filter: whether to show a row.
      table_kwargs, column_kwargs, console_kwargs: options of `Table`, its columns and `Console` in the package rich;
        ignored if it is not installed.
      compute_flops: whether to show the compiler's estimate of the floating-point operations of each call.
      compute_vjp_flops: the same for each call with its derivative.
      **input_kwargs: keyword arguments of the call.

    Returns:
      The table as text. Below it is the number of elements and bytes of all variables.

    Raises:
      ArgumentError: the model does not have the method.

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
    variables, rows = _trace_calls(obj, method, input_args, input_kwargs, compute_flops, compute_vjp_flops)
    rows = [row for row in rows if (depth is None or len(row.path) <= depth) and row_filter(row)]
    own = [v for _, v in next(iter(variables.values()))]
    kinds = sorted({v.counted_type() for v in own}, key=lambda k: k.__name__)
    counts = ["flops"] * compute_flops + ["vjp_flops"] * compute_vjp_flops
    header = ["path", "type", "inputs", "outputs", *counts, *(k.__name__ for k in kinds)]
    footer = [""] * len(header)
    footer[3 + len(counts)] = "Total"
    footer[4 + len(counts) :] = [format_size([v.raw_value for v in own if v.counted_type() is k]) for k in kinds]
    cells = [
        [
            "/".join(map(str, row.path)),
            row.type.__name__,
            row.inputs_repr,
            row.outputs_repr,
            *(str(getattr(row, name)) for name in counts),
            *(_format_variables(variables[id(row.object)], k) for k in kinds),
        ]
        for row in rows
    ]
    title = f"{type(obj).__name__} Summary"
    caption = f"\nTotal Parameters: {format_size([v.raw_value for v in own]) or '0 (0 B)'}"
    if find_spec("rich") is None:
        return draw_table(title, header, cells, footer, caption)
    return _draw_rich_table(title, header, cells, footer, caption, table_kwargs, column_kwargs, console_kwargs)


def _draw_rich_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    footer: Sequence[str],
    caption: str,
    table_kwargs: Mapping[str, Any],
    column_kwargs: Mapping[str, Any],
    console_kwargs: Mapping[str, Any],
) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    options = {"show_header": True, "show_lines": True, "show_footer": True, "title": title, "caption": caption}
    table = Table(**{**options, **table_kwargs})
    for name, total in zip(header, footer, strict=True):
        table.add_column(name, total, **{"justify": "left", **column_kwargs})
    for row in rows:
        table.add_row(*map(Text, row))
    # The result is text rather than a terminal's output: no color codes, and wide enough for most models.
    console = Console(**{"force_terminal": False, "width": 240, **console_kwargs})
    with console.capture() as capture:
        console.print(table)
    return capture.get()
