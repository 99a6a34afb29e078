"""The optional rules of primitives, in groups by the part of the system that asks for them.

Every primitive has the six rules in `primitive.REQUIRED`. A primitive that calls jaxprs, runs along named axes, places
values on devices, or handles random keys overrides rules of the group concerned as well; each group is a base class of
`Primitive`, whose rules default to None, "as for any other operation". The page "Rules of primitives" of the
documentation shows which primitive has which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class CallRules:
    """Rules of call-like primitives, a parameter of which is a jaxpr: calls, loops, branches.

    Attributes:
      call_like: whether a parameter is a jaxpr. Result types of such a primitive are not cached, and its compiled forms
        are kept on the jaxpr.
      stage: `(trace, args, params)`, records an application in a staging trace, for parameters that are functions.
      linearize: `(trace, primals, tangents, params)`, returns outputs and tangents without a `jvp` of the whole jaxpr.
      partial_eval: `(trace, args, params)`, computes now what does not depend on the unknown arguments.
      partial_eval_eqn: `(eqn, unknown, policy)`, splits an equation into its known part (or None), the unknown part,
        and the residuals between them.
      dce: `(eqn, used_outputs)`, returns a smaller equation, or None if nothing of it is left.
      update_varying: `(avals, params)`, returns the parameters for operands of these types, with the jaxprs typed for
        the mesh axes over which the operands vary.
    """

    call_like: ClassVar[bool] = False
    stage: Callable[..., Any] | None = None
    linearize: Callable[..., Any] | None = None
    partial_eval: Callable[..., Any] | None = None
    partial_eval_eqn: Callable[..., Any] | None = None
    dce: Callable[..., Any] | None = None
    update_varying: Callable[..., Any] | None = None


class NamedAxisRules:
    """Rules of collectives and of other primitives that depend on named axes.

    Attributes:
      named_axes: `(*args, **params)`, returns the named axes of an application, if they are not its parameter `axes`.
      batch_axis: `(axis, operands, dims, **params)`, takes the place of `batch` and also receives the mapped axis.
      varying: `(axes, **params)`, returns the mesh axes over which the results vary, given those of the operands.
    """

    named_axes: Callable[..., Any] | None = None
    batch_axis: Callable[..., Any] | None = None
    varying: Callable[..., frozenset[Any]] | None = None


class PlacementRules:
    """Rules of primitives that place values on devices or in memories.

    Attributes:
      target_shardings: `(**params)`, returns the shardings that an application names, None for those left open. The
        first one with devices decides where a program runs whose arguments are not committed to any.
      operand_shardings: `(**params)`, returns the sharding by which each operand is read, so that devices receive their
        shards only.
      memories: `(kinds, **params)`, returns the kinds of memory of the results, given those of the operands; None is
        the default memory.
    """

    target_shardings: Callable[..., Any] | None = None
    operand_shardings: Callable[..., Any] | None = None
    memories: Callable[..., Any] | None = None


class KeyRules:
    """Rules about typed random keys.

    Attributes:
      takes_keys: whether the rules of the primitive handle operands with a key dtype. Other primitives see the words of
        the keys, in one dimension more.
      consumes_keys: whether an application consumes its keys (True) or only reads them to make new ones (False); None
        for primitives without keys.
    """

    takes_keys: ClassVar[bool] = False
    consumes_keys: ClassVar[bool | None] = None
