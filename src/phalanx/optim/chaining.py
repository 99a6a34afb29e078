"""Composition of transformations in sequence: `chain` and `named_chain`.

Builds on `gradient_transformation`; `optimizers` and users call it.
"""

from __future__ import annotations

from typing import Any

from phalanx.core import ArgumentError
from phalanx.optim.gradient_transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    make_transformation,
    with_extra_args_support,
)
from phalanx.typing import PyTree


def chain(*transformations: GradientTransformation) -> GradientTransformationExtraArgs:
    """Apply transformations in sequence, each to the updates of the previous one.

    Args:
      transformations: objects with the functions `init` and `update`.

    Returns:
      The transformation; its state is the tuple of their states.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.chain(optim.clip(1.0), optim.scale(-0.5))
      >>> float(tx.update(3.0, tx.init(0.0))[0])
      -0.5
    """
    # Every transformation receives the extra arguments; a transformation without any ignores them.
    links = [with_extra_args_support(tx) for tx in transformations]

    def init(params: PyTree) -> tuple:
        return tuple([tx.init(params) for tx in links])

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        # A state restored from a checkpoint of another chain would otherwise be applied to the wrong transformations.
        if len(state) != len(links):
            raise ArgumentError(
                "optim.chain, argument state of update",
                expected=f"a tuple of {len(links)} states",
                got=f"{len(state)} states",
                fix="create the state with the `init` of this chain",
            )
        states = []
        for tx, inner in zip(links, state):
            updates, inner = tx.update(updates, inner, params, **extra_args)
            states.append(inner)
        return updates, tuple(states)

    return make_transformation(init, update)


def named_chain(*transformations: tuple[str, GradientTransformation]) -> GradientTransformationExtraArgs:
    """A `chain` whose state is a dictionary with a key for each transformation.

    Args:
      transformations: pairs of a name and an object with the functions `init` and `update`.

    Returns:
      The transformation.

    Raises:
      ArgumentError: two transformations have the same name.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.named_chain(("clip", optim.clip(1.0)), ("scale", optim.scale(-0.5)))
      >>> list(tx.init(0.0))
      ['clip', 'scale']
    """
    names = [name for name, _ in transformations]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(
            "optim.named_chain", expected="unique names", got=names, fix=f"rename one of the pairs named {repeated!r}"
        )
    links = chain(*[tx for _, tx in transformations])

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        updates, states = links.update(updates, tuple([state[name] for name in names]), params, **extra_args)
        return updates, dict(zip(names, states))

    return make_transformation(lambda params: dict(zip(names, links.init(params))), update)
