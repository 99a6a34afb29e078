"""Descriptions of the leaves of a checkpoint, and the document of a step that holds them.

`tree.json` of a step has a record for each leaf, the containers of the tree, and the user's own data, with a digest
over all of it. It is parsed, never executed. Builds on `core` and `sharding`; `saving` writes records, `loading` reads
them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from phalanx.checkpoint.checkpoint_errors import CheckpointError
from phalanx.checkpoint.named_leaves import NamedLeaf
from phalanx.core import (
    ArgumentError,
    ArgumentTypeError,
    ConcretizationTypeError,
    KeyDtype,
    ShardingError,
    Tracer,
    dtypes,
)
from phalanx.random.prng_implementations import Generator, generators
from phalanx.random.prng_keys import key_dtype
from phalanx.runtime import Array
from phalanx.runtime.array import deleted_error
from phalanx.sharding import AbstractMesh, NamedSharding, PartitionSpec

FORMAT, VERSION = "phalanx.checkpoint", 1
_LARGEST_CHUNK, _SMALLEST_CHUNK = 64 << 20, 1 << 20
_PYTHON_TYPES: dict[str, type] = {t.__name__: t for t in (bool, int, float, complex, str, bytes)}
_DTYPES = {dtype.name: dtype for dtype in dtypes.supported}


@dataclass(frozen=True)
class LeafMetadata:
    """The description of one leaf of a checkpoint, without its elements.

    Args:
      shape: the shape of an array; `()` for a Python value.
      dtype: the dtype of an array, or the type of a Python value.
      sharding: the sharding that the array had, over an `AbstractMesh`; None if it was on one device or on the host.
      value: the value, if it is a Python value.
      variable: the name of the type of the `nnx.Variable` that contained it, or None.
      variable_metadata: those metadata of the variable that JSON can represent.
      chunk: the shape of the parts in which the elements are stored.

    Examples:
      >>> LeafMetadata((3, 4), np.dtype(np.float32)).nbytes
      48
    """

    shape: tuple[int, ...]
    dtype: Any
    sharding: NamedSharding | None = None
    value: Any = None
    variable: str | None = None
    variable_metadata: Mapping[str, Any] = field(default_factory=dict)
    chunk: tuple[int, ...] = field(default=(), repr=False)

    @property
    def is_array(self) -> bool:
        """Whether the leaf is an array, not a Python value."""
        return not isinstance(self.dtype, type)

    @property
    def is_key(self) -> bool:
        """Whether the leaf is an array of random keys."""
        return isinstance(self.dtype, KeyDtype)

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize if self.is_array else 0

    @property
    def words_shape(self) -> tuple[int, ...]:
        """The shape in which the elements are stored: random keys are stored as their words."""
        return self.shape + _key_shape(self.dtype)

    @property
    def words_dtype(self) -> np.dtype:
        """The dtype of the elements, or that of the words of random keys."""
        return self.dtype.base_dtype if self.is_key else self.dtype

    def describe(self) -> str:
        """The type in the notation of jaxprs, such as `float32[3,4]`, or the Python type."""
        if not self.is_array:
            return f"a Python {self.dtype.__name__}"
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def describe_fully(self) -> str:
        """The type, with the value of a Python value or the sharding of an array."""
        if not self.is_array:
            return f"{self.describe()}, {_write_python(self.value)!r}"
        if self.sharding is None:
            return self.describe()
        return f"{self.describe()} with {self.sharding.spec} over {dict(self.sharding.mesh.shape)}"


def _key_shape(dtype: Any) -> tuple[int, ...]:
    """The shape of the words of a random key; () for other dtypes."""
    return dtype.key_shape if isinstance(dtype, KeyDtype) else ()


def choose_chunk(shard_shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Choose the chunks of an array: its shards, divided along leading dimensions until they are small enough.

    Args:
      shard_shape: the shape of the largest shard.
      itemsize: the size of an element in bytes.

    Returns:
      The shape of a chunk; each size divides that of the shard.
    """
    # Chunks are rows of the shard where possible, so that reading a part of the array reads few bytes beside it.
    chunk = [max(1, size) for size in shard_shape]
    for dim, size in enumerate(chunk):
        below = math.prod(chunk[dim + 1 :]) * itemsize
        if size * below <= _LARGEST_CHUNK:
            break
        fitting = [d for d in _divisors(size) if _SMALLEST_CHUNK <= d * below <= _LARGEST_CHUNK]
        chunk[dim] = max(fitting, default=1 if below >= _SMALLEST_CHUNK else size)
    return tuple(chunk)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in small]


