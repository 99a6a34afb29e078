"""Transformations made of transformations: in a row, on some parameters only, or with hyperparameters in the state.

Builds on `protocol`; `optimizers` and users call it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from phalanx import numpy as jnp
from phalanx.core.errors import ArgumentError, ArgumentTypeError
from phalanx.optim.arithmetic import counter, safe_increment
from phalanx.optim.protocol import GradientTransformationExtraArgs, transformation, with_extra_args_support
from phalanx.tree import tree_leaves, tree_map


class MaskedNode(NamedTuple):
    """Stands in the place of what a masked transformation does not see; a node without leaves.

    Examples:
      >>> from phalanx import optim
      >>> optim.masked(optim.trace(0.9), {"w": False}).init({"w": 0.0}).inner_state.trace
      {'w': MaskedNode()}
    """


class MaskedState(NamedTuple):
    """The state of a masked transformation.

    Args:
      inner_state: that of the transformation, with `MaskedNode`s where it sees nothing.

    Examples:
      >>> from phalanx import optim
      >>> optim.masked(optim.sgd(0.1), True).init({"w": 0.0})._fields
      ('inner_state',)
    """

    inner_state: Any


class PartitionState(NamedTuple):
    """The states of the transformations of a partition, by their labels.

    Args:
      inner_states: for each label the state of its transformation.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.partition({"fast": optim.sgd(0.1), "slow": optim.sgd(0.01)}, {"w": "fast"})
      >>> sorted(tx.init({"w": 0.0}).inner_states)
      ['fast', 'slow']
    """

    inner_states: Mapping[Hashable, Any]


class InjectHyperparamsState(NamedTuple):
    """The number of updates, the values of the hyperparameters by name, and the state of the transformation.

    Args:
      count: int32[].
      hyperparams: their values.
      inner_state: that of the transformation.

    Examples:
      >>> from phalanx import optim
      >>> state = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5).init({"w": 0.0})
      >>> float(state.hyperparams["learning_rate"])
      0.5
    """

    count: Any
    hyperparams: dict[str, Any]
    inner_state: Any


# --- in a row ---


def chain(*transformations: Any) -> GradientTransformationExtraArgs:
    """Apply transformations one after the other, each to the updates of the one before.

    Args:
      transformations: anything with `init` and `update`.

    Returns:
      The transformation; its state is the tuple of theirs.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.chain(optim.clip(1.0), optim.scale(-0.5))
      >>> float(tx.update(3.0, tx.init(0.0))[0])
      -0.5
    """
    links = [with_extra_args_support(tx) for tx in transformations]

    def init(params: Any) -> tuple:
        return tuple([tx.init(params) for tx in links])

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        if len(state) != len(links):
            raise ArgumentError(
                "optim.chain, argument state of update", expected=f"a tuple of {len(links)} states",
                got=f"{len(state)} states", mend="make the state with this chain's own init",
            )  # fmt: skip
        states = []
        for tx, inner in zip(links, state):
            updates, inner = tx.update(updates, inner, params, **extra_args)
            states.append(inner)
        return updates, tuple(states)

    return transformation(init, update)


def named_chain(*transformations: tuple[str, Any]) -> GradientTransformationExtraArgs:
    """A `chain` whose state is a dictionary.

    Args:
      transformations: pairs of a name and anything with `init` and `update`.

    Returns:
      The transformation.

    Raises:
      ArgumentError: a name is given twice.

    Examples:
      >>> from phalanx import optim
      >>> tx = optim.named_chain(("clip", optim.clip(1.0)), ("scale", optim.scale(-0.5)))
      >>> list(tx.init(0.0))
      ['clip', 'scale']
    """
    names = [name for name, _ in transformations]
    if len(set(names)) < len(names):
        raise ArgumentError("optim.named_chain", expected="names that differ", got=names, mend="rename one")
    links = chain(*[tx for _, tx in transformations])

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        updates, states = links.update(updates, tuple([state[name] for name in names]), params, **extra_args)
        return updates, dict(zip(names, states))

    return transformation(lambda params: dict(zip(names, links.init(params))), update)


# --- on some parameters ---


def _resolved(tree_or_function: Any, params: Any) -> Any:
    return tree_or_function(params) if callable(tree_or_function) else tree_or_function


def _hidden(mask: Any, tree: Any) -> Any:
    """A tree with the parts that a mask (a prefix of the tree) does not take hidden."""
    return tree_map(lambda m, part: part if m else MaskedNode(), mask, tree)


def masked(inner: Any, mask: Any) -> GradientTransformationExtraArgs:
    """Apply a transformation to some of the parameters; the updates of the others pass unchanged.

    Args:
      inner: anything with `init` and `update`.
      mask: a tree of booleans, the parameters' own structure or a prefix of it, or a function that makes one of them.

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

    def init(params: Any) -> MaskedState:
        return MaskedState(inner.init(_hidden(_resolved(mask, params), params)))

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        chosen = _resolved(mask, updates)
        seen = None if params is None else _hidden(chosen, params)
        new, inner_state = inner.update(_hidden(chosen, updates), state.inner_state, seen, **extra_args)
        merged = tree_map(lambda m, old, part: part if m else old, chosen, updates, new)
        return merged, MaskedState(inner_state)

    return transformation(init, update)


