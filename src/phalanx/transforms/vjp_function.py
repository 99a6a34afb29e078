"""`VjpFunction`: the result of `vjp`, and the markers that say where a gradient goes.

`f_vjp(ct)` returns all gradients. `f_vjp.with_refs(...)` adds some of them to mutable arrays instead, or skips them.
`jvp_and_vjp` makes these functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from phalanx.engine.traceback_filtering import api_boundary
from phalanx.tree import Partial, register_dataclass, register_pytree_node


class VjpFunction(Partial):
    """The transposed derivative of a function at a point, from a cotangent of the result to the arguments' cotangents.

    Its leaves as a pytree are the residuals, and the references that gradients are added to.

    Args:
      func: `(residuals, targets, cotangent)`, returns the cotangents.
      *args: the residuals and the targets.

    Examples:
      >>> import phalanx
      >>> _, f_vjp = phalanx.vjp(lambda a, b: a * b, 2.0, 3.0)
      >>> total = phalanx.new_ref(1.0)
      >>> f_vjp.with_refs(total, phalanx.ad.DontWant())(1.0)
      (GradRef(), DidntWant())
      >>> total
      Ref(4., dtype=float32)
    """

    @api_boundary
    def with_refs(self, *targets: Any) -> VjpFunction:
        """Choose for each argument where its gradient goes.

        Args:
          *targets: for each leaf of the arguments, in their structure, a mutable array reference to which the gradient
            is added, `GradValue()` for a gradient that is returned, or `DontWant()` for one that is not computed.

        Returns:
          A function from a cotangent to a tuple with the gradient of each argument, `GradRef()` where it was added to
          a reference, and `DidntWant()` where it was not computed.
        """
        return VjpFunction(self.func, self.args[0], targets)


register_pytree_node(
    VjpFunction, lambda node: (node.args, node.func), lambda func, children: VjpFunction(func, *children)
)


@dataclass(frozen=True, slots=True)
class GradValue:
    """In `with_refs`: return the gradient of this argument.

    Examples:
      >>> GradValue()
      GradValue()
    """


@dataclass(frozen=True, slots=True)
class DontWant:
    """In `with_refs`: do not compute the gradient of this argument.

    Examples:
      >>> DontWant()
      DontWant()
    """


@register_dataclass
@dataclass(frozen=True, slots=True)
class GradRef:
    """In the result: the gradient was added to a reference.

    Examples:
      >>> GradRef()
      GradRef()
    """


@register_dataclass
@dataclass(frozen=True, slots=True)
class DidntWant:
    """In the result: the gradient was not computed.

    Examples:
      >>> DidntWant()
      DidntWant()
    """
