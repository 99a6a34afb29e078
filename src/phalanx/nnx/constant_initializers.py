"""`zeros_init` and `ones_init`, which only `nnx.initializers` has beside the names of `nn.initializers`."""

from __future__ import annotations

from phalanx.nn import initializers


def zeros_init() -> initializers.Initializer:
    """Make an initializer of zeros.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.initializers.zeros_init()(None, (2,)).tolist()
      [0.0, 0.0]
    """
    return initializers.zeros


def ones_init() -> initializers.Initializer:
    """Make an initializer of ones.

    Returns:
      The initializer.

    Examples:
      >>> from phalanx import nnx
      >>> nnx.initializers.ones_init()(None, (2,)).tolist()
      [1.0, 1.0]
    """
    return initializers.ones
