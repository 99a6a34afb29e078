"""Sorting, searching and set operations."""
