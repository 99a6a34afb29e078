"""Arrays in files: one zarr (version 3) array for each leaf, in an OCDBT database, through tensorstore.

Each process writes the shards that it owns into a separate database, `process_<n>/`, and the databases are merged
when the step is committed. The chunks of an array divide its shards, so that no two processes write to one chunk and a
device reads its part only. Every chunk ends with its CRC-32C. Reading takes the shape and dtype from the document of
the step, not from the database, and treats an absent chunk as damage. Called by `saving` and `loading`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from phalanx.checkpoint.leaf_records import LeafMetadata
from phalanx.core import MissingExtraError
from phalanx.engine.cache import memoize

# The dtypes that every zarr implementation with bfloat16 knows. The others have elements of one byte, and are stored as
# bytes.
_ZARR_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16 complex64 "
    "complex128".split()
)


def check_tensorstore(where: str) -> None:
    """Check that tensorstore is installed, without the third of a second that the import takes.

    Raises:
      MissingExtraError: it is not.
    """
    if importlib.util.find_spec("tensorstore") is None:
        raise MissingExtraError(
            where,
            expected="the package tensorstore, which reads and writes the files",
            got="an installation without it",
            fix="pip install 'phalanx[checkpoint]'",
        )


def import_tensorstore(where: str) -> Any:
    """Import tensorstore.

    Raises:
      MissingExtraError: it is not installed.
    """
    check_tensorstore(where)
    import tensorstore

    return tensorstore


@memoize("checkpoint.tensorstore_context", 1)
def _context() -> Any:
    """The threads of all reads and writes. Nothing is cached: each chunk is read once."""
    return import_tensorstore("checkpoint").Context({"cache_pool": {"total_bytes_limit": 0}})


def to_stored(elements: np.ndarray) -> np.ndarray:
    """View elements in the dtype in which they are stored."""
    return elements if elements.dtype.name in _ZARR_DTYPES else elements.view(np.uint8)


def from_stored(elements: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """View stored elements in their own dtype."""
    return elements if elements.dtype == dtype else elements.view(dtype)


def _spec(database: str, name: str, leaf: LeafMetadata) -> dict[str, Any]:
    dtype = leaf.words_dtype.name
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "ocdbt", "base": database, "path": f"arrays/{name}/"},
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
        "metadata": {
            "data_type": dtype if dtype in _ZARR_DTYPES else "uint8",
            "shape": list(leaf.words_shape),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(leaf.chunk)}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        },
    }


def create_array(database: str, name: str, leaf: LeafMetadata) -> Any:
    """Create an array in a database, without elements yet.

    Args:
      database: the URL of the database, which is made if there is none.
      name: the name of the leaf.
      leaf: its description, with the chunk.

    Returns:
      A tensorstore future of the array.
    """
    return import_tensorstore("checkpoint.save").open(_spec(database, name, leaf), create=True, context=_context())


def open_array(database: str, name: str, leaf: LeafMetadata) -> Any:
    """Open an array of a database for reading; a tensorstore future of the array, as `create_array`."""
    spec = {**_spec(database, name, leaf), "assume_metadata": True}
    return import_tensorstore("checkpoint.load").open(spec, open=True, read=True, context=_context())


def open_foreign_array(driver: str, kvstore: dict[str, Any]) -> Any:
    """Open an array that another library wrote, for reading; shape and dtype come from the array itself."""
    spec = {"driver": driver, "kvstore": kvstore}
    return import_tensorstore("checkpoint.load").open(spec, open=True, read=True, context=_context())


def open_store(store: str | dict[str, Any]) -> Any:
    """Open a key-value store, by its URL or its specification.

    Raises:
      ValueError: tensorstore does not know the URL.
    """
    return import_tensorstore("checkpoint").KvStore.open(store, context=_context()).result()


def merge_databases(target: str, sources: Sequence[str]) -> None:
    """Make all arrays of some databases readable from one; the data files stay where they are.

    Args:
      target: the URL of the folder that contains the folders of the databases.
      sources: the URLs of the databases.
    """
    whole = open_store({"driver": "ocdbt", "base": target})
    transaction = import_tensorstore("checkpoint.save").Transaction(atomic=True)
    for source in sources:
        part = open_store({"driver": "ocdbt", "base": source})
        part.experimental_copy_range_to(whole.with_transaction(transaction)).result()
    transaction.commit_async().result()
