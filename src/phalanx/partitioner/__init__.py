"""Lowering for several devices: per-shard rules, and workarounds for defects of XLA's SPMD partitioner.

The definitions of operations in `phalanx.lax` do not depend on the number of devices. Whatever a program over a mesh
needs besides is in this package: `partitioned_lowering` has the rule of each primitive, `workarounds` the table of
defects that these rules avoid. `phalanx.runtime.lowering` imports the package, through a hook, when the first program
for more than one device is lowered.
"""
