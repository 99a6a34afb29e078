"""Derivatives with respect to sparse arrays: `grad`, `value_and_grad`, `jacfwd` and `jacrev`.

The derivative by a sparse array is taken by its stored elements, and is a sparse array with the same indices.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from phalanx import lax, transforms
from phalanx.core import is_sequence
from phalanx.engine.traceback_filtering import api_boundary
from phalanx.lax.elementwise import set_name_and_doc
from phalanx.sparse.bcoo import BCOO
from phalanx.sparse.bcsr import BCSR
from phalanx.sparse.sparsify import is_sparse
from phalanx.tree import register_pytree_node, tree_flatten, tree_map, tree_unflatten
from phalanx.typing import Array

_DOC = """{words} with respect to the stored elements of sparse arguments.

Args:
  fun: a function of arrays, or pytrees of arrays, any of which may be sparse; its result is dense.
  argnums: the positions of the arguments to differentiate by.
  has_aux: whether `fun` returns a pair of the result and auxiliary data.
  **kwargs: further options of `phalanx.{name}`.

Returns:
  A function of the same arguments. A derivative by a sparse argument is sparse, with the indices of the argument.

Examples:
  >>> import phalanx.numpy as jnp
  >>> from phalanx.experimental import sparse
  >>> x = sparse.BCOO.fromdense(jnp.arange(3.0))
  >>> sparse.{name}(lambda x: {example})(x)
  {value}
"""


class _Elements(list):
    """The leaves to differentiate by, where a sparse array has its stored elements.

    The type marks the derivatives in the results of transformations.
    """


register_pytree_node(_Elements, lambda x: (tuple(x), None), lambda _, children: _Elements(children))


def _sparse_form(name: str, words: str, example: str, value: str) -> Any:
    """The form of a transformation for functions of sparse arrays."""
    transform = getattr(transforms, name)

    def derivative(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
        positions = [operator.index(i) for i in (argnums if is_sequence(argnums) else (argnums,))]

        @api_boundary
        @functools.wraps(fun)
        def wrapped(*args: Any, **params: Any) -> Any:
            leaves, tree = tree_flatten([args[i] for i in positions], is_leaf=is_sparse)

            @functools.wraps(fun)
            def of_elements(elements: _Elements) -> Any:
                full = list(args)
                for i, x in zip(positions, tree_unflatten(tree, map(_with_elements, leaves, elements)), strict=True):
                    full[i] = x
                return fun(*full, **params)

            def rebuild(x: Any) -> Any:
                if type(x) is not _Elements:
                    return x
                found = tree_unflatten(tree, map(_with_elements, leaves, x))
                return tuple(found) if is_sequence(argnums) else found[0]

            elements = _Elements(x.data if is_sparse(x) else x for x in leaves)
            out = transform(of_elements, has_aux=has_aux, **kwargs)(elements)
            return tree_map(rebuild, out, is_leaf=lambda x: type(x) is _Elements)

        return wrapped

    return set_name_and_doc(derivative, name, _DOC.format(name=name, words=words, example=example, value=value))


def _with_elements(x: Any, data: Array) -> Any:
    """A sparse array with other elements, which may have additional leading dimensions: batch dimensions."""
    if not is_sparse(x):
        return data
    extra = data.ndim - x.data.ndim
    x = x if not extra or isinstance(x, BCOO | BCSR) else x.to_bcoo()
    (_, *indices), static = x.tree_flatten()
    return x.tree_unflatten(static, (data, *[lax.expand_dims(i, range(extra)) for i in indices]))


grad = _sparse_form("grad", "The gradient of a function", "(x**2).sum()", "BCOO(float32[3], nse=2)")
value_and_grad = _sparse_form(
    "value_and_grad",
    "The value and the gradient of a function",
    "(x**2).sum()",
    "(Array(5., dtype=float32), BCOO(float32[3], nse=2))",
)
jacfwd = _sparse_form(
    "jacfwd", "The Jacobian of a function, in forward mode,", "x @ jnp.eye(3)", "BCOO(float32[3, 3], nse=2, n_batch=1)"
)
jacrev = _sparse_form(
    "jacrev", "The Jacobian of a function, in reverse mode,", "x @ jnp.eye(3)", "BCOO(float32[3, 3], nse=2, n_batch=1)"
)
jacobian = jacrev
