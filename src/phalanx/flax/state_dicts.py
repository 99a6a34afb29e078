"""State dicts: the arrays of any tree as nested dictionaries with text keys, to be written to a file and restored.

`to_state_dict` converts a tree, and `from_state_dict` takes a tree of the same structure and returns it with the values
of a state dict. Further classes are registered with `register_serialization_state`. Users find these functions in
`phalanx.flax.serialization`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from phalanx.core import ArgumentError, TreeError
from phalanx.nnx import State, Variable, replace_by_pure_dict, to_pure_dict
from phalanx.tree import Partial
from phalanx.typing import PyTree


class _NamedTuples:
    """The registered type of all named tuples."""


_registry: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {}
_path: ContextVar[tuple[str, ...]] = ContextVar("path in the state dict that is being restored", default=())


@contextmanager
def _below(name: str) -> Iterator[None]:
    token = _path.set((*_path.get(), name))
    try:
        yield
    finally:
        _path.reset(token)


def _get_entry(target: object) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]] | None:
    is_named_tuple = isinstance(target, tuple) and hasattr(target, "_fields")
    return _registry.get(_NamedTuples if is_named_tuple else type(target))


def to_state_dict(target: PyTree) -> Any:
    """Convert a tree to nested dictionaries with text keys.

    Args:
      target: a tree of dictionaries, lists, tuples, dataclasses of `struct`, states of `nnx`, and registered classes.

    Returns:
      The dictionaries. A value of another class is returned as it is.

    Examples:
      >>> from phalanx.flax import serialization
      >>> serialization.to_state_dict({"a": [1.0, 2.0]})
      {'a': {'0': 1.0, '1': 2.0}}
    """
    entry = _get_entry(target)
    return target if entry is None else entry[0](target)


def from_state_dict(target: PyTree, state: Any, name: str = ".") -> Any:
    """Return a tree with the values of a state dict.

    Args:
      target: a tree of the structure that was converted. Its values are not used.
      state: the result of `to_state_dict`.
      name: the name of this part of the tree in error messages.

    Returns:
      A copy of the tree.

    Raises:
      TreeError: the state dict does not fit the tree.

    Examples:
      >>> from phalanx.flax import serialization
      >>> serialization.from_state_dict({"a": [0.0, 0.0]}, {"a": {"0": 1.0, "1": 2.0}})
      {'a': [1.0, 2.0]}
    """
    entry = _get_entry(target)
    if entry is None:
        return state
    with _below(name):
        return entry[1](target, state)


def register_serialization_state(
    ty: type,
    ty_to_state_dict: Callable[[Any], Any],
    ty_from_state_dict: Callable[[Any, Any], Any],
    override: bool = False,
) -> None:
    """Register a class whose instances have state dicts.

    Args:
      ty: the class.
      ty_to_state_dict: converts an instance to a dictionary with text keys.
      ty_from_state_dict: `(instance, state) -> instance` returns a copy with the values of a state dict.
      override: whether to replace an existing registration.

    Raises:
      ArgumentError: the class is registered already.

    Examples:
      >>> from phalanx.flax import serialization
      >>> class Box:
      ...     def __init__(self, x):
      ...         self.x = x
      >>> serialization.register_serialization_state(
      ...     Box, lambda b: {"x": b.x}, lambda b, state: Box(state["x"])
      ... )
      >>> serialization.to_state_dict([Box(1)])
      {'0': {'x': 1}}
    """
    if ty in _registry and not override:
        raise ArgumentError(
            "register_serialization_state, argument ty",
            expected="a class that is not registered",
            got=ty.__name__,
            fix="pass override=True to replace the registration",
        )
    _registry[ty] = ty_to_state_dict, ty_from_state_dict


def is_serializable(target: object) -> bool:
    """Whether a class, or the class of a value, is registered.

    Args:
      target: a class or a value.

    Returns:
      A bool.

    Examples:
      >>> from phalanx.flax import serialization
      >>> serialization.is_serializable({}), serialization.is_serializable(object)
      (True, False)
    """
    return (target if isinstance(target, type) else type(target)) in _registry


def restore_fields(fields: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Restore values by name from a state dict that must have the same names.

    Args:
      fields: the values of the target by name.
      state: the state dict.

    Returns:
      The new values.

    Raises:
      TreeError: the names differ.
    """
    if fields.keys() != state.keys():
        raise TreeError(
            f"from_state_dict, at {'/'.join(_path.get())}",
            expected=f"the keys {sorted(fields)}",
            got=sorted(state),
            fix="pass a target of the structure that was converted",
        )
    return {name: from_state_dict(value, state[name], name) for name, value in fields.items()}


def _name_elements(xs: Any) -> dict[str, Any]:
    return {str(i): x for i, x in enumerate(xs)}


def _convert_dict(xs: Mapping[Any, Any]) -> dict[str, Any]:
    if len({str(key) for key in xs}) < len(xs):
        raise TreeError(
            "to_state_dict",
            expected="keys that differ as text",
            got=sorted(map(repr, xs)),
            fix="rename the keys: state dicts have text keys only",
        )
    return {str(key): to_state_dict(x) for key, x in xs.items()}


def restore_dict(xs: Mapping[Any, Any], state: Mapping[str, Any]) -> dict[Any, Any]:
    """Restore a dictionary from a state dict, which may have further keys.

    Args:
      xs: the dictionary of the target.
      state: the state dict.

    Returns:
      The new dictionary.

    Raises:
      TreeError: the state dict lacks a key.
    """
    present = {key: x for key, x in state.items() if key in {str(k) for k in xs}}
    values = restore_fields({str(key): x for key, x in xs.items()}, present)
    return {key: values[str(key)] for key in xs}


def _restore_state(target: State, values: Mapping[str, Any]) -> State:
    state = target.map(lambda path, x: x.copy() if isinstance(x, Variable) else x)
    replace_by_pure_dict(state, values)
    return state


for _type in (list, tuple):
    register_serialization_state(
        _type,
        lambda xs: {key: to_state_dict(x) for key, x in _name_elements(xs).items()},
        lambda xs, state: type(xs)(restore_fields(_name_elements(xs), state).values()),
    )
register_serialization_state(dict, _convert_dict, restore_dict)
register_serialization_state(
    _NamedTuples,
    lambda x: {key: to_state_dict(value) for key, value in x._asdict().items()},
    lambda x, state: type(x)(**restore_fields(x._asdict(), state)),
)
register_serialization_state(
    Partial,
    lambda f: {"args": to_state_dict(f.args), "keywords": to_state_dict(f.keywords)},
    lambda f, state: Partial(
        f.func, *from_state_dict(f.args, state["args"]), **from_state_dict(f.keywords, state["keywords"])
    ),
)
register_serialization_state(State, lambda x: _convert_dict(to_pure_dict(x)), _restore_state)
