"""Arrays from buffers, strings and `.npy` files, and back. NumPy parses and writes the data.

`fromfile` and `fromiter` read external state, which tracing cannot express: they raise an error with the substitute.
"""

from __future__ import annotations

import os
from typing import IO, Any

import numpy as np

from phalanx.core import ArgumentError
from phalanx.numpy.creation.array_creation import array
from phalanx.typing import Array, ArrayLike, DTypeLike


def frombuffer(
    buffer: bytes | bytearray | memoryview | np.ndarray,
    dtype: DTypeLike | None = float,
    count: int = -1,
    offset: int = 0,
) -> Array:
    """Interpret the bytes of a buffer as a vector.

    Args:
      buffer: an object with the buffer protocol, such as bytes.
      dtype: dtype of the elements.
      count: number of elements to read; -1 for all.
      offset: position of the first element, in bytes.

    Returns:
      A vector.

    Examples:
      >>> jnp.frombuffer(b"ab", "uint8").tolist()
      [97, 98]
    """
    return array(np.frombuffer(buffer, np.dtype(dtype), count, offset))


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Not supported: read the file with NumPy and convert the result.

    Args:
      args, kwargs: ignored.

    Returns:
      Nothing: it always raises.

    Raises:
      ArgumentError: always, since the result would depend on the file's content.

    Examples:
      >>> import numpy as np
      >>> jnp.asarray(np.arange(2)).tolist()
      [0, 1]
    """
    raise ArgumentError(
        "fromfile",
        expected="no side effects",
        got="a file",
        fix="read it with NumPy: phalanx.numpy.asarray(numpy.fromfile(...))",
    )


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Not supported: collect the iterator into a list and convert that.

    Args:
      args, kwargs: ignored.

    Returns:
      Nothing: it always raises.

    Raises:
      ArgumentError: always, since iterators have side effects.

    Examples:
      >>> jnp.asarray(list(range(2))).tolist()
      [0, 1]
    """
    raise ArgumentError(
        "fromiter",
        expected="no side effects",
        got="an iterator",
        fix="collect the items first: phalanx.numpy.asarray(list(iterator))",
    )


def fromstring(string: str, dtype: DTypeLike | None = float, count: int = -1, *, sep: str) -> Array:
    """A vector parsed from numbers in a string.

    Args:
      string: numbers separated by `sep`.
      dtype: dtype of the numbers.
      count: number of items to read; -1 for all.
      sep: the separator.

    Returns:
      A vector.

    Examples:
      >>> jnp.fromstring("1 2 3", "int32", sep=" ").tolist()
      [1, 2, 3]
    """
    return array(np.fromstring(string, np.dtype(dtype), count, sep=sep))


def load(*args: Any, **kwargs: Any) -> Any:
    """Load an array from a `.npy` or `.npz` file.

    Args:
      args, kwargs: the arguments of `numpy.load`; the first is a file name or a binary file.

    Returns:
      The array; for a `.npz` file, NumPy's mapping from names to NumPy arrays. An array of Python objects, which NumPy
      reads with `allow_pickle=True` only, stays a NumPy array. Reading a pickle executes code from the file.

    Raises:
      ValueError: the file contains pickled objects, and `allow_pickle` is False.

    Examples:
      >>> import io
      >>> file = io.BytesIO()
      >>> jnp.save(file, jnp.arange(2))
      >>> _ = file.seek(0)
      >>> jnp.load(file).tolist()
      [0, 1]
    """
    out = np.load(*args, **kwargs)
    if isinstance(out, np.ndarray) and out.dtype == "V2":  # as which NumPy's format stores bfloat16
        out = out.view("bfloat16")
    return array(out) if isinstance(out, np.ndarray) and not out.dtype.hasobject else out


def save(file: str | os.PathLike[str] | IO[bytes], arr: ArrayLike, allow_pickle: bool = False) -> None:
    """Save an array to a `.npy` file.

    Args:
      file: the name of a file, or a binary file.
      arr: an array.
      allow_pickle: accepted for compatibility; nothing is pickled.

    Returns:
      None.

    Examples:
      >>> import io
      >>> jnp.save(io.BytesIO(), jnp.arange(2))
    """
    np.save(file, np.asarray(arr), allow_pickle=False)


def savez(file: str | os.PathLike[str] | IO[bytes], *args: Any, **kwargs: Any) -> None:
    """Save several arrays to a `.npz` file.

    Args:
      file: the name of a file, or a binary file.
      args: arrays, saved as arr_0, arr_1 and so on.
      kwargs: arrays, saved under their keywords.

    Returns:
      None.

    Examples:
      >>> import io
      >>> jnp.savez(io.BytesIO(), x=jnp.arange(2))
    """
    np.savez(file, *[np.asarray(x) for x in args], **{k: np.asarray(v) for k, v in kwargs.items()})
