"""Collectives: operations among the members of named axes, such as `psum`, `all_gather` and `ppermute`."""
