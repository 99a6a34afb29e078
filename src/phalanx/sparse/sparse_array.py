"""`JAXSparse`, the base class of the sparse formats: their common attributes and operators.

Operators are the functions of `numpy` transformed by `sparsify`, which sets `JAXSparse.apply` when it is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from phalanx import numpy as jnp
from phalanx.core import ArgumentTypeError, Tracer
from phalanx.runtime.eager_jit import eager_jit
from phalanx.typing import Array, Axis, DTypeLike


def _operator(function: Callable, reflected: bool = False) -> Callable:
    """An operator method that applies a function of `numpy` to sparse operands."""

    @eager_jit
    def apply(*operands: Any) -> Any:
        return JAXSparse.apply(function, *operands)

    def method(self: JAXSparse, other: Any) -> Any:
        return apply(other, self) if reflected else apply(self, other)

    return method


class JAXSparse:
    """Base of the sparse formats `BCOO`, `BCSR`, `COO`, `CSR` and `CSC`.

    Attributes:
      data: the stored elements.
      shape: the shape of the array.
      nse: the number of stored elements of each element of the batch.

    Examples:
      >>> import phalanx.numpy as jnp
      >>> from phalanx.experimental import sparse
      >>> isinstance(sparse.BCOO.fromdense(jnp.eye(2)), sparse.JAXSparse)
      True
    """

    data: Array
    shape: Any
    nse: Any

    # Applies a function of dense arrays to sparse ones; `sparsify` provides it.
    apply: ClassVar[Callable]

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100  # NumPy arrays leave operators to the sparse operand.
    __array_ufunc__ = None

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.data.dtype

    @property
    def size(self) -> int:
        """The number of elements, stored or not."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    def todense(self) -> Array:
        """The array in dense form."""
        raise NotImplementedError  # defined by each format

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The array with its dimensions permuted, or reversed without `axes`."""
        raise NotImplementedError  # defined by each format

    def to_bcoo(self) -> Any:
        """The array as a `BCOO`."""
        raise NotImplementedError  # defined by each format

    def tree_flatten(self) -> tuple:
        """The buffers, and the static description of the array."""
        raise NotImplementedError  # defined by each format

    def block_until_ready(self) -> JAXSparse:
        """Wait until the buffers have been computed, and return the array."""
        for buffer in self.tree_flatten()[0]:
            buffer.block_until_ready()
        return self

    def sum(self, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Any:
        """The sum over the given dimensions, or over all of them: sparse, or a dense scalar."""
        return self.apply(lambda x: x.sum(axis, dtype=dtype, keepdims=keepdims), self)

    def astype(self, dtype: DTypeLike) -> Any:
        """The array with another element type."""
        return self.apply(lambda x: x.astype(dtype), self)

    def reshape(self, *shape: Any) -> Any:
        """The array with another shape, which must not merge batch, sparse and dense dimensions with each other."""
        return self.apply(lambda x: x.reshape(*shape), self)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, index: Any) -> Any:
        if any(isinstance(i, JAXSparse) for i in (index if isinstance(index, tuple) else (index,))):
            raise ArgumentTypeError(
                f"{type(self).__name__}[...], an index",
                expected="integers, slices, None or dense arrays",
                got="a sparse array",
                fix="convert the index with sparse.todense(index)",
            )
        return self.apply(lambda x: x[index], self)

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            counts = [f"nse={self.nse}"]
            counts += [f"{n}={getattr(self, n)}" for n in ("n_batch", "n_dense") if getattr(self, n, 0)]
            text = f"{name}({self.dtype}{list(self.shape)}, {', '.join(counts)})"
        except Exception:  # A node of a pytree may hold anything in place of its buffers.
            return f"{name}(<invalid>)"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text

    def __abs__(self) -> Any:
        return self.apply(jnp.abs, self)

    def __neg__(self) -> Any:
        return self.apply(jnp.negative, self)

    def __pos__(self) -> Any:
        return self.apply(jnp.positive, self)

    def __pow__(self, exponent: Any) -> Any:
        return self.apply(lambda x: jnp.power(x, exponent), self)  # The exponent stays a Python number.

    __add__, __radd__ = _operator(jnp.add), _operator(jnp.add, reflected=True)
    __sub__, __rsub__ = _operator(jnp.subtract), _operator(jnp.subtract, reflected=True)
    __mul__, __rmul__ = _operator(jnp.multiply), _operator(jnp.multiply, reflected=True)
    __matmul__, __rmatmul__ = _operator(jnp.matmul), _operator(jnp.matmul, reflected=True)
    __truediv__, __rtruediv__ = _operator(jnp.divide), _operator(jnp.divide, reflected=True)
    __rpow__ = _operator(jnp.power, reflected=True)
    __eq__ = _operator(jnp.equal)  # type: ignore[assignment]
    __ne__ = _operator(jnp.not_equal)  # type: ignore[assignment]
    __lt__, __le__ = _operator(jnp.less), _operator(jnp.less_equal)
    __gt__, __ge__ = _operator(jnp.greater), _operator(jnp.greater_equal)
