"""`nnx.remat`: recompute intermediate values of a function of modules in the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from phalanx import transforms
from phalanx.core import parse_positions
from phalanx.nnx.transforms.lifting import Lifted, call_lifted, decorator_if_missing
from phalanx.nnx.transforms.static_arguments import bind_static
from phalanx.nnx.variable import MISSING


@decorator_if_missing
def remat(
    f: Any = MISSING,
    *,
    prevent_cse: bool = True,
    static_argnums: int | tuple[int, ...] = (),
    policy: Callable[..., Any] | None = None,
    graph: bool | None = None,
    graph_updates: bool | None = None,
) -> Any:
    """Recompute the intermediate values of a function of modules for differentiation, instead of storing them.

    Args:
      f: the function. If omitted, a decorator is returned.
      prevent_cse, static_argnums, policy: as in `phalanx.checkpoint`.
      graph, graph_updates: accepted for compatibility with Flax.

    Returns:
      The function, or a decorator.

    Examples:
      >>> from phalanx import nnx
      >>> float(nnx.grad(nnx.remat(lambda w: w * w))(nnx.Param(3.0)).value)
      6.0
    """
    numbers = parse_positions("nnx.remat, argument static_argnums", static_argnums)

    @functools.wraps(f)
    def rematerialized(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = bind_static(f, args, numbers)
        lifted = transforms.checkpoint(Lifted(call), prevent_cse=prevent_cse, policy=policy)
        return call_lifted(lifted, dynamic, kwargs)

    return rematerialized


checkpoint = remat
