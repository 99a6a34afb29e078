"""Explicit sharding of operations: `reshard`, `auto_axes`, `out_sharding`, and the inspection of shardings."""
