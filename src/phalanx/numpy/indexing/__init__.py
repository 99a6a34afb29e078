"""Indexing: reads, updates, `take` and `where`, and functions that make index arrays."""
