"""`VjpFunction`: the result of `vjp`, and the markers that say where a gradient goes.

`f_vjp(ct)` returns all gradients. `f_vjp.with_refs(...)` adds some of them to mutable arrays instead, or skips them;
`f_vjp.with_logs(ct)` also returns what rules of custom derivatives log. `jvp_and_vjp` makes these functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.core import ArgumentError
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.tree import PyTreeDef, register_dataclass, register_pytree_node, tree_unflatten
from phalanx.tree.key_paths import leaf_path
from phalanx.typing import PyTree


class _Mark:
    """A value without parts, which equals all others of its class."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class NotNeeded(_Mark):
    """In `args_res`: the derivative does not depend on this argument.

    Examples:
      >>> import phalanx
      >>> phalanx.vjp(lambda x: 2 * x, 3.0)[1].args_res
      [NotNeeded()]
    """


class NotSaveable(_Mark):
    """In `args_res`: `saveable_args` forbids to keep this argument, which must be put here before the call.

    Examples:
      >>> NotSaveable()
      NotSaveable()
    """


@dataclass(eq=False, slots=True, weakref_slot=True)
class VjpFunction:
    """The transposed derivative of a function at a point, from a cotangent of the result to the arguments' cotangents.

    Its leaves as a pytree are the residuals, and the references that gradients are added to.

    Args:
      transpose: `(residuals, targets, cotangents)`, returns the cotangents of the arguments and the logs.
      places: for each residual, the number of the argument's leaf that it is, or None.
      in_tree: the structure of the arguments.
      args_res: for each argument the residuals that are leaves of it, in its structure; other leaves are `NotNeeded()`.
        They may be replaced, so that a function need not keep arguments that its caller has anyway.
      opaque_residuals: the other residuals.
      targets: where gradients go, as in `with_refs`.
      want_logs: whether a call returns the logs, too.

    Examples:
      >>> import phalanx
      >>> _, f_vjp = phalanx.vjp(lambda a, b: a * b, 2.0, 3.0)
      >>> total = phalanx.new_ref(1.0)
      >>> f_vjp.with_refs(total, phalanx.ad.DontWant())(1.0)
      (GradRef(), DidntWant())
      >>> total
      Ref(4., dtype=float32)
    """

    transpose: Callable[..., tuple[Any, dict]]
    places: tuple[int | None, ...]
    in_tree: PyTreeDef
    args_res: list
    opaque_residuals: list
    targets: tuple = ()
    want_logs: bool = False

    @classmethod
    def of(
        cls,
        transpose: Callable[..., tuple[Any, dict]],
        in_tree: PyTreeDef,
        args: Sequence[Any],
        residuals: Sequence[Any],
        saveable: Sequence[bool],
    ) -> VjpFunction:
        """A function with these residuals, some of which may be leaves of the arguments."""
        numbers = {id(x): i for i, x in enumerate(args)}
        places = tuple([numbers.get(id(x)) for x in residuals])
        needed = {*places}
        kept = [
            NotNeeded() if i not in needed else x if s else NotSaveable()
            for i, (x, s) in enumerate(zip(args, saveable, strict=True))
        ]
        opaque = [x for x, place in zip(residuals, places, strict=True) if place is None]
        return cls(transpose, places, in_tree, list(tree_unflatten(in_tree, kept)), opaque)

    @api_boundary
    def __call__(self, *cotangents: PyTree) -> Any:
        given = self.in_tree.flatten_up_to(tuple(self.args_res))
        opaque = iter(self.opaque_residuals)
        residuals = [next(opaque) if i is None else self._restored(given, i) for i in self.places]
        bars, logs = self.transpose(residuals, self.targets, cotangents, self.want_logs)
        return (bars, logs) if self.want_logs else bars

    def _restored(self, given: Sequence[Any], i: int) -> Any:
        if isinstance(given[i], NotNeeded | NotSaveable | None):
            raise ArgumentError(
                f"a vjp function, args_res{leaf_path(tree_unflatten(self.in_tree, range(len(given))), i)}",
                expected="the argument at which the function was differentiated",
                got=f"{given[i]!r}, since it is not-saveable or was taken out",
                fix="put it there before the call: f_vjp.args_res[n] = argument",
            )
        return given[i]

    @property
    def with_logs(self) -> VjpFunction:
        """The function that returns a pair of the gradients and the logs of rules set by `defvjp_with_logs`."""
        return dataclasses.replace(self, want_logs=True)

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
        return dataclasses.replace(self, targets=targets)


register_pytree_node(
    VjpFunction,
    lambda f: ((f.args_res, f.opaque_residuals, f.targets), (f.transpose, f.places, f.in_tree, f.want_logs)),
    lambda static, children: VjpFunction(*static[:3], *children, want_logs=static[3]),
)


class GradValue(_Mark):
    """In `with_refs`: return the gradient of this argument.

    Examples:
      >>> GradValue()
      GradValue()
    """


class DontWant(_Mark):
    """In `with_refs`: do not compute the gradient of this argument.

    Examples:
      >>> DontWant()
      DontWant()
    """


class GradRef(_Mark):
    """In the result: the gradient was added to a reference.

    Examples:
      >>> GradRef()
      GradRef()
    """


class DidntWant(_Mark):
    """In the result: the gradient was not computed.

    Examples:
      >>> DidntWant()
      DidntWant()
    """


for mark in (NotNeeded, NotSaveable, GradRef, DidntWant):
    register_dataclass(mark, (), ())
