"""Former APIs of JAX for programs over many devices: `xmap`, `pjit`, `sharded_jit`, `host_callback` and others."""
