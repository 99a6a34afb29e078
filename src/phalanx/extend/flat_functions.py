"""Functions of trees as functions of leaves, and arguments by position and name, as JAX's `api_util` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from phalanx.core import ArgumentError, ArgumentTypeError, format_code_position
from phalanx.engine import PyTreeDef
from phalanx.extend.wrapped_functions import DebugInfo, Store, WrappedFun, transformation2, transformation_with_aux2
from phalanx.transforms.flat_function import positional_parameters
from phalanx.tree import flatten_axes as _flatten_axes, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten


@transformation_with_aux2
def _flatten_fun(f: Callable[..., Any], store: Store, in_tree: PyTreeDef, *leaves: Any) -> list[Any]:
    args, kwargs = tree_unflatten(in_tree, leaves)
    out, out_tree = tree_flatten(f(*args, **kwargs))
    store.store(out_tree)
    return out


@transformation_with_aux2
def _flatten_fun_nokwargs(f: Callable[..., Any], store: Store, in_tree: PyTreeDef, *leaves: Any) -> list[Any]:
    out, out_tree = tree_flatten(f(*tree_unflatten(in_tree, leaves)))
    store.store(out_tree)
    return out


def flatten_fun(fun: WrappedFun, in_tree: PyTreeDef) -> tuple[WrappedFun, Callable[[], PyTreeDef]]:
    """Make a function of leaves from one of trees.

    Args:
      fun: the function.
      in_tree: the structure of its arguments, `((*args), {**kwargs})`.

    Returns:
      The function of leaves, which returns leaves, and a thunk that returns the structure of the result after a call.

    Examples:
      >>> from phalanx.extend.linear_util import wrap_init
      >>> leaves, tree = tree_flatten((({"a": 1},), {"b": 2}))
      >>> fun, out_tree = flatten_fun(wrap_init(lambda x, b: [x["a"] + b]), tree)
      >>> fun.call_wrapped(*leaves), out_tree()
      ([3], PyTreeDef([*]))
    """
    return _flatten_fun(fun, in_tree)


def flatten_fun_nokwargs(fun: WrappedFun, in_tree: PyTreeDef) -> tuple[WrappedFun, Callable[[], PyTreeDef]]:
    """Make a function of leaves from one of trees that takes positional arguments only.

    Args:
      fun: the function.
      in_tree: the structure of the tuple of its arguments.

    Returns:
      The function of leaves, which returns leaves, and a thunk that returns the structure of the result after a call.
    """
    return _flatten_fun_nokwargs(fun, in_tree)


def argnums_partial(
    fun: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any], require_static_args_hashable: bool = True
) -> tuple[WrappedFun, list[Any]]:
    """Fix all positional arguments but some.

    Args:
      fun: the function.
      dyn_argnums: the positions of the arguments that are left.
      args: all positional arguments.
      require_static_args_hashable: whether the fixed ones must be hashable.

    Returns:
      A function of the arguments that are left, and these arguments.

    Raises:
      ArgumentTypeError: a fixed argument is not hashable.

    Examples:
      >>> from phalanx.extend.linear_util import wrap_init
      >>> fun, dynamic = argnums_partial(wrap_init(lambda x, y: x - y), 0, (5, 3))
      >>> fun.call_wrapped(*dynamic), dynamic
      (2, [5])
    """
    given = (dyn_argnums,) if isinstance(dyn_argnums, int) else dyn_argnums
    positions = sorted(i % len(args) for i in given)
    fixed = tuple((i, _Fixed(x, require_static_args_hashable)) for i, x in enumerate(args) if i not in positions)
    return _with_fixed(fun, len(args), fixed), [args[i] for i in positions]


class _Fixed:
    """A fixed argument, compared by value if it is hashable, else by identity."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any, must_hash: bool):
        self.value = value
        try:
            hash(value)
            self.key = value
        except TypeError as error:
            if must_hash:
                raise ArgumentTypeError(
                    "argnums_partial, fixed argument",
                    expected="a hashable value",
                    got=repr(value),
                    fix="pass it among dyn_argnums, or require_static_args_hashable=False",
                ) from error
            self.key = id(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and type(self.value) is type(other.value) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


@transformation2
def _with_fixed(
    f: Callable[..., Any], count: int, fixed: tuple[tuple[int, _Fixed], ...], *args: Any, **kwargs: Any
) -> Any:
    held, rest = dict(fixed), iter(args)
    return f(*[held[i].value if i in held else next(rest) for i in range(count)], **kwargs)


def donation_vector(
    donate_argnums: Sequence[int], donate_argnames: Sequence[str], in_tree: PyTreeDef, kws: bool = True
) -> tuple[bool, ...]:
    """For each leaf of the arguments of a call whether it is donated.

    Args:
      donate_argnums: the positions of donated arguments.
      donate_argnames: the names of donated keyword arguments.
      in_tree: the structure of the arguments, `((*args), {**kwargs})`, or of the tuple of positional ones.
      kws: whether `in_tree` has keyword arguments.

    Returns:
      A bool for each leaf.

    Examples:
      >>> donation_vector((0,), ("b",), tree_flatten(((1, 2), {"b": 3}))[1])
      (True, False, True)
    """
    whole = tree_unflatten(in_tree, range(in_tree.num_leaves))
    args, kwargs = whole if kws else (whole, {})
    flags: dict[int, bool] = {}
    for donated, subtree in (
        *((i in donate_argnums, x) for i, x in enumerate(args)),
        *((name in donate_argnames, x) for name, x in kwargs.items()),
    ):
        flags.update(dict.fromkeys(tree_flatten(subtree)[0], donated))
    return tuple(flags[i] for i in range(in_tree.num_leaves))


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]) -> tuple[int, ...]:
    """The positions of donated arguments once the static ones are removed.

    Args:
      donate_argnums: the positions of donated arguments.
      static_argnums: the positions of static arguments.

    Returns:
      The new positions, sorted.

    Raises:
      ArgumentError: an argument is static and donated.

    Examples:
      >>> rebase_donate_argnums((2, 3), (0,))
      (1, 2)
    """
    donated, static = sorted(set(donate_argnums)), sorted(set(static_argnums))
    if both := [i for i in donated if i in static]:
        raise ArgumentError(
            "donate_argnums",
            expected="arguments that are not static",
            got=f"{both[0]}, which static_argnums names too",
            fix="static arguments have no buffers; remove it from donate_argnums",
        )
    return tuple(i - sum(s < i for s in static) for i in donated)


