"""`Partial`: a function with bound arguments, whose bound arguments are leaves of a pytree.

`vjp` and `linearize` return one, so that their results can be passed to functions under `jit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from phalanx.engine.traceback_filtering import api_boundary
from phalanx.tree.key_paths import GetAttrKey
from phalanx.tree.pytree_registry import register_pytree_with_keys


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


@dataclass(frozen=True, repr=False, slots=True)
class _Opaque:
    """A partial function that `functools.partial` does not flatten."""

    func: functools.partial[Any]

    @api_boundary
    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.func(*args, **kw)

    args = property(lambda self: self.func.args)
    keywords = property(lambda self: self.func.keywords)

    def __repr__(self) -> str:
        return repr(self.func)


register_pytree_with_keys(
    Partial,
    lambda node: (((GetAttrKey("args"), node.args), (GetAttrKey("keywords"), node.keywords)), node.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
    lambda node: ((node.args, node.keywords), node.func),
)