def partition(transforms: Mapping[Hashable, Any], param_labels: Any) -> GradientTransformationExtraArgs:
    """Apply to each parameter the transformation of its label.

    Args:
      transforms: transformations by label.
      param_labels: a tree of labels, the parameters' own structure or a prefix of it, or a function that makes one.

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

    def mask_of(label: Hashable) -> Callable:
        return lambda tree: tree_map(lambda x: x == label, _resolved(param_labels, tree))

    links = {label: masked(tx, mask_of(label)) for label, tx in transforms.items()}

    def init(params: Any) -> PartitionState:
        labels = dict.fromkeys(tree_leaves(_resolved(param_labels, params)))
        if unknown := [label for label in labels if label not in links]:
            raise ArgumentError(
                "optim.partition, argument param_labels", expected=f"labels among {list(links)}", got=unknown,
                mend="add a transformation for it, such as optim.set_to_zero()",
            )  # fmt: skip
        return PartitionState({label: tx.init(params) for label, tx in links.items()})

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
        states = {}
        for label, tx in links.items():
            updates, states[label] = tx.update(updates, state.inner_states[label], params, **extra_args)
        return updates, PartitionState(states)

    return transformation(init, update)


multi_transform = partition


# --- hyperparameters in the state ---


def inject_hyperparams(
    inner_factory: Callable, static_args: str | Iterable[str] = (), hyperparam_dtype: Any = None
) -> Callable[..., GradientTransformationExtraArgs]:
    """Keep the numeric hyperparameters of an optimiser in its state, where they can be read and changed.

    Args:
      inner_factory: such as `optim.adam`. Its numeric arguments become arrays of the state; its schedules are
        evaluated at each update; all others are as they are.
      static_args: names of arguments to leave alone.
      hyperparam_dtype: the dtype of the arrays, by default float32.

    Returns:
      A factory with the same arguments, of transformations whose state has the dictionary `hyperparams`.

    Raises:
      ArgumentTypeError: `static_args` names no argument of the factory.

    Examples:
      >>> import numpy as np
      >>> from phalanx import optim
      >>> tx = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5)
      >>> state = tx.init(1.0)
      >>> state.hyperparams["learning_rate"] = np.float32(0.25)
      >>> float(tx.update(1.0, state)[0])
      -0.25
    """
    static = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if unknown := static - set(signature.parameters):
        raise ArgumentTypeError(
            "optim.inject_hyperparams, argument static_args", expected=f"names among {list(signature.parameters)}",
            got=sorted(unknown), mend="spell them as the factory does",
        )  # fmt: skip
    dtype = np.dtype(hyperparam_dtype or np.float32)

    @functools.wraps(inner_factory)
    def factory(*args: Any, **kwargs: Any) -> GradientTransformationExtraArgs:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        fixed, numeric, schedules = _sorted_arguments(bound.arguments, static)

        def evaluated(count: Any) -> dict:
            return {name: jnp.asarray(schedule(count), dtype) for name, schedule in schedules.items()}

        def init(params: Any) -> InjectHyperparamsState:
            count = counter()
            values = {name: jnp.asarray(value, dtype) for name, value in numeric.items()} | evaluated(count)
            return InjectHyperparamsState(count, values, inner_factory(**fixed, **values).init(params))

        def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple:
            values = {**state.hyperparams, **evaluated(state.count)}
            inner = with_extra_args_support(inner_factory(**fixed, **values))
            updates, inner_state = inner.update(updates, state.inner_state, params, **extra_args)
            return updates, InjectHyperparamsState(safe_increment(state.count), values, inner_state)

        return transformation(init, update)

    return factory


def _sorted_arguments(arguments: Mapping[str, Any], static: set[str]) -> tuple[dict, dict, dict]:
    """The arguments of a factory as three dictionaries: those left alone, numbers, schedules."""
    fixed: dict = {}
    numeric: dict = {}
    schedules: dict = {}
    for name, value in arguments.items():
        if name in static or value is None or isinstance(value, bool | str):
            fixed[name] = value
        elif callable(value) and not isinstance(value, type):
            schedules[name] = value
        elif isinstance(value, int | float) or hasattr(value, "dtype"):
            numeric[name] = value
        else:
            fixed[name] = value
    return fixed, numeric, schedules


inject_stateful_hyperparams = inject_hyperparams
