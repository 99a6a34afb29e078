"""Functions as transformations take them: of flat arguments and results, with the trees kept beside.

Builds on `core.trace`; `vmap`, the derivatives, `checkpoint`, the custom rules, loops, branches and `shard_map` flatten
what users write with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from phalanx.core.errors import ArgumentTypeError
from phalanx.core.source import code_position
from phalanx.core.trace import check_outputs
from phalanx.tree import tree_flatten, tree_unflatten
from phalanx.tree.paths import leaf_path


@dataclass(eq=False, slots=True)
class FlatFunction:
    """A function of a pytree of arguments, as one of flat arguments and flat results.

    Args:
      fun: the function.
      in_tree: the structure of `args`.
      has_aux: whether it returns a pair of results and other values.
      written: the function that the user wrote, where `fun` is another one around it.
      role: what the function is to the user, for messages about its results.
    """

    fun: Callable
    in_tree: Any
    has_aux: bool = False
    written: Callable | None = None
    role: str = ""
    out_tree: Any = field(default=None, init=False)
    aux: Any = field(default=None, init=False)

    @property
    def __name__(self) -> str:
        return function_name(self.written or self.fun)

    def __call__(self, *leaves: Any) -> list:
        out = self.fun(*tree_unflatten(self.in_tree, leaves))
        if self.has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise ArgumentTypeError(
                    f"the result of {code_position(self.written or self.fun)}",
                    expected="a pair (result, aux), since has_aux=True",
                    got=f"{type(out).__name__}",
                    mend="return (result, aux), or drop has_aux",
                )
            out, self.aux = out
        flat, self.out_tree = tree_flatten(out)
        check_outputs(flat, lambda i: f"{self.role and f' of {self.role}'}{leaf_path(out, i)}")
        return flat


def function_name(fun: Any) -> str:
    """What a function is called in messages and programs."""
    return getattr(fun, "__name__", None) or type(fun).__name__
