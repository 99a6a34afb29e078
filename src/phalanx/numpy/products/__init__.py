"""Products of arrays: matrix products, `einsum` and convolution."""
