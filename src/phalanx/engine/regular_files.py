"""Reads of files of unknown origin: a pipe in their place would block the reader, a device would have no end."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Final

READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # flags of `os.open`


def open_regular_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read its bytes.

    Raises:
      OSError: it cannot be opened, or is a folder, pipe, socket or device.
    """
    file = os.open(path, READ)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
    return os.fdopen(file, "rb")
