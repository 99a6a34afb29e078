"""Layers: linear maps, convolutions, normalizations, attention, recurrent cells, dropout, low-rank adaptation, pooling.

Each layer is a `Module` whose constructor creates its parameters with keys from `rngs`. Names and arguments are the
same as in Flax NNX.
"""
