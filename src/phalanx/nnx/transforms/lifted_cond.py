"""`nnx.cond` and `nnx.switch`.

Branches return the values of all variables, so that their results have the same structure. A branch may change the
structure of a module only if all branches make the same change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax
from phalanx.nnx.transforms.lifting import Lifted, call_lifted, get_cached_body
from phalanx.nnx.variable import Variable, unwrap
from phalanx.typing import ArrayLike


def _make_branch(fun: Callable) -> Lifted:
    return get_cached_body(fun, "branch", lambda call: Lifted(call, all_values=True))


def cond(
    pred: ArrayLike | Variable,
    true_fun: Callable,
    false_fun: Callable,
    *operands: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Call one of two functions of modules, selected at run time.

    Args:
      pred: a boolean or numeric scalar.
      true_fun, false_fun: functions of the operands, whose results have the same structure and types.
      *operands: the arguments of the functions.
      graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      The result of the selected function. Its changes to modules are written back to the caller's modules.

    Raises:
      TreeError: the results differ in structure, or only one function changes the structure of a module.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> n = nnx.Variable(jnp.array(1.0))
      >>> nnx.cond(True, lambda n: n.set_value(n + 1), lambda n: None, n)
      >>> float(n.value)
      2.0
    """
    # `branches` are also passed as makers: only variables that one of them sets are written back.
    branches = _make_branch(true_fun), _make_branch(false_fun)
    return call_lifted(functools.partial(lax.cond, unwrap(pred), *branches), operands, {}, branches)


def switch(
    index: ArrayLike | Variable,
    branches: Sequence[Callable],
    *operands: Any,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Call one of several functions of modules, selected by index at run time.

    Args:
      index: an integer scalar, clamped to the number of branches.
      branches: functions of the operands, whose results have the same structure and types.
      *operands: the arguments of the functions.
      graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      The result of the selected function. Its changes to modules are written back to the caller's modules.

    Raises:
      TreeError: the results differ in structure, or only some functions change the structure of a module.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx import nnx
      >>> w = nnx.Param(jnp.array(3.0))
      >>> float(nnx.switch(1, [lambda w: w + 0, lambda w: w * w], w))
      9.0
    """
    lifted = [_make_branch(f) for f in branches]
    return call_lifted(functools.partial(lax.switch, unwrap(index), lifted), operands, {}, lifted)
