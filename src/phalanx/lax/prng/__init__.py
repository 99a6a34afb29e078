"""Random bits: the Threefry hash, and the generators of the platform."""
