"""Checkpoint policies: which intermediate values `checkpoint` may save instead of recomputing them.

A policy is called with each operation, as `policy(primitive, *avals, **params)`. Policies on names see the operations
that `checkpoint_name` inserts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.core import ArgumentError, Primitive
from phalanx.engine.cache import memoize
from phalanx.transforms.checkpoint_and_remat import name_p, nothing_saveable
from phalanx.transforms.offload import Offloadable
from phalanx.transforms.partial_eval import Policy, everything_saveable


def _policy_on_names(keeps: Callable[[str | None], Any]) -> Policy:
    """The policy that applies a predicate to the name of a value, or to None if it has no name."""

    def policy(primitive: Primitive, *_: Any, **params: Any) -> Any:
        return keeps(params["name"] if primitive is name_p else None)

    return policy


@dataclasses.dataclass(frozen=True)
class SaveOnlyTheseNames:
    """The policy that `save_only_these_names` makes, in a form that a `f_fwd` of `custom_remat` can read.

    Args:
      saveable_names: the names that `checkpoint_name` gives to values that are saved.

    Examples:
      >>> CheckpointPolicies.save_only_these_names("hidden").saveable_names
      ('hidden',)
    """

    saveable_names: tuple[str, ...]

    def __call__(self, primitive: Primitive, *_: Any, **params: Any) -> bool:
        return primitive is name_p and params["name"] in self.saveable_names


class CheckpointPolicies:
    """The policies for `checkpoint(policy=...)`: predicates on an operation, true if its results may be saved.

    Examples:
      >>> import phalanx, phalanx.numpy as jnp
      >>> policy = phalanx.checkpoint_policies.everything_saveable
      >>> f = phalanx.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=policy)
      >>> float(phalanx.grad(f)(0.0))
      1.0
    """

    everything_saveable = staticmethod(everything_saveable)
    nothing_saveable = staticmethod(nothing_saveable)

    @staticmethod
    def dots_saveable(primitive: Primitive, *_: Any, **__: Any) -> bool:
        """Save the results of matrix products and convolutions."""
        return primitive.name in ("dot_general", "conv_general_dilated")

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(primitive: Primitive, *_: Any, **params: Any) -> bool:
        """Save the results of matrix products without batch dimensions."""
        return primitive.name == "dot_general" and not any(params["dimension_numbers"][1])

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    SaveOnlyTheseNames = SaveOnlyTheseNames

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Save values that `checkpoint_name` marks with one of these names."""
        return SaveOnlyTheseNames(names)

    @staticmethod
    @memoize("transforms.save_any_names_but_these", 256)
    def save_any_names_but_these(*names: str) -> Policy:
        """Save values that are marked with any other name."""
        return _policy_on_names(lambda name: name is not None and name not in names)

    @staticmethod
    @memoize("transforms.save_anything_except_these_names", 256)
    def save_anything_except_these_names(*names: str) -> Policy:
        """Save everything except values that are marked with these names."""
        return _policy_on_names(lambda name: name not in names)

    @staticmethod
    @memoize("transforms.save_from_both_policies", 256)
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Save values that either policy saves; a value is offloaded only if neither policy saves it in place."""

        def policy(primitive: Primitive, *avals: Any, **params: Any) -> Any:
            verdicts = [p(primitive, *avals, **params) for p in (first, second)]
            return next((v for v in verdicts if v and not isinstance(v, Offloadable)), verdicts[0] or verdicts[1])

        return policy

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Sequence[str],
        names_which_can_be_offloaded: Sequence[str],
        offload_src: str,
        offload_dst: str,
    ) -> Policy:
        """Save values with some names in place, and offload values with other names to another memory."""
        saved, offloaded = tuple(names_which_can_be_saved), tuple(names_which_can_be_offloaded)
        if both := ", ".join(map(repr, sorted({*saved} & {*offloaded}))):
            raise ArgumentError(
                "save_and_offload_only_these_names",
                expected="each name in only one of names_which_can_be_saved and names_which_can_be_offloaded",
                got=f"{both} in both",
                fix=f"remove {both} from one of the two arguments",
            )
        return _save_or_offload(saved, offloaded, Offloadable(offload_src, offload_dst))

    @staticmethod
    @memoize("transforms.offload_dot_with_no_batch_dims", 256)
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
        """Offload the results of matrix products without batch dimensions to another memory."""
        memory = Offloadable(offload_src, offload_dst)

        def policy(primitive: Primitive, *avals: Any, **params: Any) -> Any:
            return memory if CheckpointPolicies.dots_with_no_batch_dims_saveable(primitive, *avals, **params) else False

        return policy


@memoize("transforms.save_or_offload", 256)
def _save_or_offload(saved: tuple, offloaded: tuple, memory: Offloadable) -> Policy:
    return _policy_on_names(lambda name: memory if name in offloaded else name in saved)


checkpoint_policies = CheckpointPolicies()
