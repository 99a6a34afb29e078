"""Threads that are inside jaxlib when Python ends.

Before Python 3.14, a thread that asks for the interpreter from then on calls `pthread_exit`, which unwinds its stack.
C++ on that stack takes this for an exception that it may catch, or drops references without holding the interpreter:
either ends the process. Python 3.14 lets such threads sleep until the process ends. So does this module, which
exchanges the function; `runtime.in_flight` calls it when Python ends.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Iterator

import numpy as np

# Entries of the ELF format (for machines with 64 bits), as loaded: see `elf(5)`.
_DYNAMIC = np.dtype([("tag", np.int64), ("value", np.uint64)])
_RELOCATION = np.dtype([("place", np.uint64), ("type", np.uint32), ("symbol", np.uint32), ("addend", np.int64)])
_SYMBOL = np.dtype([("name", np.uint32), ("rest", "V20")])
_STRINGS, _SIZE_OF_STRINGS, _SYMBOLS = 5, 10, 6  # tags, with the next ones
_RELOCATION_TABLES = ((23, 2), (7, 8))  # of functions and of data, each with the tag of its size in bytes


class _LinkMap(ctypes.Structure):
    """The head of what the dynamic linker knows of a library (`struct link_map`)."""

    _fields_ = (("base", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_size_t))


def keep_threads_at_exit() -> None:
    """Let threads sleep instead of ending when Python ends; elsewhere than on Linux, do nothing."""
    if sys.platform != "linux" or sys.version_info >= (3, 14):
        return
    libc = ctypes.CDLL(None)
    pause = ctypes.cast(libc.pause, ctypes.c_void_p).value
    for slot in _imports(b"pthread_exit"):
        page = slot & -mmap.PAGESIZE  # The linker may have made it read-only.
        if libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0:
            ctypes.c_void_p.from_address(slot).value = pause


def _imports(function: bytes) -> Iterator[int]:
    """Addresses of the pointers through which the interpreter calls a function of another library."""
    found, link, by_link_map = (ctypes.c_void_p * 4)(), ctypes.POINTER(_LinkMap)(), 2
    if not ctypes.CDLL(None).dladdr1(ctypes.pythonapi.Py_FinalizeEx, found, ctypes.byref(link), by_link_map):
        return
    library = link.contents
    size = 0
    while _read(library.dynamic + size, 1, _DYNAMIC)["tag"]:
        size += _DYNAMIC.itemsize
    entries = dict(_read(library.dynamic, size // _DYNAMIC.itemsize, _DYNAMIC).tolist())
    strings = ctypes.string_at(entries[_STRINGS], entries[_SIZE_OF_STRINGS])
    names = [match.start() for match in re.finditer(function + b"\0", strings)]
    for table, table_size in _RELOCATION_TABLES:
        if table in entries:
            relocations = _read(entries[table], entries[table_size] // _RELOCATION.itemsize, _RELOCATION)
            symbols = _read(entries[_SYMBOLS], int(relocations["symbol"].max()) + 1, _SYMBOL)
            for place in relocations["place"][np.isin(symbols["name"][relocations["symbol"]], names)].tolist():
                yield library.base + place


def _read(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Entries at an address of this process."""
    data = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(data), dtype)
