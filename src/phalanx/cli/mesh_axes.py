"""The option `--mesh` of the command line: names and sizes of the axes of a mesh. `export` and `plan` read it."""

from __future__ import annotations

import re
from typing import Final

from phalanx.core import ArgumentError

_AXIS: Final = re.compile(r"(\w+)=([1-9]\d{0,8})")
_SIZES: Final = re.compile(r"[1-9]\d{0,8}(x[1-9]\d{0,8})?")


def parse_mesh_axes(text: str) -> dict[str, int]:
    """Parse names and sizes of axes.

    Args:
      text: such as `"data=64,model=2"`. One size or two without names, as in `"64x2"`, are those of "data" and "model".

    Returns:
      The size of each axis, in the order of the text.

    Raises:
      ArgumentError: the text has another form, a size is not positive, or an axis occurs twice.

    Examples:
      >>> parse_mesh_axes("data=64,model=2")
      {'data': 64, 'model': 2}
    """
    if _SIZES.fullmatch(text):
        return dict(zip(("data", "model"), map(int, text.split("x")), strict=False))
    axes = [_AXIS.fullmatch(axis) for axis in text.split(",")]
    sizes = {axis[1]: int(axis[2]) for axis in axes if axis is not None}
    if len(sizes) < len(axes):
        raise ArgumentError(
            "--mesh",
            expected="each axis once, with its size",
            got=repr(text),
            fix="write it as in --mesh data=64,model=2",
        )
    return sizes
