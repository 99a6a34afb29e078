"""`Partial`: a function with bound arguments, whose bound arguments are leaves of a pytree.

`vjp` and `linearize` return one, so that their results can be passed to functions under `jit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from phalanx.engine.traceback_filtering import api_boundary
from phalanx.tree.key_paths import GetAttrKey
from phalanx.tree.registration import register_pytree_with_keys


class Partial(functools.partial[Any]):
    """`functools.partial` as a pytree node: bound arguments are children, the function is part of the structure.

    If the function is itself a partial function, its bound arguments are part of the structure, too.

    Args:
      func: the function.
      *args, **kw: the arguments to bind, which may be pytrees.

    Examples:
      >>> from phalanx import tree
      >>> halve = Partial(lambda x, y: y / x, 2)
      >>> tree.leaves(halve)
      [2]
      >>> tree.map(lambda x: 2 * x, halve)(8)
      2.0
    """

    def __new__(cls, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        # functools.partial would merge the arguments of a nested partial function with these, and make them leaves.
        return super().__new__(cls, _Opaque(func) if isinstance(func, functools.partial) else func, *args, **kw)


class _Opaque:
    """A partial function that `functools.partial` does not flatten."""

    __slots__ = ("func",)

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    @api_boundary
    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.func(*args, **kw)

    def __hash__(self) -> int:
        return hash(self.func)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and self.func == other.func

    def __repr__(self) -> str:
        return repr(self.func)


def _rebuild(func: Callable[..., Any], children: Any) -> Partial:
    args, keywords = children
    return Partial(func, *args, **keywords)


register_pytree_with_keys(
    Partial,
    lambda node: (((GetAttrKey("args"), node.args), (GetAttrKey("keywords"), node.keywords)), node.func),
    _rebuild,
    lambda node: ((node.args, node.keywords), node.func),
)