def describe_leaf(leaf: NamedLeaf, where: str) -> LeafMetadata:
    """Describe a leaf that is to be saved.

    Args:
      leaf: the leaf.
      where: the operation and argument, for errors.

    Raises:
      ArgumentTypeError: it is not a value that a checkpoint can hold.
      ArgumentError: a key above it is no Unicode text.
      ConcretizationTypeError: it is a traced value.
      DeletedArrayError: it was deleted or donated.
      ShardingError: it is unreduced.
    """
    value = leaf.elements
    if not leaf.name.isascii() and any("\ud800" <= c <= "\udfff" for c in leaf.name):
        raise ArgumentError(
            f"{where}, leaf {leaf.name!r}",
            expected="keys that can be written as UTF-8",
            got="a key with half of a surrogate pair",
            fix="rename the key; os.fsencode(key).decode('utf-8', 'replace') is a text",
        )
    if isinstance(value, Tracer):
        raise ConcretizationTypeError(
            f"{where}, leaf {leaf.name!r}",
            expected="a value that is known",
            got=f"the traced value {value}",
            fix="save outside of functions that jit, grad or another transformation traces",
        )
    about: dict[str, Any] = {}
    if leaf.variable is not None:
        about = {"variable": type(leaf.variable).__name__, "variable_metadata": _keep_json(leaf.variable)}
    if type(value) in _PYTHON_TYPES.values():
        # By exact type: a subclass, such as an enum, would be loaded as another type.
        return LeafMetadata((), type(value), value=value, **about)
    if isinstance(value, Array):
        if value.is_deleted():
            raise deleted_error(value, f"{where}, leaf {leaf.name!r}")
        if value.sharding.unreduced_over:
            raise ShardingError(
                f"{where}, leaf {leaf.name!r}",
                expected="an array that is not unreduced",
                got=f"{value.aval.str_short()} with {value.sharding}",
                fix="reshard it to a spec without unreduced axes: phalanx.reshard(x, P())",
            )
        chunk = choose_chunk(value.sharding.shard_shape(value.shape), value.dtype.itemsize)
        # The devices belong to this run; axis names and sizes describe how the array was split.
        sharding = _without_devices(value.sharding)
        return LeafMetadata(value.shape, value.dtype, sharding, chunk=chunk + _key_shape(value.dtype), **about)
    is_host_array = isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, np.ma.MaskedArray)
    if is_host_array and value.dtype in dtypes.supported:
        return LeafMetadata(value.shape, value.dtype, chunk=choose_chunk(value.shape, value.dtype.itemsize), **about)
    raise ArgumentTypeError(
        f"{where}, leaf {leaf.name!r}",
        expected="an array, a random key, a Python number, a string or bytes",
        got=f"{value.dtype!r} array" if type(value) is np.ndarray else f"{type(value).__name__} {value!r:.80}",
        fix="leave it out of the tree, or convert it to one of these",
    )


def _keep_json(variable: Any) -> dict[str, Any]:
    kept = {}
    for name, value in variable.get_metadata().items():
        with suppress(ArgumentTypeError):  # Hooks and other objects are part of the program, not of its state.
            kept[name] = copy_json(value, name)
    return kept


def _without_devices(sharding: Any) -> NamedSharding | None:
    if not isinstance(sharding, NamedSharding) or sharding.mesh.size == 1:
        return None
    return NamedSharding(AbstractMesh(sharding.mesh.axis_sizes, sharding.mesh.axis_names), sharding.spec)


# --- the document ---


@dataclass(frozen=True)
class StepDocument:
    """The contents of `tree.json`: the leaves by name, the containers, and the user's data."""

    leaves: dict[str, LeafMetadata]
    structure: Any
    user: Any

    def to_json(self) -> str:
        """Format the document."""
        leaves = {name: _write_record(leaf) for name, leaf in self.leaves.items()}
        body = json.dumps({"leaves": leaves, "structure": self.structure, "metadata": self.user})
        return f'{{"format": "{FORMAT}", "version": {VERSION}, "blake2b": "{_digest_text(body)}", {body[1:]}'


def read_document(text: bytes, where: str) -> StepDocument:
    """Parse a document.

    Args:
      text: the contents of `tree.json`.
      where: the operation and the file, for errors.

    Raises:
      CheckpointError: the file is damaged, of another version, or no document.
    """
    try:
        data = json.loads(text)
        found, version, stored = data.pop("format"), data.pop("version"), data.pop("blake2b")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged_error(where, "no such document") from None
    if found != FORMAT or version != VERSION:
        raise CheckpointError(
            where,
            expected=f"{FORMAT} of version {VERSION}",
            got=f"{found} of version {version}",
            fix="read it with the version of Phalanx that wrote it",
        )
    # The data are written again for the digest, so the spaces between them do not matter.
    if stored != digest(data):
        raise _damaged_error(where, "contents that do not match their digest")
    leaves = {name: _read_record(name, leaf, where) for name, leaf in data["leaves"].items()}
    return StepDocument(leaves, data["structure"], data["metadata"])


