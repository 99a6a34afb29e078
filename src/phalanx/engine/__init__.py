"""The only room that imports jaxlib: clients, devices, buffers, programs in MLIR, compiling and executing."""
