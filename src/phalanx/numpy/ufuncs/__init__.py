"""Elementwise functions and their methods; functions applied elementwise or along axes."""
