"""Arrays from and to files, buffers and texts.

Built on `creation`, which takes what is array-like already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phalanx.core.errors import ArgumentError
from phalanx.numpy.creation import array


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """An array of the bytes of a buffer.

    Args:
      buffer: an object with the buffer protocol, such as bytes.
      dtype: how to read it.
      count: how many elements to read, -1 for all.
      offset: where to begin, in bytes.

    Returns:
      A vector.

    Examples:
      >>> jnp.frombuffer(b"ab", "uint8").tolist()
      [97, 98]
    """
    return array(np.frombuffer(buffer, np.dtype(dtype), count, offset))


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Refused: read the file with NumPy and convert it.

    Args:
      args, kwargs: not looked at.

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
        "fromfile", expected="no side effects", got="a file", mend="use phalanx.numpy.asarray(numpy.fromfile(...))"
    )


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Refused: make a NumPy array of the iterator and convert it.

    Args:
      args, kwargs: not looked at.

    Returns:
      Nothing: it always raises.

    Raises:
      ArgumentError: always, since iterators have side effects.

    Examples:
      >>> jnp.asarray(list(range(2))).tolist()
      [0, 1]
    """
    raise ArgumentError(
        "fromiter", expected="no side effects", got="an iterator", mend="use phalanx.numpy.asarray(list(iterator))"
    )


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """An array of the numbers written in a text.

    Args:
      string: numbers with a separator between them.
      dtype: of the numbers.
      count: how many to read, -1 for all.
      sep: the separator.

    Returns:
      A vector.

    Examples:
      >>> jnp.fromstring("1 2 3", "int32", sep=" ").tolist()
      [1, 2, 3]
    """
    return array(np.fromstring(string, np.dtype(dtype), count, sep=sep))


def load(*args: Any, **kwargs: Any) -> Any:
    """Read an array from a `.npy` or `.npz` file; pickled objects are refused.

    Args:
      args, kwargs: what `numpy.load` takes: the name of a file, or a binary file, first.

    Returns:
      The array; of a `.npz` file, NumPy's mapping of names to NumPy arrays.

    Raises:
      ArgumentError: `allow_pickle` is given.

    Examples:
      >>> import io
      >>> file = io.BytesIO()
      >>> jnp.save(file, jnp.arange(2))
      >>> _ = file.seek(0)
      >>> jnp.load(file).tolist()
      [0, 1]
    """
    if kwargs.pop("allow_pickle", False):
        raise ArgumentError(
            "load, argument allow_pickle", expected="False, since reading a pickle executes it", got=True,
            mend="save the arrays as numbers",
        )  # fmt: skip
    out = np.load(*args, allow_pickle=False, **kwargs)
    return array(out) if isinstance(out, np.ndarray) else out


def save(file: Any, arr: Any, allow_pickle: bool = False) -> None:
    """Write an array to a `.npy` file.

    Args:
      file: the name of a file, or a binary file.
      arr: an array.
      allow_pickle: a permission; nothing is pickled.

    Returns:
      None.

    Examples:
      >>> import io
      >>> jnp.save(io.BytesIO(), jnp.arange(2))
    """
    np.save(file, np.asarray(arr), allow_pickle=False)


def savez(file: Any, *args: Any, **kwargs: Any) -> None:
    """Write several arrays to a `.npz` file.

    Args:
      file: the name of a file, or a binary file.
      args: arrays, to be named arr_0, arr_1 and so on.
      kwargs: arrays under the names of their arguments.

    Returns:
      None.

    Examples:
      >>> import io
      >>> jnp.savez(io.BytesIO(), x=jnp.arange(2))
    """
    np.savez(file, *[np.asarray(x) for x in args], **{k: np.asarray(v) for k, v in kwargs.items()})