def flatten_axes(
    name: str, treedef: PyTreeDef, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False
) -> list[Any]:
    """Repeat the leaves of a prefix, such as `in_axes`, for each leaf of a structure.

    Args:
      name: the user's name of the prefix, for errors.
      treedef: the structure.
      axis_tree: the prefix, in which None is a leaf.
      kws: whether the structure is `((*args), {**kwargs})`, of which the prefix describes the positional arguments;
        keyword arguments get 0.
      tupled_args: whether the structure is a tuple of arguments, for which a list in the prefix is a tuple.

    Returns:
      For each leaf of the structure, the leaf of the prefix.

    Raises:
      TreeError: it is not a prefix.

    Examples:
      >>> flatten_axes("in_axes", tree_flatten((1, [2, 3]))[1], (0, None))
      [0, None, None]
    """
    if kws:
        axis_tree = (axis_tree, 0)
    return _flatten_axes(name, treedef, axis_tree, is_leaf=lambda x: x is None, lists_as_tuples=tupled_args)


def debug_info(
    traced_for: str,
    fun: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
    **_: Any,
) -> DebugInfo:
    """A record of the names of a function and its arguments, for messages.

    Args:
      traced_for: the transformation, such as "jit".
      fun: the function.
      args: its positional arguments.
      kwargs: its keyword arguments.
      static_argnums, static_argnames: the arguments that have no leaves.

    Returns:
      The record.

    Examples:
      >>> debug_info("jit", lambda x, y: x, ({"a": 1}, 2), {"z": 3}).arg_names
      ("x['a']", 'y', 'z')
    """
    names = positional_parameters(fun)
    named = [(names[i] if i < len(names) else f"args[{i}]", x) for i, x in enumerate(args) if i not in static_argnums]
    named += [(name, kwargs[name]) for name in sorted(kwargs) if name not in static_argnames]
    paths = [name + keystr(path) for name, x in named for path, _ in tree_flatten_with_path(x)[0]]
    return DebugInfo(traced_for, format_code_position(fun), tuple(paths), None)


def safe_map(fun: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """`map` over sequences of one length, as a list.

    Args:
      fun: the function.
      args: the sequences.

    Returns:
      The results.

    Raises:
      ArgumentError: the sequences differ in length.

    Examples:
      >>> safe_map(max, [1, 4], [3, 2])
      [3, 4]
    """
    return [fun(*xs) for xs in safe_zip(*args)]


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """`zip` of sequences of one length, as a list.

    Args:
      args: the sequences.

    Returns:
      The tuples.

    Raises:
      ArgumentError: the sequences differ in length.

    Examples:
      >>> safe_zip([1, 2], "ab")
      [(1, 'a'), (2, 'b')]
    """
    given = list(map(list, args))
    if len({len(x) for x in given}) > 1:
        raise ArgumentError(
            "safe_zip",
            expected="sequences of one length",
            got=f"lengths {', '.join(str(len(x)) for x in given)}",
            fix="pass sequences with an element for each element of the first",
        )
    return list(zip(*given, strict=True))