def _damaged_error(where: str, got: str) -> CheckpointError:
    return CheckpointError(
        where,
        expected="a complete description of a checkpoint",
        got=got,
        fix="the file is damaged: load another step, or restore the file from a copy",
    )


def digest(body: Any) -> str:
    """A text that is the same for the same JSON data."""
    return _digest_text(json.dumps(body))


def _digest_text(text: str) -> str:
    import hashlib

    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def copy_json(data: Any, where: str) -> Any:
    """Copy JSON data, as a file would return it.

    Args:
      data: the data.
      where: the operation and argument, for errors.

    Returns:
      The copy, in which tuples are lists.

    Raises:
      ArgumentTypeError: a part of it is no JSON data; the error has its path.
    """
    try:
        return _copy_json(data, where)
    except RecursionError:
        raise _no_json_error(where, "data that contains itself, or is nested too deeply") from None


def _copy_json(data: Any, where: str) -> Any:
    if isinstance(data, dict):
        for key in data:
            if type(key) is not str:
                raise _no_json_error(where, f"the key {key!r:.80}, which is no str")
        return {key: _copy_json(each, f"{where}[{key!r}]") for key, each in data.items()}
    if isinstance(data, (list, tuple)):
        return [_copy_json(each, f"{where}[{i}]") for i, each in enumerate(data)]
    try:
        return json.loads(json.dumps(data))
    except (TypeError, ValueError) as error:
        raise _no_json_error(where, str(error)) from None


def _no_json_error(where: str, got: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        where, expected="data that JSON can represent", got=got, fix="convert arrays by float(x), and keys by str(key)"
    )


def _write_record(leaf: LeafMetadata) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if not leaf.is_array:
        record |= {"python": leaf.dtype.__name__, "value": _write_python(leaf.value)}
    else:
        name = f"key<{leaf.dtype.impl.name}>" if leaf.is_key else leaf.dtype.name
        record |= {"shape": list(leaf.shape), "dtype": name, "chunk": list(leaf.chunk)}
    if leaf.sharding is not None:
        mesh = leaf.sharding.mesh
        spec = [list(axes) if isinstance(axes, tuple) else axes for axes in leaf.sharding.spec]
        record["sharding"] = {"mesh": list(zip(mesh.axis_names, mesh.axis_sizes)), "spec": spec}
    if leaf.variable is not None:
        record |= {"variable": leaf.variable, "variable_metadata": leaf.variable_metadata}
    return record


def _write_python(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return value.hex()
        case int() if value.bit_length() > 64:
            return hex(value)  # Python limits the number of decimal digits.
    return repr(value)  # The decimal digits of a float are exact; JSON has no infinities and complex numbers.


def _read_record(name: str, record: dict[str, Any], where: str) -> LeafMetadata:
    about = {"variable": record.get("variable"), "variable_metadata": record.get("variable_metadata", {})}
    if "python" in record:
        kind = _PYTHON_TYPES[record["python"]]
        return LeafMetadata((), kind, value=_read_python(kind, record["value"]), **about)
    sharding = None
    if "sharding" in record:
        axis_names, sizes = zip(*record["sharding"]["mesh"])
        spec = PartitionSpec(*[tuple(axes) if isinstance(axes, list) else axes for axes in record["sharding"]["spec"]])
        sharding = NamedSharding(AbstractMesh(sizes, axis_names), spec)
    shape, chunk = tuple(record["shape"]), tuple(record["chunk"])
    dtype = _read_dtype(record["dtype"], chunk[len(shape) :], f"{where}, leaf {name!r}")
    return LeafMetadata(shape, dtype, sharding, chunk=chunk, **about)


def _read_python(kind: type, text: str) -> Any:
    # bool("False") is true.
    if kind is bool:
        return text == "True"
    if kind is int:
        return int(text, 0)
    return bytes.fromhex(text) if kind is bytes else kind(text)


def _read_dtype(name: str, key_shape: tuple[int, ...], where: str) -> Any:
    if name.startswith("key<"):
        return key_dtype(generators.get(name[4:-1]) or _unknown_generator(name[4:-1], key_shape, where))
    if name in _DTYPES:
        return _DTYPES[name]
    raise CheckpointError(
        where, expected="a dtype of this version of phalanx", got=name, fix="load it with the version that wrote it"
    )


def _unknown_generator(name: str, key_shape: tuple[int, ...], where: str) -> Generator:
    """A generator of the user, whose keys have words only; `like` has the generator itself."""

    def fail(*_: Any) -> NoReturn:
        raise CheckpointError(
            where,
            expected=f"keys of the generator {name!r} in like",
            got="none, so that their words alone are known",
            fix="pass like=... with a key that random.key(0, impl=generator) makes",
        )

    return Generator(name, name, key_shape, fail, fail, fail, fail)
