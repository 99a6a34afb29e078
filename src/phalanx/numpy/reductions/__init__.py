"""Reductions, cumulative operations and statistics over axes."""
