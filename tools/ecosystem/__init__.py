"""Libraries of the field, run on Phalanx and on JAX: `make ecosystem`."""
