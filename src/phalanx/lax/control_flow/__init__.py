"""Loops, conditionals, scans, and solvers with implicit derivatives."""
