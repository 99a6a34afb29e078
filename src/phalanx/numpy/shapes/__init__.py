"""Functions that change the shape or the order of elements."""
