"""Reductions over sliding windows, and the arithmetic of window shapes."""
