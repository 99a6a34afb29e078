"""Names of resampling filters."""

import numpy as np

from phalanx import image


def test_the_cubic_filter_of_pytorch_has_two_names():
    x = np.arange(6.0, dtype="float32").reshape(2, 3)
    both = [image.resize(x, (4, 6), method, antialias=False) for method in ("cubic-pytorch", "bicubic-pytorch")]
    np.testing.assert_array_equal(*both)
