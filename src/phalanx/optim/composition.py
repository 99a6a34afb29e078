"""Composition of transformations: `chain` in sequence, `masked` on some parameters, `partition` by their labels.

Parameters outside of a mask are replaced by `MaskedNode`, a pytree node without leaves, before the inner transformation
sees them; so its state holds no arrays for them. Builds on `gradient_transformation`; `optimizers` and users call it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from phalanx.core import ArgumentError
from phalanx.optim.gradient_transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    make_transformation,
    with_extra_args_support,
)
from phalanx.tree import tree_leaves, tree_map
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

    return make_transformation(lambda params: tuple([tx.init(params) for tx in links]), update)


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


class MaskedNode(NamedTuple):
    """A pytree node without leaves, in place of a parameter that a masked transformation does not see.

    Examples:
      >>> from phalanx import optim
      >>> optim.masked(optim.trace(0.9), {"w": False}).init({"w": 0.0}).inner_state.trace
      {'w': MaskedNode()}
    """


class MaskedState(NamedTuple):
    """The state of a masked transformation.

    Args:
      inner_state: the state of the inner transformation, with `MaskedNode`s in place of masked parameters.

    Examples:
      >>> from phalanx import optim
      >>> optim.masked(optim.sgd(0.1), True).init({"w": 0.0})._fields
      ('inner_state',)
    """

    inner_state: PyTree


class PartitionState(NamedTuple):
    """The states of the transformations of a partition, by label.

    Args:
      inner_states: the state of each transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.partition({"fast": optim.sgd(0.1), "slow": optim.sgd(0.01)}, {"w": "fast"})
      >>> sorted(tx.init({"w": 0.0}).inner_states)
      ['fast', 'slow']
    """

    inner_states: Mapping[Hashable, Any]


def _resolve(tree_or_function: PyTree | Callable[[PyTree], PyTree], params: PyTree) -> PyTree:
    return tree_or_function(params) if callable(tree_or_function) else tree_or_function


def _apply_mask(mask: PyTree, tree: PyTree) -> PyTree:
    """Replace the subtrees where `mask`, a prefix of the tree, is False."""
    return tree_map(lambda m, subtree: subtree if m else MaskedNode(), mask, tree)


def masked(inner: GradientTransformation, mask: PyTree | Callable[[PyTree], PyTree]) -> GradientTransformationExtraArgs:
    """Apply a transformation to some of the parameters; the updates of the others are unchanged.

    Args:
      inner: an object with the functions `init` and `update`.
      mask: a tree of booleans with the structure of the parameters or a prefix of it, or a function of the parameters
        that returns one.

    Returns:
      The transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.masked(optim.scale(-1.0), {"w": True, "b": False})
      >>> params = {"w": 1.0, "b": 1.0}
      >>> updates, _ = tx.update(params, tx.init(params))
      >>> float(updates["w"]), float(updates["b"])
      (-1.0, 1.0)
    """
    inner = with_extra_args_support(inner)

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        selected = _resolve(mask, updates)
        visible = None if params is None else _apply_mask(selected, params)
        new, inner_state = inner.update(_apply_mask(selected, updates), state.inner_state, visible, **extra_args)
        # Masked leaves keep their updates; `new` has `MaskedNode`s in their place.
        merged = tree_map(lambda m, old, subtree: subtree if m else old, selected, updates, new)
        return merged, MaskedState(inner_state)

    return make_transformation(
        lambda params: MaskedState(inner.init(_apply_mask(_resolve(mask, params), params))), update
    )


def partition(
    transforms: Mapping[Hashable, GradientTransformation], param_labels: PyTree | Callable[[PyTree], PyTree]
) -> GradientTransformationExtraArgs:
    """Apply to each parameter the transformation with its label.

    Args:
      transforms: transformations by label.
      param_labels: a tree of labels with the structure of the parameters or a prefix of it, or a function of the
        parameters that returns one.

    Returns:
      The transformation.

    Raises:
      ArgumentError: a label has no transformation.

    Examples:
      >>> from phalanx import optim
      >>> rules = {"train": optim.sgd(0.5), "freeze": optim.set_to_zero()}
      >>> tx = optim.partition(rules, {"w": "train", "b": "freeze"})
      >>> params = {"w": 1.0, "b": 1.0}
      >>> updates, _ = tx.update(params, tx.init(params))
      >>> float(updates["w"]), float(updates["b"])
      (-0.5, 0.0)
    """

    def mask_of(label: Hashable) -> Callable[[PyTree], PyTree]:
        return lambda tree: tree_map(lambda x: x == label, _resolve(param_labels, tree))

    # Each transformation runs on all updates with a mask, so their states have the structure of the parameters.
    links = {label: masked(tx, mask_of(label)) for label, tx in transforms.items()}

    def init(params: PyTree) -> PartitionState:
        # A dict and not a set, so that the error lists unknown labels in the order of the parameters.
        labels = dict.fromkeys(tree_leaves(_resolve(param_labels, params)))
        if unknown := [label for label in labels if label not in links]:
            raise ArgumentError(
                "optim.partition, argument param_labels",
                expected=f"labels among {list(links)}",
                got=unknown,
                fix=f"add transforms[{unknown[0]!r}], such as optim.set_to_zero()",
            )
        return PartitionState({label: tx.init(params) for label, tx in links.items()})

    def update(updates: PyTree, state: Any, params: PyTree = None, **extra_args: Any) -> tuple:
        states = {}
        for label, tx in links.items():
            updates, states[label] = tx.update(updates, state.inner_states[label], params, **extra_args)
        return updates, PartitionState(states)

    return make_transformation(init, update)


multi_transform = partition
