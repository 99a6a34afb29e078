"""Error messages as tests compare them."""

import re


def without_positions(error):
    """The text of an error without the source positions of functions: `f at file.py:7` is `f`."""
    return re.sub(r" at [^ ,]+\.py:\d+", "", str(error))
