"""Values of variables in mutable array references, which plain transformations change in place.

A variable with the metadata `ref` or `hijax` holds a reference in place of each array of its value. Writes to it reach
the caller from inside `phalanx.jit`, `grad` and `scan`, which know references but not variables. `variable` calls the
functions here; everything else sees the plain value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import phalanx.numpy as jnp
from phalanx.core import Ref, RefError, current_scope, new_ref, state
from phalanx.nnx.settings import OptionValues
from phalanx.runtime.array import Array
from phalanx.tree import tree_flatten, tree_map, tree_structure
from phalanx.typing import PyTree

MODES = ("hijax", "ref")
_BOXED = (Array, np.ndarray, bool, int, float, complex)


@dataclass(frozen=True)
class VarDefaults(Mapping[str, bool]):
    """The defaults of the arguments `hijax` and `ref` of variables.

    Args:
      hijax, ref: the defaults.

    Examples:
      >>> from phalanx import nnx
      >>> dict(nnx.var_defaults())
      {'hijax': False, 'ref': False}
    """

    hijax: bool
    ref: bool

    def __getitem__(self, name: str) -> bool:
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODES)

    def __len__(self) -> int:
        return len(MODES)


def var_defaults(*, hijax: bool | None = None, ref: bool | None = None) -> Any:
    """Set the defaults of the arguments `hijax` and `ref` of variables: at once, for a `with` block, or for a function.

    Args:
      hijax, ref: the defaults; None leaves one as it is.

    Returns:
      A context manager, also a decorator; without arguments, the current defaults as a mapping.

    Examples:
      >>> from phalanx import nnx
      >>> with nnx.var_defaults(ref=True):
      ...     w = nnx.Param(1.0)
      >>> w.ref, nnx.var_defaults().ref
      (True, False)
    """
    given = {f"flax_{n}_variable": bool(v) for n, v in zip(MODES, (hijax, ref)) if v is not None}
    return OptionValues(**given) if given else VarDefaults(*[current_scope().read(f"flax_{n}_variable") for n in MODES])


def to_refs(value: PyTree) -> PyTree:
    """A value with a new reference in place of each array and number; references are kept."""
    return tree_map(lambda x: new_ref(x) if isinstance(x, _BOXED) and not isinstance(x, Ref) else x, value)


def read_refs(value: PyTree) -> PyTree:
    """A value with the array in each of its references; all else is kept."""
    if type(value) is Array or (isinstance(value, Array) and not isinstance(value, Ref)):
        return value
    return value[...] if isinstance(value, Ref) else tree_map(lambda x: x[...] if isinstance(x, Ref) else x, value)


def write_refs(where: str, refs: PyTree, value: PyTree) -> PyTree:
    """Write a value into references; outside of transformations, they are replaced where the value does not fit.

    Args:
      where: the variable, for error messages.
      refs: a tree of references.
      value: the value.

    Returns:
      The references that hold the value.

    Raises:
      RefError: inside a transformation, the value has another structure.
    """
    old, new = tree_flatten(refs)[0], tree_flatten(value)[0]
    is_same_tree = tree_structure(refs) == tree_structure(value) and all(isinstance(ref, Ref) for ref in old)
    if state.trace is None and not (is_same_tree and all(map(_fits, old, new))):
        return to_refs(value)
    if not is_same_tree:
        raise RefError(
            f"{where}, setting its value",
            expected=f"a value of the structure {tree_structure(refs)}, since callers see changes of its arrays only",
            got=f"the structure {tree_structure(value)}",
            fix="create all entries before the transformation, or pass the variable to the nnx transformation "
            "without hijax=True and ref=True",
        )
    for ref, x in zip(old, new, strict=True):
        if x is not ref:
            ref[...] = x
    return refs


def _fits(ref: Ref, x: Any) -> bool:
    """Whether a value can be written to a reference without a change of its shape and dtype."""
    return jnp.shape(x) == ref.shape and jnp.result_type(ref.dtype, x) == ref.dtype
