"""Reductions over dimensions, cumulative operations, sorting and `top_k`."""
