"""Trees of arrays as bytes in the msgpack format of Flax, which contains data only, never code.

Arrays are msgpack extensions of type 1 that hold the shape, the name of the dtype and the bytes; Python's complex
numbers have type 2, NumPy's scalars type 3. An array above `MAX_CHUNK_SIZE` is a dictionary of parts. Users find these
functions in `phalanx.flax.serialization`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from phalanx.core import DTypeError, MissingExtraError
from phalanx.flax.state_dicts import from_state_dict, to_state_dict
from phalanx.runtime.array import Array
from phalanx.typing import PyTree

MAX_CHUNK_SIZE = 2**30  # bytes; msgpack limits an extension to 4 GiB
_ARRAY, _COMPLEX, _SCALAR = 1, 2, 3
_CHUNKED = "__msgpack_chunked_array__"


@functools.cache
def _import_msgpack() -> Any:
    if find_spec("msgpack") is None:
        raise MissingExtraError(
            "phalanx.flax.serialization",
            expected="the package msgpack, which encodes the bytes",
            got="an environment without it",
            fix="pip install msgpack",
        )
    return importlib.import_module("msgpack")


def _encode_array(x: np.ndarray) -> bytes:
    if x.dtype.hasobject or x.dtype.fields is not None:
        raise DTypeError(
            "msgpack_serialize",
            expected="arrays of numbers",
            got=str(x.dtype),
            fix="convert them to arrays of one number type each",
        )
    return _import_msgpack().packb((x.shape, x.dtype.name, x.tobytes("C")), use_bin_type=True)


def _decode_array(data: bytes) -> np.ndarray:
    # Text is kept as bytes here, since the content of the array is no text.
    shape, dtype, content = _import_msgpack().unpackb(data, raw=True)
    return np.frombuffer(content, dtype=np.dtype(dtype.decode())).reshape(shape)


def _encode(x: Any) -> Any:
    ext = _import_msgpack().ExtType
    if isinstance(x, np.ndarray | Array):
        return ext(_ARRAY, _encode_array(np.asarray(x)))
    if isinstance(x, np.generic):
        return ext(_SCALAR, _encode_array(np.asarray(x)))
    if isinstance(x, complex):
        return ext(_COMPLEX, _import_msgpack().packb((x.real, x.imag)))
    return x


def _decode(code: int, data: bytes) -> Any:
    if code == _ARRAY:
        return _decode_array(data)
    if code == _SCALAR:
        return _decode_array(data)[()]
    if code == _COMPLEX:
        return complex(*_import_msgpack().unpackb(data))
    return _import_msgpack().ExtType(code, data)


def _split_large_arrays(x: Any) -> Any:
    """Copy a tree, with large arrays as dictionaries of parts."""
    if isinstance(x, Mapping):
        return {key: _split_large_arrays(value) for key, value in x.items()}
    if type(x) in (list, tuple):
        return type(x)(map(_split_large_arrays, x))
    if not isinstance(x, np.ndarray | Array) or x.size * x.dtype.itemsize <= MAX_CHUNK_SIZE:
        return x
    flat, step = np.asarray(x).reshape(-1), max(1, MAX_CHUNK_SIZE // x.dtype.itemsize)
    chunks = [flat[i : i + step] for i in range(0, flat.size, step)]
    name = lambda elements: {str(i): element for i, element in enumerate(elements)}
    return {_CHUNKED: True, "shape": name(x.shape), "chunks": name(chunks)}


def _join_chunks(x: Any) -> Any:
    """The inverse of `_split_large_arrays`."""
    if isinstance(x, list):
        return [_join_chunks(value) for value in x]
    if not isinstance(x, dict):
        return x
    if _CHUNKED not in x:
        return {key: _join_chunks(value) for key, value in x.items()}
    shape, chunks = ([part[str(i)] for i in range(len(part))] for part in (x["shape"], x["chunks"]))
    return np.concatenate(chunks).reshape(shape)


def msgpack_serialize(pytree: PyTree, in_place: bool = False) -> bytes:
    """Encode nested dictionaries and lists of arrays and Python values.

    Args:
      pytree: the tree.
      in_place: accepted for compatibility with Flax; the tree is never changed.

    Returns:
      The bytes.

    Raises:
      DTypeError: an array does not hold numbers.
      MissingExtraError: the package msgpack is not installed.
    """
    return _import_msgpack().packb(_split_large_arrays(pytree), default=_encode, strict_types=True)


def msgpack_restore(encoded_pytree: bytes) -> Any:
    """Decode the result of `msgpack_serialize`.

    Args:
      encoded_pytree: the bytes.

    Returns:
      The tree, with NumPy arrays.

    Raises:
      MissingExtraError: the package msgpack is not installed.
    """
    return _join_chunks(_import_msgpack().unpackb(encoded_pytree, ext_hook=_decode, raw=False, strict_map_key=False))


def to_bytes(target: PyTree) -> bytes:
    """Encode any tree that has a state dict, such as parameters, a `TrainState`, or the state of an nnx module.

    Args:
      target: the tree.

    Returns:
      The bytes, which `from_bytes` restores.

    Raises:
      MissingExtraError: the package msgpack is not installed.
    """
    return msgpack_serialize(to_state_dict(target))


def from_bytes(target: PyTree, encoded_bytes: bytes) -> Any:
    """Return a tree with the values that `to_bytes` encoded.

    Args:
      target: a tree of the structure that was encoded. Its values are not used.
      encoded_bytes: the bytes.

    Returns:
      A copy of the tree, with NumPy arrays.

    Raises:
      TreeError: the bytes do not fit the tree.
      MissingExtraError: the package msgpack is not installed.
    """
    return from_state_dict(target, msgpack_restore(encoded_bytes))
