"""Inspection of modules: tables, displays, and captured intermediate values."""
